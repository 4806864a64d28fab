package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// world is a proxy behind the server that faces clients for real, before an engine whose every byte is kept.
type world struct {
	t       testing.TB
	address string
	tap     *tap
	store   *store.Log
	session *session.Registry
	up      *engine.Upstream
}

type worldOptions struct {
	limits proxy.Limits
	config func(*proxy.Config)
	level  record.Level // text unless given
	engine http.Handler // the built-in engine unless given
	google bool         // the engine speaks Google's dialect
}

// newWorld starts it with session s1. At the end of the test everything must be given back.
func newWorld(t testing.TB, o worldOptions) *world {
	t.Helper()
	leaks, before := goleak.IgnoreCurrent(), openFiles(t)
	t.Cleanup(func() {
		goleak.VerifyNone(t, leaks)
		if after := openFiles(t); after > before {
			t.Errorf("%d file descriptors, %d before", after, before)
		}
	})
	if o.level == "" {
		o.level = record.LevelText
	}
	if o.engine == nil {
		o.engine = fakeengine.New(fakeengine.Options{})
	}
	w := &world{t: t, tap: newTap(t, o.engine)}
	var err error
	if w.store, err = store.Open(t.TempDir(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.must(w.store.Close()) })
	where, profile := engine.Config{URL: "http://" + w.tap.listener.Addr().String(), Key: "the-engines-key"},
		engine.Profile{Level: o.level, StreamCapture: true, Served: "fake-model", LogprobsMode: record.LogprobsProcessed}
	if o.google {
		where.Provider, profile.Native = "google", []record.Dialect{record.Google}
	}
	if w.up, err = engine.NewUpstream(where); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.up.Close)
	w.up.Assume(profile)
	if w.session, err = session.Open(t.Context(), w.store, time.Now, func(*record.Session) *engine.Upstream { return w.up }); err != nil {
		t.Fatal(err)
	}
	w.create("s1")
	config := proxy.Config{Sessions: w.session, Log: w.store, Default: w.up, MaxBody: 1 << 20}
	if o.config != nil {
		o.config(&config)
	}
	server := proxy.NewHTTPServer(proxy.New(config), o.limits, log.New(io.Discard, "", 0))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.address = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { // all clients have gone by now
		patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		w.must(server.Shutdown(patience))
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return w
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(id string) {
	w.t.Helper()
	_, err := w.session.Create(context.Background(), &record.Session{ID: id, CaptureLevel: w.up.Profile().Level, Engine: w.up.Record()}, w.up)
	w.must(err)
}

// dial connects as a client. Whatever waits for longer than a minute fails.
func (w *world) dial() *client {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.address)
	w.must(err)
	w.t.Cleanup(func() { conn.Close() })
	w.must(conn.SetDeadline(time.Now().Add(time.Minute)))
	return &client{TCPConn: conn.(*net.TCPConn), r: bufio.NewReader(conn), t: w.t}
}

// client is a connection whose every byte the test chooses.
type client struct {
	*net.TCPConn
	r    *bufio.Reader
	t    testing.TB
	good int // calls that were answered after another request
}

// send writes what it can: a server that has refused a request may close before it has read all of it.
func (c *client) send(text string) bool {
	_, err := io.WriteString(c.TCPConn, text)
	return err == nil
}

// answer is what a client got: a whole answer with its status, or status 0 for a connection that ended before one came.
type answer struct {
	status int
	header http.Header
	body   string
	cut    bool // the connection ended in the middle
	last   bool // the server announces that it closes the connection
}

func (c *client) answer() answer {
	c.t.Helper()
	return c.answerTo(http.MethodPost)
}

func (c *client) answerTo(method string) answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	for err == nil && resp.StatusCode < 200 {
		resp, err = http.ReadResponse(c.r, &http.Request{Method: method})
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Error("the server neither answers nor closes")
	}
	if err != nil {
		return answer{cut: true}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), cut: err != nil, last: resp.Close}
}

// closed waits until the server has ended the connection.
func (c *client) closed() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || len(rest) > 0 {
		c.t.Errorf("the server goes on, with %q", rest)
	}
}

