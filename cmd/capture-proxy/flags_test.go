package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"1": 1, "512B": 512, "64MiB": 64 << 20, "2 GiB": 2 << 30, "3KB": 3000, "1GB": 1e9, "7KiB": 7 << 10} {
		var got size
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "MiB", "1.5GiB", "12TiB", "9223372036854775807GiB", "64 M"} {
		got := size(7)
		if err := got.Set(text); err == nil || got != 7 {
			t.Errorf("%q was taken as %d", text, got)
		}
	}
}

// What a size prints as can be typed again.
func TestSizeReadsItsOwnText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := size(rapid.Int64Range(1, 1<<62).Draw(t, "size"))
		var back size
		if err := back.Set(s.String()); err != nil || back != s {
			t.Fatalf("%d is printed as %q, which is %d, %v", int64(s), s.String(), int64(back), err)
		}
	})
}

func TestFlagsFromEnvironment(t *testing.T) {
	build := func() (*pflag.FlagSet, *engineFlags, *[]string) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		var e engineFlags
		e.add(flags)
		return flags, &e, flags.StringSlice("relay", nil, "")
	}
	env := map[string]string{
		"CAPTURE_PROXY_UPSTREAM": "http://env", "CAPTURE_PROXY_MODEL": "from-env", "CAPTURE_PROXY_UPSTREAM_KEY": "",
		"CAPTURE_PROXY_RELAY": "/a,/b", "CAPTURE_PROXY_IDLE_TIMEOUT": "3s",
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }

	flags, e, relay := build()
	if err := flags.Parse([]string{"--model", "from-flag"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	if e.url != "http://env" || e.model != "from-flag" || e.key != "" || e.idle.String() != "3s" || strings.Join(*relay, " ") != "/a /b" {
		t.Errorf("%+v, relay %q", e, *relay)
	}

	env["CAPTURE_PROXY_IDLE_TIMEOUT"], env["CAPTURE_PROXY_PROVIDER"] = "soon", "mine"
	flags, _, _ = build()
	err := fromEnvironment(flags, lookup)
	if err == nil || !strings.Contains(err.Error(), "CAPTURE_PROXY_IDLE_TIMEOUT: ") || !strings.Contains(err.Error(), `CAPTURE_PROXY_PROVIDER: "mine" is none of auto, vllm`) {
		t.Errorf("bad values in the environment: %v", err)
	}
}

func TestPairs(t *testing.T) {
	p := pairs{}
	for _, text := range []string{"b=2", "a=x=y", "b=3", "empty="} {
		if err := p.Set(text); err != nil {
			t.Error(err)
		}
	}
	if got := p.String(); got != "a=x=y,b=3,empty=" {
		t.Error(got)
	}
	for _, text := range []string{"", "a", "=b"} {
		if p.Set(text) == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
