package control

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"captureproxy/proxy/engine"
)

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		patterns, address string
		want              bool
	}{
		{"", "http://10.0.0.1:8000/v1", true},
		{"", "https://api.example", true},
		{"", "http://169.254.1.1", false},
		{"http://10.0.0.1:8000", "http://10.0.0.1:8000/v1", true},
		{"http://10.0.0.1:8000", "http://10.0.0.1:8000", true},
		{"http://10.0.0.1:8000/v1", "http://10.0.0.1:8000", true}, // which means /v1
		{"http://10.0.0.1:8000/v1", "http://10.0.0.1:8000/v1/", true},
		{"http://10.0.0.1:8000/v1", "http://10.0.0.1:8000/v10", false},
		{"http://10.0.0.1:8000/v1", "http://10.0.0.1:8000/admin", false},
		{"http://10.0.0.1:8000/a/*", "http://10.0.0.1:8000/a/b/c", true},
		{"http://10.0.0.1:8000/a/*", "http://10.0.0.1:8000/a", false},
		{"http://10.0.0.1:8000", "https://10.0.0.1:8000", false},
		{"http://10.0.0.1", "http://10.0.0.1:8000", false},
		{"http://10.0.0.1", "http://10.0.0.1:80", true},
		{"https://api.example", "https://API.example:443/v1", true},
		{"http://10.0.0.*:*", "http://10.0.0.7:8000", true},
		{"http://10.0.0.*:*", "http://10.0.1.7:8000", false},
		{"https://*.example", "https://a.b.example", true},
		{"https://*.example", "https://example", false},
		{"https://*.example", "https://evil.test/.example", false},
		{"http://[::1]:8000", "http://[::1]:8000/v1", true},
		{"http://[::1]:8000", "http://1:8000/v1", false},
		{"http://169.254.1.1", "http://169.254.1.1", true},
		{"https://a https://b", "https://b/v1", true},
		{"[", "https://b/v1", false},
		// Names that only look like an allowed one.
		{"http://example.com", "http://example.com.evil.test", false},
		{"http://example.com", "http://evil-example.com", false},
		{"http://example.com", "http://example.com@evil.test", false},
		{"http://example.com", "http://example.com:80@evil.test", false},
		{"http://example.com", "http://evil.test/example.com", false},
		{"http://example.com", "http://evil.test#example.com", false},
		{"http://example.com", "http://evil.test?example.com", false},
		{"http://example.com", `http://example.com\@evil.test`, false},
		{"http://example.com", "http://example.com%00.evil.test", false},
		{"http://example.com", "http://example.com%2eevil.test", false},
		{"http://example.com", "http://example.com\t.evil.test", false},
		{"http://example.com", "http://ex\u0430mple.com", false},
		{"http://example.com", "http://example.com.", false},
		{"http://example.com", "http://EXAMPLE.com:80/V1", true},
		{"http://example.com/v1", "http://example.com/V1", false},
		{"http://example.com", "http://example.com:8080", false},
		{"http://example.com", "http:///example.com", false},
		{"http://example.com", "http:example.com", false},
		{"http://example.com", "//example.com", false},
		{"http://example.com", "ftp://example.com", false},
		{"http://example.com", "file:///etc/passwd", false},
		{"http://*.example.com", "http://evil.test/.example.com", false},
		{"http://*.example.com", "http://evilexample.com", false},
		{"http://*.example.com", "http://a.example.com.evil.test", false},
		{"http://10.0.0.*", "http://10.0.0.1.evil.test", false},
		{"http://10.0.0.*", "http://10.0.0.evil", false},
		{"http://10.0.0.*", "http://10.0.0.9", true},
		{"http://10.0.*.1", "http://10.0.0.0.1", false},
		{"http://gpu-*:8000", "http://gpu-7:8000", true},
		{"http://gpu-*:8000", "http://gpu-7.evil.test:8000", false},
		{"https://api.*.example", "https://api.a.evil.test.example", false},
		{"http://*:*", "http://anything.test:1", true},
		// Paths that lead out of an allowed one.
		{"http://h/v1", "http://h/v1/../admin", false},
		{"http://h/v1", "http://h/v1%2f..%2fadmin", false},
		{"http://h/v1", "http://h/v1/%2e%2e/admin", false},
		{"http://h/v1", "http://h/v1/./../admin", false},
		{"http://h/v1", "http://h//v1", false},
		{"http://h/v1", "http://h/v1;/../admin", false},
		{"http://h/v1", "http://h/v1%00", false},
		// Addresses where clouds serve credentials, which no wildcard allows.
		{"", "http://169.254.169.254/latest", false},
		{"", "http://[::ffff:169.254.169.254]", false},
		{"", "http://[::ffff:a9fe:a9fe]", false},
		{"", "http://[::169.254.169.254]", false},
		{"", "http://[64:ff9b::169.254.169.254]", false},
		{"", "http://[2002:a9fe:a9fe::1]", false},
		{"", "http://[fe80::1%25eth0]", false},
		{"", "http://[fd00:ec2::254]", false},
		{"", "http://100.100.100.200", false},
		{"", "http://168.63.129.16", false},
		{"", "http://[::1]:8000", true},
		{"http://*", "http://169.254.169.254", false},
		{"http://169.254.*.*", "http://169.254.169.254", false},
		{"http://169.254.169.254", "http://[::ffff:169.254.169.254]", false},
	} {
		if err := allowed(strings.Fields(c.patterns), c.address); (err == nil) != c.want {
			t.Errorf("%q for %s: %v, want %v", c.patterns, c.address, err, c.want)
		}
	}
}

// An address that is allowed leads to the host, port and path that the pattern names, for whoever reads it.
func FuzzAllowed(f *testing.F) {
	for _, address := range []string{"http://Engine.example:8000/v1", "http://engine.example:8000", "http://engine.example:8000@evil.test/v1", "http://engine.example:8000/v1/%2e%2e/x", "http://engine.example.:8000/v1", `http://engine.example:8000\@evil.test`,
		"http://10.0.0.7:8000/a/b", "http://10.0.0.7.evil.test:8000/a", "http://169.254.169.254:8000/a", "http://[::ffff:10.0.0.7]:8000/a"} {
		f.Add(address)
	}
	patterns := []string{"http://engine.example:8000/v1", "http://10.0.0.*:8000/a"}
	f.Fuzz(func(t *testing.T, address string) {
		if allowed(patterns, address) != nil {
			return
		}
		up, err := engine.NewUpstream(engineConfig(patterns, address, "", "", "", ""))
		if err != nil {
			return // nothing is sent there
		}
		defer up.Close()
		u, err := url.Parse(up.URL())
		if err != nil {
			t.Fatal(err)
		}
		named := strings.EqualFold(u.Host, "engine.example:8000") && (u.Path == "/v1" || strings.HasPrefix(u.Path, "/v1/"))
		addr, err := netip.ParseAddr(u.Hostname())
		numbered := err == nil && netip.MustParsePrefix("10.0.0.0/24").Contains(addr) && u.Port() == "8000" && (u.Path == "/a" || strings.HasPrefix(u.Path, "/a/"))
		if !named && !numbered || u.User != nil || strings.Contains(u.Path, "/../") || strings.HasSuffix(u.Path, "/..") {
			t.Fatalf("%q leads to %s", address, u)
		}
	})
}
