package chaos

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// unwanted are requests, without their framing, that are answered before a look at their body.
var unwanted = map[string]struct {
	head   string
	status int
}{
	"too large":            {head("/v1/chat/completions"), http.StatusRequestEntityTooLarge},
	"too large to count":   {head("/v1/messages/count_tokens"), http.StatusRequestEntityTooLarge},
	"too large to pass on": {head("/v1/embeddings"), http.StatusRequestEntityTooLarge},
	"no session":           {strings.Replace(head("/v1/messages"), "Bearer s1", "Bearer nobody", 1), http.StatusUnauthorized},
	"no such path":         {head("/v1/nowhere"), http.StatusNotFound},
	"another method":       {strings.Replace(head("/v1/responses"), "POST", "PUT", 1), http.StatusMethodNotAllowed},
}

// framed gives a head its body, in one piece or in chunks.
func framed(head, body string, chunked bool) string {
	if !chunked {
		return head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	}
	var b bytes.Buffer
	b.WriteString(head + "Transfer-Encoding: chunked\r\n\r\n")
	for piece := range slices.Chunk([]byte(body), 32<<10) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

// A client that sends all of its body before it reads gets its refusal whole, whatever it says of the connection: never a
// reset that looks like a broken network.
func TestRefusalsBeforeTheBody(t *testing.T) {
	w := newWorld(t, worldOptions{})
	large := strings.Repeat("x", 8<<20) // more than all buffers between the two
	for name, c := range unwanted {
		for _, connection := range []string{"keep-alive", "close"} {
			for _, chunked := range []bool{false, true} {
				conn := w.dial()
				if !conn.send(framed(c.head+"Connection: "+connection+"\r\n", large, chunked)) {
					t.Errorf("%s, %s, chunked %t: the body was not taken", name, connection, chunked)
				}
				if a := conn.answer(); a.status != c.status || a.cut || a.body == "" {
					t.Errorf("%s, %s, chunked %t: %d, cut %t: %s", name, connection, chunked, a.status, a.cut, a.body)
				} else if !a.last {
					conn.send(post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, false, "hi")))
					if a := conn.answer(); a.status != http.StatusOK {
						t.Errorf("%s, chunked %t: the next request on this connection: %d %s", name, chunked, a.status, a.body)
					}
				} else {
					conn.closed()
				}
				conn.Close()
			}
		}
	}
	w.works()
}

// The refusal does not wait for the body, and the connection does not wait for ever.
func TestRefusedClientsThatGoOn(t *testing.T) {
	w := newWorld(t, worldOptions{limits: brief})
	var all sync.WaitGroup
	for name, c := range unwanted {
		for _, connection := range []string{"keep-alive", "close"} {
			conn := w.dial()
			conn.send(c.head + "Connection: " + connection + "\r\nContent-Length: 100000000\r\n\r\n{")
			all.Go(func() {
				if a := conn.answer(); a.status != c.status || a.cut {
					t.Errorf("%s, %s: %d, cut %t: %s", name, connection, a.status, a.cut, a.body)
				}
				stop := make(chan struct{})
				var sender sync.WaitGroup
				sender.Go(func() { trickle(conn, stop, false) })
				began := time.Now()
				conn.closed()
				close(stop)
				sender.Wait()
				if waited := time.Since(began); waited > 30*time.Second {
					t.Errorf("%s, %s: held for %s", name, connection, waited)
				}
			})
		}
	}
	all.Wait()
	w.works()
}

// What follows a body that cannot be read, or was not asked for, is no request.
func TestNoRequestInARefusedBody(t *testing.T) {
	w := newWorld(t, worldOptions{limits: brief})
	inside := post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, false, "hi"))
	for name, request := range map[string]string{
		"a chunk of no length":     head("/v1/nowhere", "Transfer-Encoding: chunked\r\n\r\n") + "zz\r\n" + inside,
		"a chunk that is too long": head("/v1/chat/completions", "Transfer-Encoding: chunked\r\n\r\n") + "1\r\n{}\r\n" + inside,
		"not asked for":            head("/v1/nowhere", "Expect: 100-continue\r\n", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(inside))) + inside,
		"not asked for, large":     head("/v1/chat/completions", "Expect: 100-continue\r\nContent-Length: 100000000\r\n\r\n") + inside,
	} {
		conn := w.dial()
		conn.send(request)
		if a := conn.answer(); a.status < 400 || a.status > 499 || a.cut {
			t.Errorf("%s: %d, cut %t: %s", name, a.status, a.cut, a.body)
		}
		conn.closed()
	}
	for _, r := range w.tap.requests(t) {
		t.Errorf("the engine got %s", r.body)
	}
	w.works()
}
