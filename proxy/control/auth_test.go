package control_test

import (
	"strings"
	"testing"

	"captureproxy/proxy/control"
)

// routes are all calls of the API, with a request that works while session "a" runs.
var routes = []struct {
	method, path, body string
	open               bool
}{
	{"GET", "/health", "", true},
	{"GET", "/ready", "", true},
	{"GET", "/metrics", "", true},
	{"GET", "/openapi.json", "", true},
	{"POST", "/sessions", `{}`, false},
	{"GET", "/sessions", "", false},
	{"GET", "/sessions/a", "", false},
	{"GET", "/sessions/a/rollout", "", false},
	{"GET", "/sessions/a/trace_entries", "", false},
	{"GET", "/groups/a", "", false},
	{"GET", "/events", "", false},
	{"POST", "/policy", `{"version":1}`, false},
	{"GET", "/policy", "", false},
	{"POST", "/sessions/a/score", `{"reward":1}`, false},
	{"POST", "/sessions/a/close", "", false},
	{"POST", "/sessions/b/cancel", "", false},
	{"DELETE", "/sessions/a", "", false},
}

func TestAuth(t *testing.T) {
	r := newRig(t, setup{})
	keys := []struct {
		name, key string
		opens     bool
	}{
		{"no key", "", false},
		{"a wrong key", "wrong", false},
		{"the beginning of the key", adminKey[:len(adminKey)-1], false},
		{"the session's key", "a", false},
		{"the admin key", adminKey, true},
	}
	for _, k := range keys {
		for _, header := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
			value := k.key
			if header == "Authorization" && value != "" {
				value = "Bearer " + value
			}
			r.create("a", "") // the same again, or a new one where the key before opened DELETE
			r.raw("DELETE", "/sessions/b", "")
			r.create("b", "")
			for _, rt := range routes {
				a := r.raw(rt.method, rt.path, rt.body, "Authorization", "", header, value)
				if want := k.opens || rt.open; want != (a.status == 200) || !want && a.status != 401 {
					t.Errorf("%s %s with %s in %s: %d %s", rt.method, rt.path, k.name, header, a.status, a.body)
				}
			}
		}
	}
	if a := r.raw("GET", "/sessions?key="+adminKey, "", "Authorization", ""); a.status != 401 {
		t.Errorf("the key in the query: %d", a.status)
	}
	if a := r.raw("GET", "/sessions", "", "Authorization", "bearer  "+adminKey); a.status != 200 {
		t.Errorf("a scheme in lower case: %d", a.status)
	}
}

// Without a key the API is open on a loopback address, and nowhere else.
func TestWithoutAdminKey(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.AdminKey = "" }})
	if a := r.raw("GET", "/sessions", "", "Authorization", ""); a.status != 200 {
		t.Errorf("on loopback: %d", a.status)
	}
	r = newRig(t, setup{options: func(o *control.Options) { o.AdminKey, o.Loopback = "", false }})
	for _, rt := range routes {
		a := r.raw(rt.method, rt.path, rt.body, "Authorization", "")
		if rt.open != (a.status == 200) || !rt.open && a.status != 403 {
			t.Errorf("%s %s beyond loopback: %d", rt.method, rt.path, a.status)
		}
	}
	// An empty key is no key.
	if a := r.raw("GET", "/sessions", "", "Authorization", "Bearer "); a.status != 403 {
		t.Errorf("an empty key: %d", a.status)
	}
}

func TestHost(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.PublicURL = "https://proxy.example:8443" }})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8100": 200, "LOCALHOST": 200, "localhost.": 200, "127.0.0.1": 200, "127.9.9.9:1": 200, "[::1]": 200, "[::1]:8100": 200,
		"proxy.example:8443": 200,
		"evil.example":       403, "evil.example:8100": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403, "[fe80::1]": 403,
		"proxy.example": 403,
	} {
		for _, path := range []string{"/sessions", "/health"} {
			if a := r.raw("GET", path, "", "Host", host); a.status != want {
				t.Errorf("%s with Host %s: %d, want %d", path, host, a.status, want)
			}
		}
	}
	open := newRig(t, setup{options: func(o *control.Options) { o.Loopback = false }})
	if a := open.raw("GET", "/sessions", "", "Host", "proxy.example"); a.status != 200 {
		t.Errorf("a proxy for other machines has any name: %d", a.status)
	}
}

// A web page can do nothing, even where no key is needed.
func TestWebPages(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.AdminKey = "" }})
	r.create("a", "")
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		for _, call := range []string{"POST /sessions/a/cancel", "POST /sessions/a/close", "DELETE /sessions/a"} {
			method, path, _ := strings.Cut(call, " ")
			if a := r.raw(method, path, "", header...); a.status != 403 {
				t.Errorf("%s from a page (%s): %d", call, header, a.status)
			}
		}
	}
	a := r.raw("GET", "/sessions", "", "Origin", "http://evil.example")
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the answer has %s", name)
		}
	}
	r.want(200, "GET", "/sessions/a", "")
}

func TestContentType(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	for _, call := range []struct{ path, body string }{
		{"/sessions", `{}`}, {"/sessions/a/close", `{}`}, {"/sessions/a/cancel", `{}`}, {"/sessions/a/score", `{}`}, {"/policy", `{"version":1}`},
	} {
		for _, ct := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"} {
			if a := r.raw("POST", call.path, call.body, "Content-Type", ct); a.status != 415 {
				t.Errorf("%s as %q: %d", call.path, ct, a.status)
			}
		}
	}
	for _, path := range []string{"/sessions", "/sessions/a/score", "/policy"} {
		if a := r.raw("POST", path, ""); a.status != 415 {
			t.Errorf("%s without a body: %d", path, a.status)
		}
	}
	if a := r.raw("POST", "/sessions", `{}`, "Content-Type", "Application/JSON; charset=utf-8"); a.status != 200 {
		t.Errorf("with a charset: %d", a.status)
	}
}

func TestUnknownPaths(t *testing.T) {
	r := newRig(t, setup{})
	for _, path := range []string{"/metrics/x", "/sessions/", "/sessions/a/b", "/sessions/a/close/x", "/v1/sessions", "/v1/load_lora_adapter", "/admin"} {
		for _, key := range []string{"", "Bearer " + adminKey} {
			a := r.raw("GET", path, "", "Authorization", key)
			if a.status != 404 || strings.HasPrefix(a.message(), "no error body") || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	a := r.raw("PUT", "/sessions/a", "")
	if a.status != 405 || a.header.Get("Allow") != "GET, DELETE" || strings.HasPrefix(a.message(), "no error body") {
		t.Errorf("PUT: %d %v %s", a.status, a.header, a.body)
	}
	for _, rt := range routes {
		if path := strings.Replace(rt.path, "/a", "/nobody", 1); path != rt.path {
			if a := r.raw(rt.method, path, rt.body); a.status != 404 {
				t.Errorf("%s %s: %d %s", rt.method, path, a.status, a.body)
			}
		}
	}
}
