package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy"
)

// brief are limits for a test, long enough for a client that sends all it has at once on a busy machine.
var brief = proxy.Limits{Head: time.Second, Pause: time.Second, Grace: 2 * time.Second, Linger: time.Second}

// A client that sends its request at a snail's pace is refused in its dialect, and recorded where its call would be.
func TestSlowBodies(t *testing.T) {
	w := newWorld(t, worldOptions{limits: brief})
	var all sync.WaitGroup
	for n, c := range []struct {
		request, shape    string
		trickle, recorded bool
	}{
		{head("/v1/chat/completions", "Content-Length: 100\r\n\r\n"), `"type":"invalid_request_error"`, false, true},
		{head("/v1/responses", "Content-Length: 100\r\n\r\n") + `{"model":`, `"type":"invalid_request_error"`, false, true},
		{head("/v1/messages", "Content-Length: 100000\r\n\r\n") + `{"model":"`, `{"type":"error"`, true, true},
		{head("/v1beta/models/m:generateContent", "Transfer-Encoding: chunked\r\n\r\n") + "1\r\n{\r\n", `"status":"INVALID_ARGUMENT"`, true, true},
		{head("/v1/chat/completions", "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"), `"type":"invalid_request_error"`, false, true},
		{head("/v1/messages/count_tokens", "Content-Length: 100\r\n\r\n"), `{"type":"error"`, false, false},
		{head("/v1/embeddings", "Content-Length: 100\r\n\r\n"), `"type":"invalid_request_error"`, true, false},
	} {
		id := fmt.Sprintf("slow-%d", n)
		w.create(id)
		conn := w.dial()
		conn.send(strings.Replace(c.request, "Bearer s1", "Bearer "+id, 1))
		stop := make(chan struct{})
		if c.trickle {
			all.Go(func() { trickle(conn, stop, strings.Contains(c.request, "chunked")) })
		}
		all.Go(func() {
			defer close(stop)
			if a := conn.answer(); a.status != http.StatusRequestTimeout || !strings.Contains(a.body, c.shape) || !a.last {
				t.Errorf("%q: %d, closes %t: %s", c.request, a.status, a.last, a.body)
			}
		})
		if c.recorded {
			all.Go(func() {
				call := w.callsOf(id, 1)[0]
				if call.Outcome != record.Rejected || call.Status != http.StatusRequestTimeout || !strings.Contains(call.Detail, "too slowly") || call.Forwarded || call.BodyHash != "" {
					t.Errorf("%q: recorded %s %d %q, forwarded %t", c.request, call.Outcome, call.Status, call.Detail, call.Forwarded)
				}
			})
		}
	}
	all.Wait()
	if len(w.tap.requests(t)) > 0 {
		t.Error("something reached the engine")
	}
	w.works()
}

// trickle sends a byte within every pause that the limits allow.
func trickle(c *client, stop <-chan struct{}, chunked bool) {
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
		}
		piece := "x"
		if chunked {
			piece = "1\r\nx\r\n"
		}
		if !c.send(piece) {
			tick.Stop()
			return
		}
	}
}

// Whoever has no session cannot hold a connection with a body that never comes either.
func TestSlowBodiesOfStrangers(t *testing.T) {
	w := newWorld(t, worldOptions{limits: brief})
	var all sync.WaitGroup
	for _, request := range []string{
		strings.Replace(head("/v1/chat/completions", "Content-Length: 100\r\n\r\n"), "Bearer s1", "Bearer nobody", 1),
		head("/v1/nowhere", "Content-Length: 100\r\n\r\n"),
		strings.Replace(head("/v1/models", "Content-Length: 100\r\n\r\n"), "POST", "GET", 1),
		"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nX-Slow: ",
		"",
	} {
		c := w.dial()
		c.send(request)
		all.Go(func() {
			c.answer()
			c.closed()
		})
	}
	all.Wait()
	w.calls(0)
	w.works()
}

// The limits are on the request: an answer may take as long as it likes afterwards, on a connection that is used again, and
// the proxy still notices when its client hangs up.
func TestLimitsEndWithTheRequest(t *testing.T) {
	long := 3 * brief.Pause
	w := newWorld(t, worldOptions{limits: brief, engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}`+"\n\n") //nolint:errcheck // the proxy may be gone
		w.(http.Flusher).Flush()
		select {
		case <-time.After(long):
		case <-r.Context().Done():
			return
		}
		io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n") //nolint:errcheck // the proxy may be gone
	})})
	body := fmt.Sprintf(dialects[0].body, true, "hi")
	c := w.dial()
	for n := 1; n <= 2; n++ {
		if n == 1 {
			c.send(post("/v1/chat/completions", body))
		} else { // in pieces
			c.send(head("/v1/chat/completions", "Transfer-Encoding: chunked\r\n\r\n"))
			for _, piece := range []string{body[:10], body[10:30], body[30:]} {
				c.send(fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece))
			}
			c.send("0\r\n\r\n")
		}
		if a := c.answer(); a.status != 200 || a.cut || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Fatalf("call %d: %d, cut %t, %s", n, a.status, a.cut, a.body)
		}
	}
	c.send(post("/v1/chat/completions", body))
	if _, err := c.r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.Close()
	calls := w.calls(3)
	if calls[0].Outcome != record.Complete || calls[1].Outcome != record.Complete || calls[2].Outcome != record.ClientGone {
		t.Errorf("%s, %s, %s", calls[0].Outcome, calls[1].Outcome, calls[2].Outcome)
	}
}

// A client that asks for much and reads nothing is dropped after the idle limit, whatever it asked for.
func TestUnreadAnswers(t *testing.T) {
	ended := make(chan error, 1)
	w := newWorld(t, worldOptions{config: func(c *proxy.Config) {
		c.Idle = 200 * time.Millisecond
		c.Control = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, 1<<20)
			for {
				if _, err := w.Write(piece); err != nil {
					ended <- err
					return
				}
			}
		})
	}})
	w.dial().send("GET /sessions/x/rollout HTTP/1.1\r\nHost: h\r\n\r\n")
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// A length that is announced takes no memory: the bytes do.
func TestAnnouncedBodies(t *testing.T) {
	const clients, announced = 20, 64 << 20
	w := newWorld(t, worldOptions{config: func(c *proxy.Config) { c.MaxBody = announced }})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var conns []*client
	for range clients {
		c := w.dial()
		c.send(head("/v1/chat/completions", fmt.Sprintf("Content-Length: %d\r\n\r\n{", announced)))
		conns = append(conns, c)
	}
	for _, c := range conns {
		w.must(c.CloseWrite())
		if a := c.answer(); a.status != http.StatusBadRequest {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > clients*4 {
		t.Errorf("%d MiB for %d bytes", used, clients)
	}
	w.calls(clients)
}
