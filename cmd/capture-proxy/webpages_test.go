package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// With --allow-unregistered any key gets a session, but not a web page's: neither by a name of its own nor across origins.
func TestWebPagesGetNoSession(t *testing.T) {
	app, err := NewApp(t.Context(), Config{Listen: "127.0.0.1:0", Data: t.TempDir(), AllowUnregistered: true, DrainTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx) }()
	for _, c := range []struct {
		name, host, origin, site string
		want                     int
	}{
		{"a harness", "", "", "", http.StatusServiceUnavailable}, // there is no engine
		{"a name that leads here", "evil.example", "", "", http.StatusForbidden},
		{"another origin", "", "http://evil.example", "", http.StatusForbidden},
		{"a page of another site", "", "", "cross-site", http.StatusForbidden},
	} {
		req, err := http.NewRequest(http.MethodPost, app.URL()+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for name, value := range map[string]string{"Authorization": "Bearer any", "Content-Type": "application/json", "Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, text, c.want)
		}
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: the answer has %s", c.name, name)
			}
		}
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
