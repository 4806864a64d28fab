package chaos

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"captureproxy/internal/record"
)

// hidden is a request inside of another. It has no key, so that the proxy itself never forwards it.
const hidden = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Smuggled: 1\r\nContent-Length: 12\r\n\r\n{\"smuggled\":"

// Requests that two readers could take for different ones are refused, or read in one way and sent on as one request with a
// head of our own. What is hidden in them never reaches the engine, nor the next call on the connection.
func TestSmuggling(t *testing.T) {
	const path = "/v1/chat/completions"
	body := fmt.Sprintf(dialects[0].body, false, "mark-1-end")
	n := len(body)
	length := fmt.Sprintf("Content-Length: %d\r\n", n)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, body)
	w := newWorld(t, worldOptions{engine: http.HandlerFunc(echo)})
	for _, c := range []struct {
		name, request string
		status        int // 0 for refused in whatever way
		sent          int // how many requests the engine gets
	}{
		{"well formed", head(path, length, "\r\n") + body, 200, 1},
		{"in chunks", head(path, "Transfer-Encoding: chunked\r\n\r\n") + chunked, 200, 1},
		{"the same length twice", head(path, length, length, "\r\n") + body, 200, 1},
		{"two lengths", head(path, length, fmt.Sprintf("Content-Length: %d\r\n", n+5), "\r\n") + body, 0, 0},
		{"two lengths in one", head(path, fmt.Sprintf("Content-Length: %d, %d\r\n", n, n+5), "\r\n") + body, 0, 0},
		{"length with a sign", head(path, fmt.Sprintf("Content-Length: +%d\r\n\r\n", n)) + body, 0, 0},
		{"length below zero", head(path, "Content-Length: -1\r\n\r\n") + body, 0, 0},
		{"length in hex", head(path, "Content-Length: 0x10\r\n\r\n") + body, 0, 0},
		{"length beyond 64 bits", head(path, "Content-Length: 99999999999999999999\r\n\r\n") + body, 0, 0},
		{"length too short", head(path, fmt.Sprintf("Content-Length: %d\r\n\r\n", n-1)) + body + hidden, 0, 0},
		{"length and chunks, chunks end first", head(path, fmt.Sprintf("Content-Length: %d\r\n", len(chunked)+len(hidden)), "Transfer-Encoding: chunked\r\n\r\n") + chunked + hidden, 200, 1},
		{"length and chunks, length ends first", head(path, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n") + chunked, 200, 1},
		{"an unknown encoding", head(path, "Transfer-Encoding: xchunked\r\n\r\n") + chunked, 0, 0},
		{"two encodings", head(path, "Transfer-Encoding: chunked, identity\r\n\r\n") + chunked, 0, 0},
		{"two encodings in two headers", head(path, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n") + chunked, 0, 0},
		{"an encoding behind a tab", head(path, "Transfer-Encoding:\tchunked\r\n\r\n") + chunked, 200, 1},
		{"a folded encoding", head(path, length, "Transfer-Encoding:\r\n chunked\r\n\r\n") + chunked, 200, 1},
		{"an encoding under another name", head(path, length, "Transfer_Encoding: chunked\r\n\r\n") + body, 200, 1},
		{"space before the colon", head(path, fmt.Sprintf("Content-Length : %d\r\n\r\n", n)) + body, 0, 0},
		{"a folded length", head(path, fmt.Sprintf("Content-Length: %d\r\n 0\r\n\r\n", n)) + body, 0, 0},
		{"a head that begins with a fold", "POST " + path + " HTTP/1.1\r\n X-A: b\r\nHost: h\r\nAuthorization: Bearer s1\r\n" + length + "\r\n" + body, 0, 0},
		{"a bare line feed", strings.ReplaceAll(head(path, length, "\r\n"), "\r\n", "\n") + body, 200, 1},
		{"a bare carriage return", head(path, "X-A: b\rX-Smuggled: 1\r\n", length, "\r\n") + body, 0, 0},
		{"NUL in a header", head(path, "X-A: b\x00c\r\n", length, "\r\n") + body, 0, 0},
		{"a header without a name", head(path, ": 1\r\n", length, "\r\n") + body, 0, 0},
		{"a header without a colon", head(path, "X-Smuggled\r\n", length, "\r\n") + body, 0, 0},
		{"chunks of no hex length", head(path, "Transfer-Encoding: chunked\r\n\r\n") + "zz\r\n" + hidden, 0, 0},
		{"a chunk beyond 64 bits", head(path, "Transfer-Encoding: chunked\r\n\r\n") + "fffffffffffffffff\r\n" + hidden, 0, 0},
		{"a chunk longer than it says", head(path, "Transfer-Encoding: chunked\r\n\r\n") + fmt.Sprintf("%x\r\n%sX\r\n0\r\n\r\n", n, body), 0, 0},
		{"a chunk's endless extension", head(path, "Transfer-Encoding: chunked\r\n\r\n") + fmt.Sprintf("%x;a=%s\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", 1<<20), body), 0, 0},
		{"trailers", head(path, "Transfer-Encoding: chunked\r\nTrailer: X-Smuggled, Authorization\r\n\r\n") +
			fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Smuggled: 1\r\nAuthorization: Bearer smuggled\r\nContent-Length: 5\r\n\r\n", n, body), 200, 1},
		{"endless trailers", head(path, "Transfer-Encoding: chunked\r\n\r\n") + fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", n, body, strings.Repeat("X-Smuggled: "+strings.Repeat("x", 4000)+"\r\n", 400)), 0, 0},
		{"a header flood", head(path, strings.Repeat("X-Flood: "+strings.Repeat("x", 4000)+"\r\n", 400), length, "\r\n") + body, 431, 0},
		{"one endless header", head(path, "X-Flood: "+strings.Repeat("x", 2<<20)+"\r\n", length, "\r\n") + body, 431, 0},
		{"an endless target", strings.Replace(head(path, length, "\r\n"), path, path+"?"+strings.Repeat("x", 2<<20), 1) + body, 431, 0},
		{"headers for our connection only", head(path, "Connection: keep-alive, X-Smuggled, HTTP2-Settings\r\nX-Smuggled: 1\r\nHTTP2-Settings: AAMAAABk\r\nTE: trailers\r\n", length, "\r\n") + body, 200, 1},
		{"h2c", head(path, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", length, "\r\n") + body, 200, 1},
		{"HTTP/2 without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden, 0, 0},
		{"a WebSocket", strings.Replace(head("/v1/responses", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"), "POST", "GET", 1) + hidden, 426, 0},
		{"a WebSocket on a call", head(path, "Connection: Upgrade\r\nUpgrade: websocket\r\n", length, "\r\n") + body, 200, 1},
		{"another host in the target", strings.Replace(head(path, length, "\r\n"), " /v1", " http://smuggled.test/v1", 1) + body, 200, 1},
		{"a host as the target", strings.Replace(head(path, length, "\r\n"), path, "smuggled.test:80", 1) + body, 0, 0},
		{"a tunnel", strings.Replace(head(path, "\r\n"), "POST "+path, "CONNECT smuggled.test:443", 1) + hidden, 0, 0},
		{"all of it", strings.Replace(head(path, length, "\r\n"), path, "*", 1) + body, 0, 0},
		{"a line break in the path", post("/v1/models/m%20HTTP/1.1%0d%0aX-Smuggled:%201%0d%0a:generateContent", `{"contents":[{"role":"user","parts":[{"text":"mark-1-end"}]}]}`), 200, 1},
		{"a space in the target", strings.Replace(head(path, length, "\r\n"), path, path+"?a b", 1) + body, 0, 0},
		{"a line break in the query", strings.Replace(head(path, length, "\r\n"), path, path+"?a=%0d%0aX-Smuggled:%201&key=%0d%0a", 1) + body, 200, 1},
		{"dots in the path", strings.Replace(head(path, length, "\r\n"), path, "/v1/../v1/embeddings/../smuggled", 1) + body, 404, 0},
		{"no host", strings.Replace(head(path, length, "\r\n"), "Host: h\r\n", "", 1) + body, 0, 0},
		{"two hosts", head(path, "Host: smuggled.test\r\n", length, "\r\n") + body, 0, 0},
		{"a host that is none", strings.Replace(head(path, length, "\r\n"), "Host: h", "Host: a b/smuggled", 1) + body, 0, 0},
		{"another method by header", head(path, "X-HTTP-Method-Override: DELETE\r\n", length, "\r\n") + body, 200, 1},
		{"a method in small letters", strings.Replace(head(path, length, "\r\n"), "POST", "post", 1) + body, 405, 0},
		{"no version", "POST " + path + "\r\nHost: h\r\n" + length + "\r\n" + body, 0, 0},
		{"an unknown version", strings.Replace(head(path, length, "\r\n"), "HTTP/1.1", "HTTP/3.7", 1) + body, 0, 0},
		{"HTTP/1.0", strings.Replace(head(path, length, "\r\n"), "HTTP/1.1", "HTTP/1.0", 1) + body, 200, 1},
		{"chunks in HTTP/1.0", strings.Replace(head(path, length, "Transfer-Encoding: chunked\r\n\r\n"), "HTTP/1.1", "HTTP/1.0", 1) + chunked, 0, 0},
		{"asks before it sends", head(path, length, "Expect: 100-continue\r\n\r\n") + body, 200, 1},
		{"expects what nobody does", head(path, length, "Expect: smuggled\r\n\r\n") + body, 417, 0},
		{"a body on GET", strings.Replace(head("/v1/models", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(hidden))), "POST", "GET", 1) + hidden, 200, 0},
		{"a body on HEAD", strings.Replace(head("/", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(hidden))), "POST", "HEAD", 1) + hidden, 200, 0},
		{"a refused body", strings.Replace(head(path, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(hidden))), "Bearer s1", "Bearer nobody", 1) + hidden, 401, 0},
	} {
		before := len(w.tap.requests(t))
		conn := w.dial()
		conn.send(c.request)
		a := conn.answerTo(strings.Fields(c.request)[0])
		if c.status == 0 && !a.cut && a.status < 400 || c.status != 0 && a.status != c.status {
			t.Errorf("%s: %d, cut %t: %s", c.name, a.status, a.cut, a.body)
		}
		if a.status == 200 && c.sent == 1 && !strings.Contains(a.body, "mark-1-end") {
			t.Errorf("%s: answered with %s", c.name, a.body)
		}
		// What is left on the connection is no part of this call: it is refused by itself, or the next call follows.
		if !a.cut && !a.last {
			conn.next(c.name)
			c.sent += conn.good
		}
		conn.Close()
		if got := w.tap.requests(t)[before:]; len(got) != c.sent {
			t.Errorf("%s: the engine got %d requests, want %d: %v", c.name, len(got), c.sent, got)
		}
	}
	for _, r := range w.tap.requests(t) {
		smuggled := fmt.Sprint(r.head.Header, r.head.Host, r.head.Trailer, r.head.URL.Path, r.body)
		if r.head.Method != "POST" || r.head.URL.Path != path || strings.Contains(strings.ToLower(smuggled), "smuggled") || r.head.Header.Get("Authorization") != "Bearer the-engines-key" {
			t.Errorf("the engine got %s %s %v %s", r.head.Method, r.head.URL, r.head.Header, r.body)
		}
	}
	w.works()
}

// next sends a good call on a connection that was left open, whose answer must be its own.
func (c *client) next(name string) {
	c.t.Helper()
	c.send(post("/v1/chat/completions", fmt.Sprintf(dialects[0].body, false, "mark-2-end")))
	for a := c.answer(); ; a = c.answer() {
		switch {
		case a.status == 200 && strings.Contains(a.body, "mark-2-end") && !mixed(a.body, "mark-2-end"):
			c.good = 1
			return
		case a.cut || a.last:
			return
		case a.status < 400: // else the rest of the request before it, refused
			c.t.Errorf("%s: the next call was answered with %d %s", name, a.status, a.body)
			return
		}
	}
}

// A relayed route takes the methods of an API, and whatever the method, what is in a body stays in the body.
func TestRelayedMethods(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, worldOptions{engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if _, err := io.Copy(w, r.Body); err != nil {
			return
		}
	})})
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"} {
		taken := strings.Contains(" GET HEAD POST PUT PATCH DELETE ", " "+method+" ")
		for _, body := range []string{"", hidden, "{}"} {
			before := len(w.tap.requests(t))
			conn := w.dial()
			conn.send(strings.Replace(post("/v1/embeddings", body), "POST", method, 1))
			if a := conn.answerTo(method); (a.status == 200) != taken || !taken && a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s with %q: %d %s", method, body, a.status, a.body)
			}
			conn.Close()
			got := w.tap.requests(t)[before:]
			if taken && (len(got) != 1 || got[0].head.Method != method || got[0].body != body) || !taken && len(got) > 0 {
				t.Errorf("%s with %q: the engine got %v", method, body, got)
			}
		}
	}
	if n := len(w.tap.requests(t)); int(asked.Load()) != n {
		t.Errorf("the engine read %d requests, %d were sent", asked.Load(), n)
	}
}

// Requests in one piece on one connection are answered in their order, each with its own answer.
func TestPipelining(t *testing.T) {
	w := newWorld(t, worldOptions{engine: http.HandlerFunc(echo)})
	conn := w.dial()
	var all strings.Builder
	const calls = 30
	for n := range calls {
		d := dialects[n%len(dialects)]
		all.WriteString(post(pathOf(d.path, n%2 == 0), fmt.Sprintf(d.body, n%2 == 0, fmt.Sprintf("mark-%d-end", n))))
	}
	all.WriteString(post("/v1/chat/completions", `{"broken`))
	conn.send(all.String())
	for n := range calls {
		marker := fmt.Sprintf("mark-%d-end", n)
		if a := conn.answer(); a.status != 200 || a.cut || !strings.Contains(a.body, marker) || mixed(a.body, marker) {
			t.Errorf("answer %d: %d, cut %t: %s", n, a.status, a.cut, a.body)
		}
	}
	if a := conn.answer(); a.status != 400 {
		t.Errorf("the broken one: %d %s", a.status, a.body)
	}
	for n, call := range w.calls(calls + 1) {
		if marker := fmt.Sprintf("mark-%d-end", n); n < calls && (call.Outcome != record.Complete || !strings.Contains(string(call.Choices[0].Message), marker)) {
			t.Errorf("call %d is recorded as %s: %s", n, call.Outcome, call.Choices[0].Message)
		}
	}
}

// Google's dialect has the model in the path. Whatever is in it, the engine gets one request, for a method of a model.
func TestModelsInPaths(t *testing.T) {
	w := newWorld(t, worldOptions{google: true, engine: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"totalTokens":7}`)
	})})
	const body = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	models := []string{
		"gemini-2.5-pro", "m%20HTTP/1.1%0d%0aX-Smuggled:%201%0d%0a%0d%0aDELETE%20/v1beta/files/x", "..%2f..%2fsmuggled", "../../smuggled", "a/../..", "x%3fsmuggled=1", "x%23y",
		"a%00b", "%c3%a9", "a;b", "models/a:b",
	}
	for _, model := range models {
		for _, method := range []string{"generateContent", "countTokens"} {
			before := len(w.tap.requests(t))
			conn := w.dial()
			conn.send(post("/v1beta/models/"+model+":"+method, body))
			a := conn.answer()
			conn.Close()
			got := w.tap.requests(t)[before:]
			if a.status >= 400 && len(got) == 0 {
				continue
			}
			if len(got) != 1 {
				t.Errorf("%s %s: %d requests", model, method, len(got))
				continue
			}
			target := got[0].head.URL
			rest, isModel := strings.CutPrefix(target.EscapedPath(), "/v1beta/models/")
			name, ok := strings.CutSuffix(rest, ":"+method)
			if !isModel || !ok || strings.Contains(name, "/") || target.RawQuery != "" || got[0].head.Header.Get("X-Smuggled") != "" {
				t.Errorf("%s %s: the engine was asked for %s with %v", model, method, target, got[0].head.Header)
			}
		}
	}
	if got := w.tap.requests(t); got[0].head.URL.Path != "/v1beta/models/gemini-2.5-pro:generateContent" {
		t.Errorf("a model of good will became %s", got[0].head.URL)
	}
}
