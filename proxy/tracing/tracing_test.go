package tracing_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/proxy/tracing"
	"captureproxy/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is where spans are sent to, as a collector is.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	raw   []byte // everything, as it came
	spans []*traces.Span
	names []string // service.name of each request
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var in io.Reader = req.Body
		if req.Header.Get("Content-Encoding") == "gzip" {
			gz, err := gzip.NewReader(req.Body)
			if err != nil {
				t.Error(err)
				return
			}
			in = gz
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Error(err)
		}
		var got collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &got); err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw = append(r.raw, body...)
		for _, rs := range got.ResourceSpans {
			r.names = append(r.names, text(rs.Resource.Attributes, "service.name"))
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func value(list []*common.KeyValue, key string) *common.AnyValue {
	for _, kv := range list {
		if kv.Key == key {
			return kv.Value
		}
	}
	return nil
}

func text(list []*common.KeyValue, key string) string { return value(list, key).GetStringValue() }

// rig is a proxy in front of the built-in engine.
type rig struct {
	t   *testing.T
	url string
}

func newRig(t *testing.T, tracer *tracing.Tracer) *rig {
	t.Helper()
	up, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	upstream, err := engine.NewUpstream(engine.Config{URL: up.URL, Key: "marker-upstream"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upstream.Close)
	sessions, err := session.Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return upstream })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Create(t.Context(), &record.Session{ID: "marker-session", CaptureLevel: record.LevelTokens}, upstream); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(proxy.New(proxy.Config{Sessions: sessions, Log: st, Observers: []proxy.Observer{tracer}}))
	t.Cleanup(srv.Close)
	return &rig{t: t, url: srv.URL}
}

// call makes a call and returns its request id.
func (r *rig) call(path, body, parent string) string {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer marker-session")
	req.Header.Set("Content-Type", "application/json")
	if parent != "" {
		req.Header.Set("Traceparent", parent)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body) // an answer that is cut is one of the cases
	res.Body.Close()
	return res.Header.Get("X-Request-Id")
}

// environment names a receiver, and nothing else of a developer's own settings counts.
func environment(t *testing.T, endpoint string) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER",
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_TIMEOUT"} {
		t.Setenv(name, "")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
}

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	chat      = `{"model":"m","stream":%s,"messages":[{"role":"user","content":"marker-text %s"}]}`
	messages  = `{"model":"m","max_tokens":50,"stream":%s,"messages":[{"role":"user","content":"marker-text %s"}]}`
)

func fill(body, stream, more string) string {
	return strings.Replace(strings.Replace(body, "%s", stream, 1), "%s", more, 1)
}

