package control

import (
	"strings"
	"testing"
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
	} {
		if err := allowed(strings.Fields(c.patterns), c.address); (err == nil) != c.want {
			t.Errorf("%q for %s: %v, want %v", c.patterns, c.address, err, c.want)
		}
	}
}