// head is the beginning of a POST with session s1's key, without the empty line.
func head(path string, more ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s1\r\nContent-Type: application/json\r\n" + strings.Join(more, "")
}

// post is a whole request.
func post(path, body string, more ...string) string {
	return head(path, more...) + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
}

// ask sends one request on a connection of its own.
func (w *world) ask(request string) answer {
	w.t.Helper()
	c := w.dial()
	defer c.Close()
	c.send(request)
	return c.answer()
}

// works checks that the proxy still serves.
func (w *world) works() {
	w.t.Helper()
	if a := w.ask(post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, false, "hi"))); a.status != 200 {
		w.t.Errorf("a good call after it: %d %s", a.status, a.body)
	}
}

// calls waits until n calls of s1 are recorded, and checks that there are no more.
func (w *world) calls(n int) []*record.Call {
	w.t.Helper()
	return w.callsOf("s1", n)
}

func (w *world) callsOf(session string, n int) []*record.Call {
	w.t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		calls, err := w.store.Calls(context.Background(), session)
		w.must(err)
		if len(calls) >= n || time.Now().After(until) {
			if len(calls) != n {
				w.t.Fatalf("%d calls recorded, want %d", len(calls), n)
			}
			return calls
		}
	}
}

// tap stands before an engine and keeps every byte that is sent to it.
type tap struct {
	listener net.Listener
	engine   *http.Server

	mu    sync.Mutex
	bytes []*bytes.Buffer // per connection
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

func newTap(t testing.TB, h http.Handler) *tap {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	outer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{listener: outer, engine: &http.Server{Handler: h}, conns: map[net.Conn]bool{}}
	p.all.Go(func() { p.engine.Serve(inner) }) //nolint:errcheck // it ends with Close
	p.all.Go(func() { p.accept(inner.Addr().String()) })
	t.Cleanup(func() {
		outer.Close()
		p.engine.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	return p
}

func (p *tap) accept(engine string) {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", engine)
		if err != nil {
			from.Close()
			continue
		}
		kept := &bytes.Buffer{}
		p.mu.Lock()
		p.bytes = append(p.bytes, kept)
		p.conns[from], p.conns[to] = true, true
		p.mu.Unlock()
		p.all.Go(func() { p.copy(to, from, kept) })
		p.all.Go(func() { p.copy(from, to, nil) })
	}
}

// copy passes bytes on until one side ends, which ends the other.
func (p *tap) copy(to, from net.Conn, kept *bytes.Buffer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if kept != nil {
			p.mu.Lock()
			kept.Write(buf[:n])
			p.mu.Unlock()
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			to.Close()
			from.Close()
			p.mu.Lock()
			delete(p.conns, to)
			delete(p.conns, from)
			p.mu.Unlock()
			return
		}
	}
}

// seen is a request as the engine was sent it.
type seen struct {
	head *http.Request
	body string
}

// requests reads what the engine was sent as an engine would. Bytes that are no whole request are an error.
func (p *tap) requests(t testing.TB) (out []seen) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.bytes {
		for r := bufio.NewReader(bytes.NewReader(conn.Bytes())); ; {
			req, err := http.ReadRequest(r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("the engine was sent no HTTP: %v in %q", err, conn.String())
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Fatalf("the engine was sent part of a request: %v", err)
			}
			out = append(out, seen{req, string(body)})
		}
	}
	return out
}

// drained reads the whole requests that came since the last time, and forgets them.
func (p *tap) drained(t testing.TB) (out []seen) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.bytes {
		for conn.Len() > 0 {
			text := bytes.NewReader(conn.Bytes())
			r := bufio.NewReader(text)
			req, err := http.ReadRequest(r)
			var body []byte
			if err == nil {
				body, err = io.ReadAll(req.Body)
			}
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				break // the rest is on its way
			}
			if err != nil {
				t.Fatalf("the engine was sent no HTTP: %v in %q", err, conn.String())
			}
			conn.Next(conn.Len() - text.Len() - r.Buffered())
			out = append(out, seen{req, string(body)})
		}
	}
	return out
}
