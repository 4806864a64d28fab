package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/metrics"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// page is the metrics page, read as Prometheus does.
type page map[string]float64 // by name and labels, as in calls_total{a="b"}; a histogram by its count

func read(t *testing.T, m *metrics.Metrics) (page, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p := page{}
	for name, f := range families {
		for _, metric := range f.Metric {
			var labels []string
			for _, l := range metric.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			key := strings.TrimSpace(strings.TrimPrefix(name, "capture_proxy_") + " " + strings.Join(labels, " "))
			p[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return p, text
}

// Everything that the line says of a call is counted, under words of closed lists.
func TestSettled(t *testing.T) {
	m := metrics.New(metrics.Sources{
		Running: func() int { return 3 }, Waiting: func() (int, int64) { return 4, 500 }, Late: func() int64 { return 6 }, Ready: func() bool { return true }, Version: "v9",
	})
	n := func(v int64) *int64 { return &v }
	sampled := record.Choice{Outcome: record.Length, PromptIDs: []int32{1, 2, 3}, SampledIDs: []int32{4, 5}}
	for _, s := range []proxy.Settled{
		{Call: &record.Call{Outcome: record.Complete, Dialect: record.OpenAIChat, Usage: record.Usage{Prompt: n(10), Completion: n(7)}}, Level: record.LevelText, Before: -1, After: -1},
		{Call: &record.Call{Outcome: record.Length, Dialect: record.Google, Choices: []record.Choice{sampled, sampled}}, Level: record.LevelTokens, Trains: true, Before: time.Millisecond, After: time.Second, Late: true, Resends: 2, Fixes: 1},
		{Call: &record.Call{Outcome: record.Aborted, Dialect: record.Google, Choices: []record.Choice{{Outcome: record.Aborted, SampledIDs: []int32{1}}}}, Level: record.LevelTokens, Trains: true, Lost: true},
		{Call: &record.Call{Outcome: record.Rejected, Dialect: record.AnthropicMessages, Usage: record.Usage{Prompt: n(-5)}}, Before: -1, After: -1},
	} {
		m.Settled(&s)
	}
	got, _ := read(t, m)
	for key, want := range map[string]float64{
		"calls_total capture_level=text dialect=openai_chat outcome=complete":           1,
		"calls_total capture_level=tokens dialect=google outcome=length":                1,
		"calls_total capture_level=unknown dialect=anthropic_messages outcome=rejected": 1,
		"tokens_total kind=prompt":               13,
		"tokens_total kind=completion":           12,
		"tokens_total kind=trainable":            4,
		"before_dispatch_seconds dialect=google": 2,
		"before_release_seconds dialect=google":  2,
		"store_seconds":                          4,
		"late_answers_total":                     1,
		"lost_calls_total":                       1,
		"upstream_resends_total":                 2,
		"upstream_edits_total":                   1,
		"sessions status=running":                3,
		"store_waiting_writes":                   4,
		"store_waiting_bytes":                    500,
		"late_answers":                           6,
		"store_healthy":                          1,
		"info version=v9":                        1,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
	if got["go_goroutines"] == 0 {
		t.Error("nothing of the Go runtime")
	}
	if _, ok := got["before_dispatch_seconds dialect=openai_chat"]; ok {
		t.Error("a call that was not dispatched has a time to its dispatch")
	}
}

// Behind a proxy every call is counted once, before its answer has ended, and nothing on the page names a caller.
func TestBehindAProxy(t *testing.T) {
	up, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	upstream, err := engine.NewUpstream(engine.Config{URL: up.URL, Key: "marker-upstream"})
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	sessions, err := session.Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return upstream })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Create(t.Context(), &record.Session{ID: "marker-session"}, upstream); err != nil {
		t.Fatal(err)
	}
	m := metrics.New(metrics.Sources{})
	srv := httptest.NewServer(proxy.New(proxy.Config{Sessions: sessions, Log: st, Observers: []proxy.Observer{m}}))
	defer srv.Close()

	for fault, want := range map[string]string{"": "complete", "status 500": "upstream_error", "status 400": "rejected", "abort": "aborted", "short-ids": "incomplete_capture", "cut 2": "upstream_error"} {
		for _, stream := range []string{"true", "false"} {
			before, _ := read(t, m)
			marker := ""
			if fault != "" {
				marker = "[[fault:" + fault + "]]"
			}
			req, err := http.NewRequest(http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(
				`{"model":"marker-model","stream":`+stream+`,"messages":[{"role":"user","content":"marker-text `+marker+`"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer marker-session")
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body) // an answer that is cut is one of the cases
			resp.Body.Close()
			after, text := read(t, m)
			key := "calls_total capture_level=tokens dialect=openai_chat outcome=" + want
			if after[key] != before[key]+1 {
				t.Errorf("%q, stream %s: %s went from %v to %v", fault, stream, key, before[key], after[key])
			}
			if strings.Contains(text, "marker") || strings.Contains(text, up.URL) {
				t.Errorf("%q: the page names a caller or an engine", fault)
			}
		}
	}
	for _, ask := range []struct{ method, path, key string }{
		{"POST", "/v1/chat/completions", "marker-unknown"}, {"POST", "/v1/marker-path", "marker-session"}, {"GET", "/v1/messages", "marker-session"},
		{"MARKER", "/v1beta/models/marker-model:generateContent", "marker-session"}, {"POST", "/v1beta/models/marker-model:marker-method", "marker-session"},
	} {
		req, err := http.NewRequest(ask.method, srv.URL+ask.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+ask.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	got, page := read(t, m)
	for _, key := range []string{"refused_total dialect=openai_chat status=401", "refused_total dialect=openai_chat status=404",
		"refused_total dialect=anthropic_messages status=405", "refused_total dialect=google status=405", "refused_total dialect=google status=404"} {
		if got[key] != 1 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	if strings.Contains(strings.ToLower(page), "marker") {
		t.Error("the page names what was refused")
	}
	if got["tokens_total kind=prompt"] == 0 || got["tokens_total kind=trainable"] == 0 || got["store_seconds"] != 12 {
		t.Errorf("tokens and store: %v", got)
	}
}
