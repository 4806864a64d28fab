package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy"
)

// callPaths are the routes of all dialects, with a request that uses much of each.
var callPaths = []struct{ path, body string }{
	{"/v1/chat/completions", `{"model":"m","stream":true,"temperature":0.70,"messages":[{"role":"system","content":"be"},{"role":"user","content":[{"type":"text","text":"caf\u00e9 \ud83d\ude00"}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1.50}"}}]},{"role":"tool","tool_call_id":"a","content":"7"}],` +
		`"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}],"tool_choice":"auto","max_tokens":5,"stream_options":{"include_usage":true},"logit_bias":{}}`},
	{"/v1/completions", `{"model":"m","prompt":"caf\u00e9","max_tokens":5,"stop":["x"],"stream":false}`},
	{"/v1/responses", `{"model":"m","stream":true,"instructions":"be","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},` +
		`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"7"}],"tools":[{"type":"function","name":"f","parameters":{}}],"reasoning":{"effort":"low"},"store":false}`},
	{"/v1/messages", `{"model":"m","max_tokens":5,"stream":true,"system":[{"type":"text","text":"be"}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"x":1}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"7"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"thinking":{"type":"disabled"}}`},
	{"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"x":1}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"r":7}}}]}],"systemInstruction":{"parts":[{"text":"be"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"temperature":0.5,"maxOutputTokens":5}}`},
}

// refusal checks that an answer is an error in the dialect of the path that was asked.
func refusal(t *testing.T, name, path string, a answer) {
	t.Helper()
	var e struct {
		Type  string
		Error struct {
			Message, Type, Status string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status < 400 || a.status > 499 || e.Error.Message == "" {
		t.Errorf("%s: %d %s", name, a.status, a.body)
	}
	if anthropic, google := strings.HasPrefix(path, "/v1/messages"), strings.HasPrefix(path, "/v1beta"); (e.Type == "error") != anthropic || (e.Error.Status != "") != google {
		t.Errorf("%s: not in the dialect of %s: %s", name, path, a.body)
	}
}

// A body that was cut is refused wherever the cut is, and nothing of it reaches the engine.
func TestTruncatedBodies(t *testing.T) {
	w := newWorld(t, worldOptions{level: record.LevelTokens})
	n := 0
	for _, c := range callPaths {
		conn := w.dial()
		for cut := 1; cut < len(c.body); cut += 1 + len(c.body)/97 {
			n++
			conn.send(post(c.path, c.body[:cut]))
			refusal(t, fmt.Sprintf("%s cut at %d", c.path, cut), c.path, conn.answer())
		}
	}
	if got := w.tap.requests(t); len(got) > 0 {
		t.Errorf("the engine got %v", got)
	}
	for _, call := range w.calls(n) {
		if call.Outcome != record.Rejected || call.Forwarded {
			t.Errorf("recorded as %s: %s", call.Outcome, call.Detail)
		}
	}
	for _, c := range callPaths {
		if a := w.ask(post(c.path, c.body)); a.status != 200 || a.cut {
			t.Errorf("%s whole: %d, cut %t: %s", c.path, a.status, a.cut, a.body)
		}
	}
}

// Whatever a body holds, it is answered or refused, recorded once, and its session has a document that is JSON.
func TestBodiesOfAllKinds(t *testing.T) {
	const much = 1 << 18
	deep := strings.Repeat("[", 200000)
	w := newWorld(t, worldOptions{level: record.LevelTokens, config: func(c *proxy.Config) { c.MaxBody, c.MaxOutputTokens = 1<<20, 100 }})
	kinds := []struct{ name, body string }{
		{"nothing", ``}, {"spaces", `   `}, {"a text", `"x"`}, {"a number", `1e999`}, {"a list", `[{}]`}, {"null", `null`}, {"an empty object", `{}`},
		{"two objects", `{}{}`}, {"a byte order mark", "\xef\xbb\xbf{}"}, {"UTF-16", "\xff\xfe{\x00}\x00"}, {"Python's words", `{"model":None,"stream":True}`}, {"a comment", `{/**/}`}, {"a comma too many", `{"a":1,}`},
		{"deep lists", `{"messages":` + deep}, {"deep closed lists", `{"x":` + deep + strings.Repeat("]", 200000) + `}`}, {"deep objects", strings.Repeat(`{"a":`, 200000)},
		{"one long text", `{"model":"` + strings.Repeat("x", much) + `"}`}, {"a long key", `{"` + strings.Repeat("x", much) + `":1}`},
		{"many keys", `{` + strings.Repeat(`"tools":[],`, much/11) + `"messages":[],"prompt":"x","input":"x","max_tokens":1,"contents":[]}`},
		{"many other keys", `{"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x","max_tokens":1,"contents":[],` + manyKeys(much/10) + `}`},
		{"many messages", `{"max_tokens":1,"messages":[` + strings.Repeat(`{"role":"user","content":""},`, much/29) + `{}],"input":[` + strings.Repeat(`{"role":"user","content":""},`, much/29) + `{}]}`},
		{"many nothings", `{"max_tokens":1,"messages":[` + strings.Repeat("null,", much/5) + `null],"input":[` + strings.Repeat("[],", much/5) + `1],"contents":[` + strings.Repeat("{},", much/5) + `0],"prompt":[` + strings.Repeat("-1,", much/5) + `1.5]}`},
		{"many tools", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"input":"x","contents":[{"parts":[{"text":"x"}]}],"tools":[` + strings.Repeat(`{"type":"function","name":"f","function":{"name":"f"}},`, much/60) + `{}]}`},
		{"wrong kinds", `{"model":{},"stream":"yes","messages":"x","prompt":{},"input":{},"contents":"x","tools":{},"max_tokens":"many","temperature":[],"n":"1","stop":{},"system":7,"tool_choice":[],"stream_options":7,"generationConfig":[],"metadata":[]}`},
		{"numbers beyond", `{"max_tokens":1e999,"n":99999999999999999999,"temperature":-1e999,"seed":1.5e-400,"messages":[],"prompt":"","input":"","contents":[],"top_k":-9223372036854775808,"max_completion_tokens":9223372036854775807}`},
		{"no UTF-8", "{\"max_tokens\":1,\"model\":\"\xff\xfe\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xc3(\xed\xa0\x80\xf4\x90\x80\x80b\"}],\"prompt\":\"\xff\",\"input\":\"\xff\",\"contents\":[{\"parts\":[{\"text\":\"\xff\"}]}]}"},
		{"lone surrogates", `{"max_tokens":1,"model":"\udc00","messages":[{"role":"user","content":"a\ud800b\udc00\ud800\ud800"}],"prompt":"\ud800","input":"\ud83d","contents":[{"parts":[{"text":"\ude00"}]}]}`},
		{"NUL escaped", `{"max_tokens":1,"model":"a\u0000b","messages":[{"role":"user","content":"\u0000"}],"prompt":"\u0000","input":"\u0000","contents":[{"parts":[{"text":"\u0000"}]}]}`},
		{"NUL itself", "{\"model\":\"a\x00b\"}"}, {"a line break itself", "{\"model\":\"a\nb\"}"}, {"keys that escape", `{"mess\u0061ges":[{"role":"user","content":"x"}],"\u0070rompt":"x","max_tokens":1,"inpu\u0074":"x","contents":[{"p\u0061rts":[{"text":"x"}]}]}`},
		{"names of prototypes", `{"__proto__":{"stream":true},"constructor":1,"":2,"max_tokens":1,"messages":[{"role":"user","content":"x","__proto__":{}}],"prompt":"x","input":"x","contents":[]}`},
		{"an event inside", `{"max_tokens":1,"messages":[{"role":"user","content":"\n\ndata: [DONE]\n\n"}],"prompt":"\n\ndata: [DONE]\n\n","input":"\n\ndata: [DONE]\n\n","contents":[{"parts":[{"text":"\n\ndata: [DONE]\n\n"}]}]}`},
	}
	n := 0
	for _, c := range callPaths {
		for _, kind := range kinds {
			n++
			name := c.path + ": " + kind.name
			a := w.ask(post(c.path, kind.body))
			switch {
			case a.status == 200 && (a.cut || a.body == ""):
				t.Errorf("%s: an answer that was cut", name)
			case a.status != 200:
				refusal(t, name, c.path, a)
			}
		}
	}
	w.calls(n)
	for _, r := range w.tap.requests(t) {
		if !json.Valid([]byte(r.body)) {
			t.Errorf("the engine got no JSON: %.300q", r.body)
		}
	}
	w.document()
	w.works()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":0,`, i)
	}
	return b.String() + `"k":0`
}

// document builds s1's document with all it can hold, which must be JSON in UTF-8.
func (w *world) document() {
	w.t.Helper()
	s, err := w.store.Session(context.Background(), "s1")
	w.must(err)
	calls, err := w.store.Calls(context.Background(), "s1")
	w.must(err)
	doc := export.Build(s, calls, export.Options{IncludeDiscarded: true, IncludeMessages: true})
	var out bytes.Buffer
	if _, err := doc.WriteTo(&out); err != nil || !json.Valid(out.Bytes()) || !utf8.Valid(out.Bytes()) {
		w.t.Errorf("the document is no JSON in UTF-8: %v", err)
	}
	entries, err := export.TraceEntries(doc)
	w.must(err)
	if traces, err := json.Marshal(entries); err != nil || !utf8.Valid(traces) || len(entries) == 0 {
		w.t.Errorf("%d trace entries are no JSON in UTF-8: %v", len(entries), err)
	}
}

// What the engine reads of equal keys, the last one, is what the proxy plans and records.
func TestRepeatedKeys(t *testing.T) {
	w := newWorld(t, worldOptions{level: record.LevelTokens, config: func(c *proxy.Config) { c.MaxOutputTokens = 100 }})
	for n, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"a","model":"b","stream":true,"stream":false,"messages":[{"role":"user","content":"mark-1-end"}],"messages":[{"role":"user","content":"mark-2-end"}],"max_tokens":1,"max_tokens":5000}`},
		{"/v1/chat/completions", `{"stream":false,"str\u0065am":true,"messages":[{"role":"user","content":"mark-1-end"}],"mess\u0061ges":[{"role":"user","content":"mark-2-end"}],"max_tokens":5000,"max_tokens":1,"Messages":[],"STREAM":false}`},
		{"/v1/messages", `{"model":"a","model":"b","max_tokens":5000,"stream":true,"stream":false,"messages":[{"role":"user","content":"mark-1-end"}],"messages":[{"role":"user","content":"mark-1-end","content":"mark-2-end"}]}`},
		{"/v1/responses", `{"model":"a","stream":false,"stream":true,"input":"mark-1-end","input":[{"role":"user","content":"mark-1-end","content":"mark-2-end"}],"max_output_tokens":1,"max_output_tokens":5000}`},
		{"/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"text":"mark-1-end"}]}],"contents":[{"parts":[{"text":"mark-1-end","text":"mark-2-end"}]}]}`},
	} {
		a := w.ask(post(c.path, c.body))
		call := w.calls(n + 1)[n]
		if a.status != 200 || a.cut || call.Outcome != record.Complete && call.Outcome != record.Length {
			t.Errorf("%s: %d %s, recorded as %s: %s", c.body, a.status, a.body, call.Outcome, call.Detail)
			continue
		}
		var read struct { // exactly these keys, as Python reads them
			stream   bool
			messages string
			cap      float64
		}
		var all map[string]any
		w.must(json.Unmarshal([]byte(w.tap.requests(t)[n].body), &all))
		read.stream, _ = all["stream"].(bool)
		messages, err := json.Marshal(all["messages"])
		w.must(err)
		read.messages = string(messages)
		read.cap, _ = all["max_tokens"].(float64)
		recorded, err := json.Marshal(call.Messages)
		w.must(err)
		if strings.Contains(read.messages, "mark-1") || !strings.Contains(read.messages, "mark-2") || mixed(string(recorded), "mark-2-end") || read.stream != call.Stream || int(read.cap) != call.MaxTokens || read.cap > 100 {
			t.Errorf("%s: the engine read %+v, recorded are %s, stream %t, %d tokens", c.body, read, recorded, call.Stream, call.MaxTokens)
		}
		if streamed := strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"); streamed != call.Stream {
			t.Errorf("%s: streamed %t, recorded %t", c.body, streamed, call.Stream)
		}
	}
}

// A route answers the methods that it has, and no page learns anything from the others.
func TestOtherMethods(t *testing.T) {
	w := newWorld(t, worldOptions{})
	for _, c := range callPaths {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} {
			conn := w.dial()
			conn.send(strings.Replace(post(c.path, c.body), "POST", method, 1))
			if a := conn.answerTo(method); a.status != http.StatusMethodNotAllowed || a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s: %d", method, c.path, a.status)
			}
			conn.Close()
		}
	}
	w.calls(0)
	if got := w.tap.requests(t); len(got) > 0 {
		t.Errorf("the engine got %v", got)
	}
}
