package engine

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHub(t *testing.T) {
	h, err := NewHub(Config{URL: "http://127.0.0.1:1", Key: "operator", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	get := func(c Config) *Upstream {
		t.Helper()
		up, err := h.Get(c)
		if err != nil {
			t.Fatal(err)
		}
		return up
	}
	if get(Config{}) != h.Default() || get(Config{Model: "m"}) != h.Default() {
		t.Error("no address means the default engine")
	}
	other := get(Config{Model: "n"})
	if other == h.Default() || other.URL() != h.Default().URL() || !other.Keyed() || other != get(Config{Model: "n"}) {
		t.Error("another model of the default engine")
	}
	named := Config{URL: "http://127.0.0.1:2/v1", Key: "k", AuthHeader: "x-key", Model: "m"}
	up := get(named)
	for name, change := range map[string]func(*Config){
		"address": func(c *Config) { c.URL = "http://127.0.0.1:3/v1" },
		"key":     func(c *Config) { c.Key = "l" },
		"header":  func(c *Config) { c.AuthHeader = "y-key" },
		"model":   func(c *Config) { c.Model = "n" },
	} {
		c := named
		change(&c)
		if get(c) == up {
			t.Errorf("another %s shares the engine", name)
		}
	}
	slash := named
	slash.URL += "/"
	if get(named) != up || get(slash) != up {
		t.Error("the same configuration does not share the engine")
	}
	if get(Config{URL: "http://127.0.0.1:1"}).Keyed() {
		t.Error("a named engine got the default engine's key")
	}
	if _, err := h.Get(Config{URL: "gopher://x"}); err == nil {
		t.Error("an impossible address was taken")
	}
	if n := len(h.Named()); n != 7 {
		t.Errorf("%d engines beside the default one, want 7", n)
	}
	for i := range maxKept {
		get(Config{URL: fmt.Sprintf("http://127.0.0.1:2/%d", i)})
	}
	if n := len(h.Named()); n != maxKept {
		t.Errorf("%d engines are kept, want %d", n, maxKept)
	}
	if get(named) == up {
		t.Error("the engine asked for longest ago is still kept")
	}
}

func TestHubWithoutDefault(t *testing.T) {
	h, err := NewHub(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if up, err := h.Get(Config{Model: "m"}); up != nil || err != nil || h.Default() != nil {
		t.Errorf("%v, %v", up, err)
	}
	if _, err := NewHub(Config{URL: "127.0.0.1"}); err == nil {
		t.Error("an impossible default was taken")
	}
}

// A name that leads to a link-local address is refused when it is connected to, not by how it is written.
func TestNoLinkLocal(t *testing.T) {
	h, err := NewHub(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for address, refused := range map[string]bool{"http://169.254.169.254": true, "http://[::ffff:169.254.1.1]": true, srv.URL: false} {
		up, err := h.Get(Config{URL: address, NoLinkLocal: true})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := up.Do(t.Context(), &Request{Method: "GET", Path: "/models"})
		if err == nil {
			resp.Body.Close()
		}
		if got := err != nil && errors.Is(err, ErrNotSent) && strings.Contains(err.Error(), "link-local"); got != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}
