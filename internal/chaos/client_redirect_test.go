package chaos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// An engine that a session names is not trusted: what it answers with a redirect is followed by nobody, neither here nor in
// the harness, and headers that speak for its origin stay behind.
func TestRedirects(t *testing.T) {
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	defer trap.Close()
	var status atomic.Int64
	w := newWorld(t, worldOptions{google: true, engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Location", "Refresh", "Alt-Svc", "Strict-Transport-Security", "Set-Cookie", "Access-Control-Allow-Origin"} {
			w.Header().Set(name, trap.URL)
		}
		w.WriteHeader(int(status.Load()))
	})})
	for n, code := range []int{301, 302, 303, 307, 308, 300, 304, 400, 500} {
		status.Store(int64(code))
		for _, request := range []string{
			post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, true, "hi")),
			post("/v1/messages", fmt.Sprintf(dialects[2].body, false, "hi")),
			post("/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"text":"hi"}]}]}`),
			post("/v1beta/models/m:countTokens", `{"contents":[{"parts":[{"text":"hi"}]}]}`),
			post("/v1/embeddings", `{"input":"hi"}`),
		} {
			a := w.ask(request)
			if a.status >= 300 && a.status < 400 || a.status == 0 {
				t.Errorf("%d: answered with %d: %.60q", code, a.status, request)
			}
			for name, values := range a.header {
				if strings.Contains(strings.Join(values, " "), trap.URL) {
					t.Errorf("%d: the harness gets %s of %.60q", code, name, request)
				}
			}
		}
		for _, call := range w.calls(3 * (n + 1))[3*n:] {
			if call.Outcome.IsNode() || call.Outcome == record.ClientGone {
				t.Errorf("%d is recorded as %s", code, call.Outcome)
			}
		}
	}
	up, err := engine.NewUpstream(engine.Config{URL: "http://" + w.tap.listener.Addr().String(), Key: "the-engines-key", Timeouts: engine.Timeouts{FirstByte: time.Minute, Idle: time.Minute}})
	w.must(err)
	defer up.Close()
	status.Store(307)
	if p := up.Measure(t.Context()); p.Level == record.LevelTokens {
		t.Errorf("measured as %+v", p)
	}
	if trapped.Load() > 0 {
		t.Errorf("%d redirects were followed", trapped.Load())
	}
}
