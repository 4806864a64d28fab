package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// rig is a proxy in front of an engine, with a store of its own.
type rig struct {
	t        *testing.T
	url      string
	dir      string
	server   *Server
	sessions *session.Registry
	store    *store.Log
	up       *engine.Upstream
}

type rigOptions struct {
	level   record.Level // taken for measured, unless empty
	model   string
	config  func(*Config)
	engine  func(*engine.Config)
	session func(*record.Session)
}

// newRig starts a proxy in front of an engine at url.
func newRig(t *testing.T, url string, o rigOptions) *rig {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{URL: url, Model: o.model, Level: o.level, Key: "upstream-secret"}
	if o.engine != nil {
		o.engine(&cfg)
	}
	up, err := engine.NewUpstream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if o.level != "" {
		up.Assume(engine.Profile{Level: o.level, StreamCapture: true, LogprobsMode: record.LogprobsProcessed, Served: o.model})
	}
	reg, err := session.Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return up })
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Sessions: reg, Log: st, Default: up, Logger: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))}
	if o.config != nil {
		o.config(&config)
	}
	r := &rig{t: t, dir: dir, server: New(config), sessions: reg, store: st, up: up}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = NewHTTPServer(r.server, Limits{}, log.New(io.Discard, "", 0))
	srv.Start()
	r.url = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		up.Close()
		if err := st.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	r.create("s1", o.session)
	return r
}

// create registers a session that trains when its engine can.
func (r *rig) create(id string, change func(*record.Session)) *session.Live {
	r.t.Helper()
	s := &record.Session{ID: id, Spec: record.Spec{Purpose: record.PurposeAuto}, CaptureLevel: r.up.Profile().Level, Engine: r.up.Record()}
	if change != nil {
		change(s)
	}
	l, err := r.sessions.Create(context.Background(), s, r.up)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// post sends a body with session s1's key and returns the answer.
func (r *rig) post(path, body string, header ...string) (*http.Response, []byte) {
	r.t.Helper()
	resp, data, err := r.try(path, body, header...)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, data
}

// try is post that may fail, also in the middle of the answer.
func (r *rig) try(path, body string, header ...string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer s1")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// calls returns what session s1's log holds.
func (r *rig) calls() []*record.Call {
	r.t.Helper()
	calls, err := r.store.Calls(context.Background(), "s1")
	if err != nil {
		r.t.Fatal(err)
	}
	return calls
}

// only returns the session's only call.
func (r *rig) only() *record.Call {
	r.t.Helper()
	calls := r.calls()
	if len(calls) != 1 {
		r.t.Fatalf("%d calls recorded, want 1", len(calls))
	}
	return calls[0]
}

// eventually waits until n calls are recorded.
func (r *rig) eventually(n int) []*record.Call {
	r.t.Helper()
	for range 500 {
		if calls := r.calls(); len(calls) >= n {
			return calls
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%d calls recorded, want %d", len(r.calls()), n)
	return nil
}

// document is the session's document so far.
func (r *rig) document(o export.Options) *export.Rollout {
	r.t.Helper()
	s, err := r.store.Session(context.Background(), "s1")
	if err != nil {
		r.t.Fatal(err)
	}
	return export.Build(s, r.calls(), o)
}

// script is an upstream that answers with fixed bytes and keeps what it was sent.
type script struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
}

type received struct {
	path   string
	header http.Header
	body   []byte
}

// newScript starts an upstream whose answers handler gives; request numbers count from 0.
func newScript(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, n int)) *script {
	s := &script{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		n := len(s.requests)
		s.requests = append(s.requests, received{r.URL.RequestURI(), r.Header.Clone(), body})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *script) got(n int) received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[n]
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// answers is a handler that gives the same answer every time.
func answers(status int, contentType, body string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body) //nolint:errcheck // the proxy's fate is what the test looks at
	}
}

const sse = "text/event-stream"

// simple is a request as harnesses send it.
const simple = `{"model":"m","messages":[{"role":"user","content":"add two and three"}]}`
const simpleStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"add two and three"}]}`

// chunks joins chat chunks into a stream that ends with [DONE]. Each argument is the inside of a choice.
func chunks(choices ...string) string {
	var b strings.Builder
	for _, c := range choices {
		b.WriteString(`data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,` + c + "}]}\n\n")
	}
	b.WriteString("data: [DONE]\n\n")
	return b.String()
}

// idle sets both idle limits.
func idle(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.Timeouts = engine.Timeouts{FirstByte: d, Idle: d} }
}

// startEngine starts the built-in engine at an address.
func (r *rig) startEngine(addr string) *fakeengine.Server {
	r.t.Helper()
	e, err := fakeengine.Start(fakeengine.Options{Addr: addr})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := e.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return e
}
