package chaos

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"captureproxy/internal/record"
)

const (
	okJSON  = `{"id":"c","object":"chat.completion","created":1,"model":"fake-model","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"logprobs":{"content":[{"token":"h","logprob":-0.5},{"token":"i","logprob":-0.25}]},"finish_reason":"stop","token_ids":[7,8]}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5},"prompt_token_ids":[1,2,3]}`
	first   = `data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"prompt_token_ids":[1,2,3]}` + "\n\n"
	middle  = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"},"logprobs":{"content":[{"token":"h","logprob":-0.5},{"token":"i","logprob":-0.25}]},"finish_reason":null,"token_ids":[7,8]}]}` + "\n\n"
	last    = `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	counted = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}` + "\n\n"
	done    = "data: [DONE]\n\n"
	events  = first + middle + last + counted + done
)

func jsonAnswer(body string, headers ...string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n" + strings.Join(headers, "") + "\r\n" + body
}

func eventAnswer(body string, headers ...string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n" + strings.Join(headers, "") + "\r\n" + body
}

func gzipped(t *testing.T, text io.Reader) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return string(w.EncodeAll([]byte(text), nil))
}

// whatever is a wrong answer of an engine, and what is to become of the call.
type whatever struct {
	name, says string
	outcomes   []record.Outcome // any of these
	status     int              // of the client's answer
}

const aBomb = "a gzip bomb"

func one(o ...record.Outcome) []record.Outcome { return o }

// Answers of engines, or of what stands before them, that no engine should give.
func TestOddAnswers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := descriptors(t)
	t.Run("", func(t *testing.T) { oddAnswers(t) })
	if after := descriptors(t); after > before {
		t.Errorf("%d file descriptors, %d before", after, before)
	}
}

