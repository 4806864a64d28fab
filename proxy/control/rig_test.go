package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/secret"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Engines of the two kinds that matter here. They are handlers: each rig serves its own.
var (
	withIDs    = fakeengine.New(fakeengine.Options{})
	withoutIDs = fakeengine.New(fakeengine.Options{Fault: func(*fakeengine.Request) fakeengine.Fault {
		return fakeengine.Fault{Kind: fakeengine.FaultMissingIDs}
	}})
)

const (
	adminKey    = "admin-key-of-the-test"
	upstreamKey = "upstream-key-of-the-test"
	sessionKey  = "engine-key-of-the-session"
)

// gate is an engine that keeps calls waiting whose body says "hold", until it is opened.
type gate struct {
	http.Handler
	opened  chan struct{}
	arrived chan struct{} // one value per call that waits
	left    chan struct{} // one value per call that was given up by the proxy

	mu   sync.Mutex
	keys []string // credentials that arrived
}

func newGate(h http.Handler) *gate {
	return &gate{Handler: h, opened: make(chan struct{}), arrived: make(chan struct{}, 16), left: make(chan struct{}, 16)}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	g.mu.Lock()
	g.keys = append(g.keys, r.Header.Get("Authorization")+r.Header.Get("X-Engine-Key"))
	g.mu.Unlock()
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if bytes.Contains(body, []byte("hold")) {
		g.arrived <- struct{}{}
		select {
		case <-g.opened:
		case <-r.Context().Done():
			g.left <- struct{}{}
			return
		}
	}
	g.Handler.ServeHTTP(w, r)
}

func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.keys...)
}

// rig is a proxy with its control API, an embedded store and an engine.
type rig struct {
	t      *testing.T
	dir    string // of the store
	url    string
	engine string // its address
	gate   *gate
	server *proxy.Server
	reg    *session.Registry
	store  *store.Log
	disk   *disk // between the store and the others
	hub    *engine.Hub
	client *control.Client
	logs   *logBuffer
	stop   func()

	complaints []string // about credentials that do not open
}

// setup changes how a rig is built.
type setup struct {
	handler    http.Handler // the engine; withIDs when nil
	noUpstream bool
	options    func(*control.Options)
	dir        string // of the store; a new one when empty
	engine     string // address of an engine that runs already
	secret     string // none when empty
}

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{t: t, dir: s.dir, engine: s.engine, logs: &logBuffer{}}
	if r.dir == "" {
		r.dir = t.TempDir()
	}
	if r.engine == "" {
		if s.handler == nil {
			s.handler = withIDs
		}
		r.gate = newGate(s.handler)
		srv := httptest.NewServer(r.gate)
		t.Cleanup(srv.Close)
		r.engine = srv.URL
	}
	cfg := engine.Config{URL: r.engine, Key: upstreamKey}
	if s.noUpstream {
		cfg = engine.Config{}
	}
	var box *secret.Box
	var err error
	if s.secret != "" {
		if box, err = secret.New(s.secret); err != nil {
			t.Fatal(err)
		}
	}
	if r.hub, err = engine.NewHub(cfg); err != nil {
		t.Fatal(err)
	}
	if r.store, err = store.Open(r.dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	r.disk = &disk{Log: r.store}
	if r.reg, err = session.Open(t.Context(), r.disk, time.Now, control.EngineOf(r.hub, nil, box, func(err error) { r.complaints = append(r.complaints, err.Error()) })); err != nil {
		t.Fatal(err)
	}
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(r.logs), zap.DebugLevel))
	o := control.Options{
		Sessions: r.reg, Store: r.disk, Engines: r.hub, Logger: logger, AdminKey: adminKey, Loopback: true,
		ProxyVersion: "test", Secret: box, Instance: "i1", Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "counted 1\n") }), //nolint:errcheck // the client reads it
		Late: func() int64 { return r.server.Late() },
	}
	if s.options != nil {
		s.options(&o)
	}
	r.server = proxy.New(proxy.Config{Sessions: r.reg, Log: r.store, Default: r.hub.Default(), Logger: logger, Control: control.New(o)})
	srv := httptest.NewServer(r.server)
	r.url = srv.URL
	r.client = &control.Client{URL: srv.URL, Key: o.AdminKey, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	r.stop = sync.OnceFunc(func() {
		srv.CloseClientConnections()
		srv.Close()
		r.hub.Close()
		if err := r.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// disk is a store that fails on request.
type disk struct {
	*store.Log
	full    atomic.Bool // sessions cannot be written
	damaged atomic.Bool // calls cannot all be read
}

var errFull = errors.New("no space left on device")

func (d *disk) CreateSession(ctx context.Context, s *record.Session) error {
	if d.full.Load() {
		return errFull
	}
	return d.Log.CreateSession(ctx, s)
}

func (d *disk) PutSession(ctx context.Context, s *record.Session) error {
	if d.full.Load() {
		return errFull
	}
	return d.Log.PutSession(ctx, s)
}

func (d *disk) Calls(ctx context.Context, id string) ([]*record.Call, error) {
	calls, err := d.Log.Calls(ctx, id)
	if err == nil && d.damaged.Load() {
		return calls[1:], &store.DamageError{File: "00000001.log", Session: id, Reason: "bad checksum"}
	}
	return calls, err
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// answer is a raw answer.
type answer struct {
	status int
	header http.Header
	body   string
}

// message reads the error out of an answer.
func (a answer) message() string {
	var e struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Error.Type == "" {
		return "no error body: " + a.body
	}
	return e.Error.Message
}

// raw sends a request with the admin key and JSON's content type; header changes both, "" removes.
func (r *rig) raw(method, path, body string, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		switch {
		case header[i] == "Host":
			req.Host = header[i+1]
		case header[i+1] == "":
			req.Header.Del(header[i])
		default:
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" { // which has no end
		return answer{resp.StatusCode, resp.Header, ""}
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// want is raw for an answer of a status.
func (r *rig) want(status int, method, path, body string) answer {
	r.t.Helper()
	a := r.raw(method, path, body)
	if a.status != status {
		r.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.body, status)
	}
	return a
}

// create creates a session of a name with more fields.
func (r *rig) create(id, fields string) {
	r.t.Helper()
	r.want(200, "POST", "/sessions", `{"session_id":"`+id+`"`+fields+`}`)
}

// say makes one model call of a session and returns its status.
func (r *rig) say(id, text string) int {
	r.t.Helper()
	status, err := r.trySay(id, text)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

func (r *rig) trySay(id, text string) (int, error) {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)
	req, err := http.NewRequestWithContext(context.Background(), "POST", r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+id)
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// sayLater makes a call that waits at the gate; it returns once the call is there. The channel gets the call's status.
func (r *rig) sayLater(id string) <-chan int {
	r.t.Helper()
	done := make(chan int, 1)
	go func() {
		status, err := r.trySay(id, "hold")
		if err != nil {
			status = -1
		}
		done <- status
	}()
	<-r.gate.arrived
	return done
}

// storedText is everything that the store has on disk.
func (r *rig) storedText() string {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(r.dir + "/" + e.Name())
		if err != nil {
			r.t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// read decodes an answer.
func read[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

func newServer(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}
