package chaos

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Whatever bytes come on a connection, the engine gets whole requests with the engine's own host and key, to paths that are
// served, with a length that is that of their body; and never more of them than the client's bytes hold words for a method.
func FuzzWire(f *testing.F) {
	body := fmt.Sprintf(dialects[0].body, false, "mark-1-end")
	f.Add(post("/v1/chat/completions", body))
	f.Add(post("/v1/chat/completions?key=a&b=%0d", body, "Connection: X-A\r\nX-A: b\r\nExpect: 100-continue\r\n"))
	f.Add(head("/v1/embeddings", "Transfer-Encoding: chunked\r\n\r\n") + "5;x=y\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nX-T: 1\r\n\r\n" + post("/v1/chat/completions", body))
	f.Add(post("/v1beta/models/a%2f..%0d%0a:generateContent?alt=sse", `{"contents":[{"parts":[{"text":"x"}]}]}`))
	f.Add(post("/v1beta/models/m:countTokens", `{"contents":[{"parts":[{"text":"x"}]}]}`))
	f.Add(head("/v1/chat/completions", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n") + hidden)
	f.Add(strings.ReplaceAll(post("/v1/messages", fmt.Sprintf(dialects[2].body, false, "hi")), "\r\n", "\n"))
	f.Add("GET /v1/models HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nPOST /v1/chat/completions HTTP/1.0\r\n\r\n")
	f.Add(strings.Replace(post("/v1/embeddings", hidden), "POST", "GET", 1))
	f.Add(strings.Replace(post("/v1/score", "x"), "POST", "TRACE", 1))
	w := newWorld(f, worldOptions{google: true, engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/models/") {
			echo(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"totalTokens":7}`)
	})})
	engine := w.tap.listener.Addr().String()
	calls, most, got := 0, 0, 0
	f.Fuzz(func(t *testing.T, request string) {
		if len(request) > 64<<10 {
			return
		}
		if calls++; calls%500 == 0 { // a session's record must not grow without end
			now := *w
			now.t = t
			now.must(w.session.Delete(t.Context(), "s1"))
			now.create("s1")
		}
		conn, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// A client that waits for its answers, and for the end of the connection, which it asks for with a request of its own.
		// Where the bytes before that swallow it, it does not wait long: an engine's request that comes late is looked at with
		// the next ones. The server may also close before it has read all.
		if _, err := io.WriteString(conn, request+"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err == nil {
			for buf := make([]byte, 4096); err == nil; _, err = conn.Read(buf) {
				if failure := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); failure != nil {
					t.Fatal(failure)
				}
			}
		}
		sent := w.tap.drained(t)
		most, got = most+3*strings.Count(request, "HTTP/1"), got+len(sent) // a count by two ways
		if got > most {
			t.Fatalf("%d requests for %d", got, most)
		}
		for _, r := range sent {
			h := r.head.Header
			path := r.head.URL.EscapedPath()
			rest, model := strings.CutPrefix(path, "/v1beta/models/")
			if model && !strings.Contains(rest, "/") || path == "/v1beta/openai/chat/completions" || path == "/v1beta/openai/completions" || path == "/v1beta/embeddings" || path == "/tokenize" ||
				path == "/v1beta/moderations" || path == "/v1beta/rerank" || path == "/v1beta/score" {
				path = ""
			}
			if path != "" || r.head.Host != engine || h.Get("Authorization") != "" && h.Get("Authorization") != "Bearer the-engines-key" ||
				h.Get("Authorization") == "" && h.Get("X-Goog-Api-Key") != "the-engines-key" || len(h["Content-Length"]) > 1 || len(h["Transfer-Encoding"])+len(r.head.TransferEncoding) > 0 || r.head.Trailer != nil {
				t.Fatalf("%q became %s %s %v %q", request, r.head.Method, r.head.URL, h, r.body)
			}
		}
	})
}