func oddAnswers(t *testing.T) {
	bomb := gzipped(t, io.LimitReader(zeros{}, 260<<20))
	bad, whole, partial := one(record.UpstreamError), one(record.Complete), one(record.IncompleteCapture)
	plain := []whatever{
		{"whole", jsonAnswer(okJSON), whole, 200},
		{"HTTP/1.0, ended by its end", "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + okJSON, whole, 200},
		{"HTTP/1.0, cut", "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + okJSON[:len(okJSON)-40], bad, 502},
		{"after 100 and 103", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + jsonAnswer(okJSON), whole, 200},
		{"a hundred thousand informational answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100_000) + jsonAnswer(okJSON), bad, 502},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", bad, 502},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", bad, 502},
		{"nothing in it", jsonAnswer(""), bad, 502},
		{"a page", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>", bad, 502},
		{"a redirect elsewhere", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: 0\r\n\r\n", bad, 502},
		{"no HTTP", "220 mail.example ESMTP\r\n", bad, 502},
		{"a TLS alert", "\x15\x03\x01\x00\x02\x02\x28", bad, 502},
		{"a status line only", "HTTP/1.1 200 OK\r\n", bad, 502},
		{"longer than announced", jsonAnswer(okJSON) + "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", whole, 200},
		{"shorter than announced", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n" + okJSON, bad, 502},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n" + okJSON, bad, 502},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + okJSON, bad, 502},
		{"a chunk extension", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x;a=b\r\n%s\r\n0\r\nTrailer: x\r\n\r\n", len(okJSON), okJSON), whole, 200},
		{"trailers without end", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n", len(okJSON), okJSON) + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 3000), bad, 502},
		{"a bad chunk size", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + okJSON + "\r\n0\r\n\r\n", bad, 502},
		{"a chunk size beyond all bounds", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + okJSON, bad, 502},
		{"headers without end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 3000), bad, 502},
		{"a header line without end", "HTTP/1.1 200 OK\r\nX-Filler: " + strings.Repeat("x", 3<<20), bad, 502},
		{"gzip", jsonAnswer(gzipped(t, strings.NewReader(okJSON)), "Content-Encoding: gzip\r\n"), whole, 200},
		{"gzip that is none", jsonAnswer(okJSON, "Content-Encoding: gzip\r\n"), bad, 502},
		{"gzip that is cut", jsonAnswer(gzipped(t, strings.NewReader(okJSON))[:60], "Content-Encoding: gzip\r\n"), bad, 502},
		{aBomb, jsonAnswer(bomb, "Content-Encoding: gzip\r\n"), bad, 502},
		{"zstd", jsonAnswer(zstandard(t, okJSON), "Content-Encoding: zstd\r\n"), whole, 200},
		{"zstd that is none", jsonAnswer(okJSON, "Content-Encoding: zstd\r\n"), bad, 502},
		{"an encoding that nobody knows", jsonAnswer(okJSON, "Content-Encoding: rot13\r\n"), bad, 502},
		{"an error object with 200", jsonAnswer(`{"error":{"message":"out of memory","code":500}}`), bad, 502},
		{"an array", jsonAnswer("[" + okJSON + "]"), bad, 502},
		{"two objects", jsonAnswer(okJSON + okJSON), bad, 502},
		{"no choices", jsonAnswer(`{"id":"c","choices":[]}`), bad, 502},
		{"no finish reason", jsonAnswer(strings.Replace(okJSON, `"finish_reason":"stop"`, `"finish_reason":null`, 1)), bad, 502},
		{"a NaN", jsonAnswer(strings.Replace(okJSON, "-0.25", "NaN", 1)), partial, 200},
		{"an infinite logprob", jsonAnswer(strings.Replace(okJSON, "-0.25", "-Infinity", 1)), partial, 200},
		{"an id that is no number", jsonAnswer(strings.Replace(okJSON, "[7,8]", `[7,"8"]`, 1)), partial, 200},
		{"an id beyond 32 bits", jsonAnswer(strings.Replace(okJSON, "[7,8]", "[7,8589934592]", 1)), partial, 200},
		{"a negative id", jsonAnswer(strings.Replace(okJSON, "[7,8]", "[7,-8]", 1)), partial, 200},
		{"an id with a fraction", jsonAnswer(strings.Replace(okJSON, "[7,8]", "[7,8.5]", 1)), partial, 200},
		{"fewer ids than counted", jsonAnswer(strings.Replace(okJSON, "[7,8]", "[7]", 1)), partial, 200},
		{"prompt ids missing", jsonAnswer(strings.Replace(okJSON, `,"prompt_token_ids":[1,2,3]`, "", 1)), partial, 200},
		{"invalid UTF-8", jsonAnswer(strings.Replace(okJSON, `"hi"`, "\"h\xff\"", 1)), whole, 200},
		{"NUL and lone surrogates", jsonAnswer(strings.Replace(okJSON, `"hi"`, `"\u0000\ud800"`, 1)), whole, 200},
		{"a thousand levels", jsonAnswer(strings.Replace(okJSON, `"usage"`, `"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`,"usage"`, 1)), one(record.Complete, record.UpstreamError), 0},
		{"keys twice", jsonAnswer(strings.Replace(okJSON, `"usage"`, `"prompt_token_ids":[9,9,9],"usage"`, 1)), one(record.IncompleteCapture, record.Complete), 200},
	}
	streams := []whatever{
		{"whole", eventAnswer(events), whole, 200},
		{"CRLF and comments", eventAnswer(": hello\r\n\r\n" + strings.ReplaceAll(events, "\n", "\r\n")), whole, 200},
		{"without the last blank line", eventAnswer(strings.TrimSuffix(events, "\n\n")), whole, 200},
		{"without [DONE]", eventAnswer(first + middle + last + counted), whole, 200},
		{"without a finish reason", eventAnswer(first + middle + counted + done), bad, 200},
		{"[DONE] only", eventAnswer(done), bad, 200},
		{"nothing in it", eventAnswer(""), bad, 200},
		{"the finish reason twice", eventAnswer(first + middle + last + last + counted + done), whole, 200},
		{"events behind [DONE]", eventAnswer(events + strings.Replace(middle, "[7,8]", "[9]", 1)), whole, 200},
		{"an event twice", eventAnswer(first + middle + middle + last + counted + done), partial, 200},
		{"no JSON in the middle", eventAnswer(first + "data: {\"choices\":[{\"index\":0,\"token_ids\":[4,5\n\n" + middle + last + counted + done), one(record.Complete, record.IncompleteCapture), 200},
		{"an event that was cut", eventAnswer(first + middle[:len(middle)-20] + "\n\n" + last + counted + done), partial, 200},
		{"an error in the middle", eventAnswer(first + "data: {\"error\":{\"message\":\"out of memory\"}}\n\n" + done), bad, 200},
		{"prompt ids twice, different", eventAnswer(first + strings.Replace(first, "[1,2,3]", "[1,2,4]", 1) + middle + last + counted + done), one(record.IncompleteCapture, record.Complete), 200},
		{"a choice that nobody asked for", eventAnswer(first + strings.Replace(middle, `"index":0`, `"index":5000`, 1) + middle + last + counted + done), one(record.IncompleteCapture, record.Complete, record.UpstreamError), 200},
		{"a page", eventAnswer("<html>\n<body>busy</body>\n</html>\n"), bad, 200},
		{"gzip", eventAnswer(gzipped(t, strings.NewReader(events)), "Content-Encoding: gzip\r\n"), whole, 200},
		{"gzip that is cut", eventAnswer(gzipped(t, strings.NewReader(events))[:80], "Content-Encoding: gzip\r\n"), bad, 0},
		{"gzip that is none", eventAnswer(events, "Content-Encoding: gzip\r\n"), bad, 502},
	}
	f := newFront(t, "", 20*time.Second)
	for _, part := range []struct {
		stream bool
		list   []whatever
	}{{false, plain}, {true, streams}} {
		for _, path := range []struct{ path, body string }{
			{"/v1/chat/completions", `{"model":"m","stream":%t,"messages":[{"role":"user","content":"x"}]}`}, {"/v1/messages", `{"model":"m","max_tokens":50,"stream":%t,"messages":[{"role":"user","content":"x"}]}`},
		} {
			for _, w := range part.list {
				if w.name == aBomb && path.path != "/v1/chat/completions" { // it takes seconds to undo, and is undone before there are dialects
					continue
				}
				what := fmt.Sprintf("%s %s stream=%t", w.name, path.path, part.stream)
				f.wire.does(says(w.says))
				got, c := f.call(path.path, fmt.Sprintf(path.body, part.stream))
				if !slices.Contains(w.outcomes, c.Outcome) {
					t.Errorf("%s: recorded as %s: %s, want %v", what, c.Outcome, c.Detail, w.outcomes)
				}
				passed := !part.stream && path.path == "/v1/chat/completions" // to a harness that speaks as the engine does its own words go on as they are
				if w.status != 0 && got.status != w.status && !got.cut && !passed {
					t.Errorf("%s: the client got %d: %.300s", what, got.status, got.body)
				}
				if passed && !c.Outcome.IsNode() && got.status == http.StatusOK && w.name != "a thousand levels" && finished(got.body) {
					t.Errorf("%s: %s, and the client got an answer: %.300s", what, c.Outcome, got.body)
				}
				if !passed && !c.Outcome.IsNode() && got.status == http.StatusOK && !got.cut && !strings.Contains(got.body, "error") {
					t.Errorf("%s: %s, and the client got a good end: %.300s", what, c.Outcome, got.body)
				}
				for _, ch := range c.Choices {
					for _, id := range ch.SampledIDs {
						if id != 7 && id != 8 && id != -8 {
							t.Errorf("%s: id %d was never sampled", what, id)
						}
					}
				}
				if strings.Contains(got.body, "127.0.0.1:1") || strings.Contains(got.body, "the-engines-key") {
					t.Errorf("%s: %s", what, got.body)
				}
			}
		}
	}
}

// finished says that a client takes a text for an answer.
func finished(text string) bool {
	var a struct {
		Choices []struct {
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	return json.Unmarshal([]byte(text), &a) == nil && len(a.Choices) > 0 && a.Choices[0].Finish != ""
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An engine that never ends is heard as long as somebody listens, in bounded memory, and stopped when nobody does.
func TestNeverEnding(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, endless := range map[string]string{
		"comments": ": still here\n\n", "tokens": middle, "one line": strings.Repeat("x", 4096), "empty events": "data:\n\n", "blank lines": "\n\n\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, "", 20*time.Second)
			stopped := make(chan struct{})
			f.wire.does(func(c *net.TCPConn, _ *http.Request, _ []byte) {
				defer close(stopped)
				if _, err := io.WriteString(c, eventAnswer(first)); err != nil {
					return
				}
				if name == "one line" {
					io.WriteString(c, "data: ") //nolint:errcheck // the next write says the same
				}
				many := []byte(strings.Repeat(endless, 64<<10/len(endless)))
				for {
					if _, err := c.Write(many); err != nil {
						return
					}
				}
			})
			before := inUse()
			req, err := http.NewRequest(http.MethodPost, f.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.sessions.Create(t.Context(), &record.Session{ID: "s-endless", CaptureLevel: record.LevelTokens, Engine: f.up.Record()}, f.up); err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer s-endless")
			res, err := f.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			const heard, most = 4 << 20, 256 << 20 // an event is read up to 64 MiB before its pieces go on
			if _, err := io.CopyN(io.Discard, res.Body, heard); err != nil {
				t.Fatal(err)
			}
			if grown := inUse() - before; grown > most {
				t.Errorf("%d MiB in use after %d MiB", grown>>20, heard>>20)
			}
			res.Body.Close()
			select {
			case <-stopped:
			case <-time.After(30 * time.Second):
				t.Fatal("the engine was not stopped")
			}
			calls := wait(t, f.store, "s-endless")
			if len(calls) != 1 || calls[0].Outcome != record.ClientGone {
				t.Errorf("%+v", calls)
			}
		})
	}
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
