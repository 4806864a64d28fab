package chaos

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy"
)

// patientEngine begins an answer and goes on only when told to. It reports when a call has come, and when it was given up.
type patientEngine struct {
	came, stopped chan struct{}
}

func (p *patientEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.Contains(string(body), "mark-0-end") { // the call that comes after
		echo(w, withBody(r, body))
		return
	}
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}`+"\n\n")
		w.(http.Flusher).Flush()
	}
	p.came <- struct{}{}
	<-r.Context().Done()
	p.stopped <- struct{}{}
}

func withBody(r *http.Request, body []byte) *http.Request {
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return r
}

// A client hangs up at every stage of a call, with a good-bye or without. The engine stops, what was begun is recorded once and
// truly, and nothing stays behind (the world looks after goroutines and descriptors).
func TestHangUps(t *testing.T) {
	body := func(d int, stream bool) string { return fmt.Sprintf(dialects[d].body, stream, "hi") }
	long := strings.Repeat("x", 100000)
	for _, c := range []struct {
		name, request string
		reached       bool           // the engine
		read          bool           // the client reads the beginning of its answer
		outcome       record.Outcome // "" for a call that is not recorded
	}{
		{name: "at once"},
		{name: "in the request line", request: "POST /v1/chat"},
		{name: "in the head", request: head("/v1/chat/completions")},
		{name: "before the body", request: head("/v1/chat/completions", "Content-Length: 100\r\n\r\n"), outcome: record.ClientGone},
		{name: "in the body", request: head("/v1/messages", "Content-Length: 200000\r\n\r\n") + `{"model":"` + long, outcome: record.ClientGone},
		{name: "between chunks", request: head("/v1/responses", "Transfer-Encoding: chunked\r\n\r\n") + "4\r\n{\"a\"\r\n", outcome: record.ClientGone},
		{name: "in a chunk", request: head("/v1/responses", "Transfer-Encoding: chunked\r\n\r\n") + "ff\r\n{\"a\"", outcome: record.ClientGone},
		{name: "in a count", request: head("/v1/messages/count_tokens", "Content-Length: 100\r\n\r\n") + "{"},
		{name: "while the engine thinks", request: post("/v1/chat/completions", body(0, false)), reached: true, outcome: record.ClientGone},
		{name: "while the engine thinks, translated", request: post("/v1/messages", body(2, false)), reached: true, outcome: record.ClientGone},
		{name: "before the first event", request: post("/v1/chat/completions", body(0, true)), reached: true, outcome: record.ClientGone},
		{name: "behind the first event", request: post("/v1/chat/completions", body(0, true)), reached: true, read: true, outcome: record.ClientGone},
		{name: "behind the first event, translated", request: post("/v1/responses", body(1, true)), reached: true, read: true, outcome: record.ClientGone},
		{name: "with another call sent already", request: post("/v1/chat/completions", body(0, true)) + post("/v1/chat/completions", body(0, true)), reached: true, read: true, outcome: record.ClientGone},
	} {
		for _, abruptly := range []bool{false, true} {
			name := fmt.Sprintf("%s, abruptly %t", c.name, abruptly)
			t.Run(name, func(t *testing.T) {
				engine := &patientEngine{make(chan struct{}, 4), make(chan struct{}, 4)}
				w := newWorld(t, worldOptions{engine: engine})
				conn := w.dial()
				conn.send(c.request)
				if c.reached {
					<-engine.came
				}
				if c.read {
					if _, err := conn.r.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				if abruptly {
					w.must(conn.SetLinger(0))
				}
				conn.Close()
				if c.reached {
					select {
					case <-engine.stopped:
					case <-time.After(time.Minute):
						t.Fatal("the engine went on generating")
					}
				}
				recorded := 0
				if c.outcome != "" {
					recorded = 1
					if call := w.calls(1)[0]; call.Outcome != c.outcome || call.Forwarded != c.reached || (call.BodyHash != "") != c.reached {
						t.Errorf("recorded as %s: %s, forwarded %t", call.Outcome, call.Detail, call.Forwarded)
					}
				}
				if a := w.ask(post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, false, "mark-0-end"))); a.status != 200 || !strings.Contains(a.body, "mark-0-end") {
					t.Errorf("the next call: %d %s", a.status, a.body)
				}
				w.calls(recorded + 1)
			})
		}
	}
}

// A client that stops reading a stream holds back the engine, not the proxy's memory: what the engine can get rid of is what
// lies in sockets. After the idle limit the client is dropped, the engine stopped, the call recorded.
func TestClientsThatStopReading(t *testing.T) {
	const clients, event = 8, 32 << 10
	var sent atomic.Int64
	stopped := make(chan struct{}, clients)
	w := newWorld(t, worldOptions{
		config: func(c *proxy.Config) { c.Idle = 500 * time.Millisecond },
		engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { stopped <- struct{}{} }()
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			line := `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", event) + `"},"finish_reason":null}]}` + "\n\n"
			for {
				n, err := io.WriteString(w, line)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		})})
	var all sync.WaitGroup
	for n := range clients {
		id, d := fmt.Sprintf("deaf-%d", n), dialects[n%len(dialects)]
		w.create(id)
		conn := w.dial()
		w.must(conn.SetReadBuffer(4 << 10))
		conn.send(strings.Replace(post(pathOf(d.path, true), fmt.Sprintf(d.body, true, "hi")), "Bearer s1", "Bearer "+id, 1))
		all.Go(func() {
			if call := w.callsOf(id, 1)[0]; call.Outcome != record.ClientGone || call.Status != 200 || !call.Forwarded || len(call.Choices) != 1 {
				t.Errorf("%s: recorded as %s: %s, status %d, %d choices", id, call.Outcome, call.Detail, call.Status, len(call.Choices))
			}
		})
	}
	all.Wait()
	for range clients {
		<-stopped
	}
	// Loopback sockets hold some megabytes each way; an engine without a brake would have sent gigabytes.
	if per := sent.Load() / clients >> 20; per > 40 {
		t.Errorf("the engine got rid of %d MiB a client that reads nothing", per)
	}
}
