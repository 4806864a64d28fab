package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// wire is an engine of which the test chooses every byte. It reads a request and does what play says with the connection, which
// is closed afterwards.
type wire struct {
	net.Listener
	all  sync.WaitGroup
	mu   sync.Mutex
	play func(c *net.TCPConn, r *http.Request, body []byte)
}

func newWire(t *testing.T) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l}
	w.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); w.all.Wait() })
	return w
}

func (w *wire) serve(c *net.TCPConn) {
	defer c.Close()
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	w.mu.Lock()
	play := w.play
	w.mu.Unlock()
	play(c, req, body)
}

// does says what becomes of the calls from now on.
func (w *wire) does(play func(c *net.TCPConn, r *http.Request, body []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.play = play
}

// says is a play: these bytes, and the end.
func says(text string) func(*net.TCPConn, *http.Request, []byte) {
	return func(c *net.TCPConn, _ *http.Request, _ []byte) { io.WriteString(c, text) } //nolint:errcheck // the proxy may have hung up by then
}

// front is a proxy in front of a wire.
type front struct {
	t        *testing.T
	wire     *wire
	url      string
	store    *store.Log
	sessions *session.Registry
	up       *engine.Upstream
	client   *http.Client
	n        int
}

// native are the dialects that an engine speaks itself.
func newFront(t *testing.T, provider string, idle time.Duration, native ...record.Dialect) *front {
	t.Helper()
	w := newWire(t)
	f := newFrontOf(t, "http://"+w.Addr().String(), provider, idle, native...)
	f.wire = w
	if len(native) == 0 { // it cannot be measured
		f.up.Assume(engine.Profile{Level: record.LevelTokens, StreamCapture: true, Served: "fake-model", LogprobsMode: record.LogprobsProcessed})
	}
	return f
}

// newFrontOf is a proxy in front of any engine.
func newFrontOf(t *testing.T, url, provider string, idle time.Duration, native ...record.Dialect) *front {
	t.Helper()
	f := &front{t: t}
	var err error
	if f.store, err = store.Open(t.TempDir(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	if f.up, err = engine.NewUpstream(engine.Config{URL: url, Provider: provider, Key: "the-engines-key", Timeouts: engine.Timeouts{FirstByte: idle, Idle: idle}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.up.Close)
	if len(native) > 0 {
		f.up.Assume(engine.Profile{Level: record.LevelText, Native: native, Provider: provider})
	}
	if f.sessions, err = session.Open(t.Context(), f.store, time.Now, func(*record.Session) *engine.Upstream { return f.up }); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(proxy.New(proxy.Config{Sessions: f.sessions, Log: f.store, Default: f.up}))
	t.Cleanup(srv.Close)
	f.url = srv.URL
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport, Timeout: time.Minute}
	return f
}

// reply is what a client got; cut says that its end was missing.
type reply struct {
	status int
	body   string
	cut    bool
}

// call makes a call in a session of its own, and returns what the client got and the one record of it.
func (f *front) call(path, body string) (reply, *record.Call) {
	f.t.Helper()
	f.n++
	id := fmt.Sprintf("s%d", f.n)
	if _, err := f.sessions.Create(context.Background(), &record.Session{ID: id, CaptureLevel: f.up.Profile().Level, Engine: f.up.Record()}, f.up); err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, f.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+id)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	var got reply
	res, err := f.client.Do(req)
	if err != nil {
		got.cut = true
	} else {
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		got = reply{res.StatusCode, string(text), err != nil}
	}
	calls := wait(f.t, f.store, id)
	if len(calls) != 1 {
		f.t.Fatalf("%d records of a call", len(calls))
	}
	return got, calls[0]
}

// taped is a fake engine's own answer to what the proxy sends for a request: every byte of it, head included.
func taped(t *testing.T, f *front, o fakeengine.Options, path, body string) (raw []byte, whole *record.Call, got reply) {
	t.Helper()
	fake, err := fakeengine.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	f.wire.does(func(c *net.TCPConn, r *http.Request, sent []byte) {
		if raw, err = ownAnswer(fake.URL, r, sent); err != nil {
			t.Error(err)
		}
		c.Write(raw) //nolint:errcheck // the client's side of it is looked at
	})
	got, whole = f.call(path, body)
	return raw, whole, got
}

// ownAnswer asks an engine what the proxy asks, and returns all bytes of what it says.
func ownAnswer(url string, r *http.Request, body []byte) ([]byte, error) {
	req, err := http.NewRequest(r.Method, url+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header, req.Close = r.Header.Clone(), true
	conn, err := net.Dial("tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return io.ReadAll(conn)
}