func TestSpans(t *testing.T) {
	to := newReceiver(t)
	environment(t, to.URL)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=my-run")
	tracer, err := tracing.FromEnvironment(t.Context(), "v9", zap.NewNop())
	if err != nil || tracer == nil {
		t.Fatal(tracer, err)
	}
	r := newRig(t, tracer)
	type want struct {
		outcome string
		tokens  bool
		failed  bool
		engine  bool
		first   bool
	}
	wants := map[string]want{}
	for _, d := range []struct{ path, body string }{{"/v1/chat/completions", chat}, {"/v1/messages", messages}} {
		for _, stream := range []string{"true", "false"} {
			wants[r.call(d.path, fill(d.body, stream, ""), sampled)] = want{outcome: "complete", tokens: true, engine: true, first: true}
			wants[r.call(d.path, fill(d.body, stream, "[[fault:status 400]]"), sampled)] = want{outcome: "rejected", engine: true}
			wants[r.call(d.path, fill(d.body, stream, "[[fault:status 500]]"), sampled)] = want{outcome: "upstream_error", failed: true, engine: true}
		}
		wants[r.call(d.path, fill(d.body, "true", "[[fault:cut 2]]"), sampled)] = want{outcome: "upstream_error", failed: true, engine: true, first: true}
		wants[r.call(d.path, `{"messages": nonsense`, sampled)] = want{outcome: "rejected"}
		r.call(d.path, fill(d.body, "false", ""), unsampled)
	}
	alone := r.call("/v1/chat/completions", fill(chat, "false", ""), "")
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	if len(to.names) == 0 || slices.ContainsFunc(to.names, func(n string) bool { return n != "my-run" }) {
		t.Errorf("services %q", to.names)
	}
	if bytes.Contains(to.raw, []byte("marker")) || bytes.Contains(to.raw, []byte("127.0.0.1")) {
		t.Error("a span holds a prompt, a key or an address")
	}
	children := map[string]*traces.Span{}
	for _, s := range to.spans {
		if s.Kind == traces.Span_SPAN_KIND_CLIENT {
			children[string(s.ParentSpanId)] = s
		}
	}
	for _, s := range to.spans {
		if s.Kind != traces.Span_SPAN_KIND_SERVER {
			continue
		}
		id := text(s.Attributes, "capture_proxy.request_id")
		trace, parent := hex.EncodeToString(s.TraceId), hex.EncodeToString(s.ParentSpanId)
		if id == alone {
			if trace == "" || parent != "" {
				t.Errorf("a call without a parent has %q", parent)
			}
			alone = ""
			continue
		}
		w, known := wants[id]
		if !known {
			t.Errorf("a span of call %q, trace %s, which was not to be sampled", id, trace)
			continue
		}
		delete(wants, id)
		if trace+parent != "0af7651916cd43dd8448eb211c80319c"+"b7ad6b7169203331" {
			t.Errorf("%s: trace %s, parent %s", id, trace, parent)
		}
		if got := text(s.Attributes, "capture_proxy.outcome"); got != w.outcome || (s.Status.GetCode() == traces.Status_STATUS_CODE_ERROR) != w.failed {
			t.Errorf("%s: outcome %s, status %v, want %+v", id, got, s.Status, w)
		}
		in, out := value(s.Attributes, "gen_ai.usage.input_tokens"), value(s.Attributes, "gen_ai.usage.output_tokens")
		if (in.GetIntValue() > 0 && out.GetIntValue() > 0) != w.tokens {
			t.Errorf("%s: tokens %v, %v", id, in, out)
		}
		child := children[string(s.SpanId)]
		if (child != nil) != w.engine {
			t.Errorf("%s: engine's span %v", id, child)
			continue
		}
		if child == nil {
			continue
		}
		if child.StartTimeUnixNano < s.StartTimeUnixNano || child.EndTimeUnixNano > s.EndTimeUnixNano || child.EndTimeUnixNano < child.StartTimeUnixNano {
			t.Errorf("%s: the engine worked from %d to %d, the call took from %d to %d", id, child.StartTimeUnixNano, child.EndTimeUnixNano, s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
		if (len(child.Events) == 1) != w.first {
			t.Errorf("%s: events %v", id, child.Events)
		}
	}
	if len(wants) > 0 || alone != "" {
		t.Errorf("no spans of %v %s", wants, alone)
	}
}

// A receiver that hangs or refuses costs spans, never a call, and a line in the log now and then.
func TestReceiverOfNoUse(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"hangs":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				h(w, r)
			}))
			defer srv.Close()
			environment(t, srv.URL)
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "300")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
			core, logs := observer.New(zap.WarnLevel)
			tracer, err := tracing.FromEnvironment(t.Context(), "v9", zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, tracer)
			for range 30 {
				if r.call("/v1/chat/completions", fill(chat, "false", ""), "") == "" {
					t.Fatal("no answer")
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_ = tracer.Close(ctx) // what could not be sent is lost
			if n := logs.FilterMessageSnippet("traces could not be sent").Len(); n != 1 {
				t.Errorf("%d lines: %v", n, logs.All())
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		set    map[string]string
		traces bool
		err    string
	}{
		"nothing":               {},
		"an endpoint":           {set: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, traces: true},
		"one for traces":        {set: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, traces: true},
		"switched off":          {set: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}},
		"no exporter":           {set: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}},
		"another protocol":      {set: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: "4318"},
		"the protocol it sends": {set: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, traces: true},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, "")
			for k, v := range c.set {
				t.Setenv(k, v)
			}
			tracer, err := tracing.FromEnvironment(t.Context(), "v9", zap.NewNop())
			if (tracer != nil) != c.traces || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%v, %v", tracer, err)
			}
			if tracer != nil {
				if err := tracer.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
