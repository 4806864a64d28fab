package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// BenchmarkContinuity is a call that goes on with a conversation of so many prompt tokens, with continuity and without: client,
// proxy and built-in engine in one process, the engine's own rendering of what is new included.
func BenchmarkContinuity(b *testing.B) {
	for _, tokens := range []int{1_000, 32_000, 128_000} {
		for _, mode := range []string{"off", "on"} {
			b.Run(fmt.Sprintf("%d/%s", tokens, mode), func(b *testing.B) { benchmarkContinuity(b, tokens, mode) })
		}
	}
}

func benchmarkContinuity(b *testing.B, tokens int, mode string) {
	e, err := fakeengine.Start(fakeengine.Options{MaxModelLen: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	st, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	up, err := engine.NewUpstream(engine.Config{URL: e.URL})
	if err != nil {
		b.Fatal(err)
	}
	defer up.Close()
	up.Measure(b.Context())
	reg, err := session.Open(b.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return up })
	if err != nil {
		b.Fatal(err)
	}
	spec := record.Spec{Purpose: record.PurposeTrain, Continuity: mode}
	if _, err := reg.Create(b.Context(), &record.Session{ID: "s1", Spec: spec, CaptureLevel: record.LevelTokens}, up); err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(New(Config{Sessions: reg, Log: st, Default: up}))
	defer proxy.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	send := func(body string) []byte {
		req, err := http.NewRequest(http.MethodPost, proxy.URL+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer s1")
		req.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%v %s", err, data)
		}
		return data
	}
	history := []string{`{"role":"user","content":"` + strings.Repeat("word ", tokens) + `"}`}
	var a struct {
		Choices []struct{ Message json.RawMessage }
	}
	for range 2 { // the last answer is one that was carried on itself
		if err := json.Unmarshal(send(`{"model":"m","messages":[`+strings.Join(history, ",")+`]}`), &a); err != nil {
			b.Fatal(err)
		}
		history = append(history, string(a.Choices[0].Message), `{"role":"user","content":"Go on."}`)
	}
	body := `{"model":"m","messages":[` + strings.Join(history, ",") + `]}`
	send(body)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		send(body)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
