package main

import (
	"slices"
	"strings"
	"testing"
)

func TestChildEnvironment(t *testing.T) {
	got := childEnvironment([]string{
		"PATH=/bin", "OPENAI_API_KEY=sk-real", "ANTHROPIC_AUTH_TOKEN=real", "GOOGLE_API_KEY=real", "EMPTY=", "EQUALS=a=b",
		"CAPTURE_PROXY_ADMIN_KEY=admin", "CAPTURE_PROXY_UPSTREAM_KEY=up", "CAPTURE_PROXY_SESSION=outer", "CAPTURE_PROXY_ANYTHING=x",
		"NO_PROXY=example.org, 127.0.0.1",
	}, "http://127.0.0.1:9", "s-1")
	slices.Sort(got)
	want := []string{
		"ANTHROPIC_API_KEY=s-1", "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
		"CAPTURE_PROXY_SESSION=s-1", "CAPTURE_PROXY_URL=http://127.0.0.1:9",
		"EMPTY=", "EQUALS=a=b",
		"GEMINI_API_KEY=s-1", "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9",
		"NO_PROXY=example.org,127.0.0.1,localhost",
		"OPENAI_API_BASE=http://127.0.0.1:9/v1", "OPENAI_API_KEY=s-1", "OPENAI_BASE_URL=http://127.0.0.1:9/v1",
		"PATH=/bin", "no_proxy=127.0.0.1,localhost",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckListen(t *testing.T) {
	for _, c := range []struct {
		address, key string
		unregistered bool
		problem      string
	}{
		{"127.0.0.1:8100", "", true, ""},
		{"localhost:0", "", false, ""},
		{"[::1]:8100", "", false, ""},
		{"0.0.0.0:8100", "", false, "--admin-key"},
		{":8100", "", false, "--admin-key"},
		{"[::]:8100", "", false, "--admin-key"},
		{"example.org:8100", "", false, "--admin-key"},
		{"0.0.0.0:8100", "k", false, ""},
		{"0.0.0.0:8100", "k", true, "--allow-unregistered"},
		{"8100", "k", false, "host:port"},
	} {
		err := checkListen(c.address, c.key, c.unregistered)
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v, want %q", c.address, err, c.problem)
		}
	}
}
