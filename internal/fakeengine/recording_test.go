package fakeengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// recording is one exchange with a real vLLM 0.32.0.
type recording struct {
	name         string
	method, path string
	request      string
	status       int
	header       http.Header
	body         string
}

func readRecordings(t *testing.T) []recording {
	t.Helper()
	files, err := filepath.Glob("testdata/vllm-0.32.0/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var out []recording
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := recording{name: strings.TrimSuffix(filepath.Base(file), ".txt"), header: http.Header{}}
		head, answer, ok := strings.Cut(string(data), "\n<<< ")
		if !ok {
			t.Fatalf("%s: no answer", file)
		}
		line, request, _ := strings.Cut(strings.TrimPrefix(head, ">>> "), "\n")
		if _, err := fmt.Sscan(line, &r.method, &r.path); err != nil {
			t.Fatal(err)
		}
		r.request = strings.TrimSuffix(request, "\n")
		answer, r.body, _ = strings.Cut(answer, "\n\n")
		lines := strings.Split(answer, "\n")
		if _, err := fmt.Sscan(lines[0], &r.status); err != nil {
			t.Fatal(err)
		}
		for _, h := range lines[1:] {
			k, v, _ := strings.Cut(h, ": ")
			r.header.Set(k, v)
		}
		r.body = strings.TrimSuffix(r.body, "\n")
		out = append(out, r)
	}
	return out
}

// play sends a recording's request to an engine.
func (r recording) play(e *Engine) *httptest.ResponseRecorder {
	req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.request))
	if r.name != "h_no_ctype" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

func (r recording) streamed() bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
}

// reply is what the recorded model said, so that the fake says the same.
func (r recording) reply() Reply {
	var reply Reply
	add := func(m gjson.Result) {
		reply.Reasoning += m.Get("reasoning").String()
		reply.Content += m.Get("content").String()
		m.Get("tool_calls").ForEach(func(_, tc gjson.Result) bool {
			if name := tc.Get("function.name"); name.Exists() {
				reply.Calls = append(reply.Calls, ToolCall{Name: name.String()})
			}
			reply.Calls[len(reply.Calls)-1].Arguments += tc.Get("function.arguments").String()
			return true
		})
	}
	if !r.streamed() {
		reply.Content = gjson.Get(r.body, "choices.0.text").String()
		add(gjson.Get(r.body, "choices.0.message"))
	}
	for _, event := range events(r.body) {
		if c := gjson.Get(event, "choices.0"); c.Get("index").Int() == 0 {
			add(c.Get("delta"))
		}
	}
	if stop := gjson.Get(r.request, "stop.0").String(); stop != "" { // cut from the text, but sampled
		reply.Reasoning += stop + " and more"
	}
	return reply
}

// events lists the data lines of a stream.
func events(body string) []string {
	var out []string
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, strings.TrimSpace(data))
		}
	}
	return out
}

// shape spells a JSON text's structure: keys in order, types of values, the distinct shapes of an array's elements.
func shape(t *testing.T, text string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	s, err := shapeOf(dec)
	if err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return columnKeys.ReplaceAllString(s, "${1}[map]")
}

// columnKeys are the maps of completions, whose keys are tokens.
var columnKeys = regexp.MustCompile(`(tokens:\[string\],top_logprobs:)\[\{.*?\}\]`)

func shapeOf(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case json.Delim:
		var parts []string
		for dec.More() {
			key := ""
			if v == '{' {
				k, err := dec.Token()
				if err != nil {
					return "", err
				}
				key = fmt.Sprint(k, ":")
			}
			s, err := shapeOf(dec)
			if err != nil {
				return "", err
			}
			if v == '{' || !slices.Contains(parts, s) {
				parts = append(parts, key+s)
			}
		}
		end, err := dec.Token()
		return fmt.Sprint(v, strings.Join(parts, ","), end), err
	case string:
		return "string", nil
	case json.Number:
		return "number", nil
	case bool:
		return "bool", nil
	}
	return "null", nil
}

// cut answers are shaped by where the cut falls: other words, other places. TestLength has them.
func (r recording) cutShort() bool {
	return strings.Contains(r.name, "_len_mid") || r.name == "b_d_stopstr_incl_stream"
}

// Every whole answer and every chunk has the shape that vLLM gave it.
func TestShapesMatchRecordings(t *testing.T) {
	recordings := readRecordings(t)
	known := map[string]bool{} // every chunk that vLLM sent in any of them
	for _, r := range recordings {
		if r.streamed() {
			maps.Copy(known, shapes(t, events(r.body)))
		}
	}
	compared := 0
	for _, r := range recordings {
		if r.status != http.StatusOK || !strings.Contains(r.path, "completions") || r.cutShort() || r.name == "h_lp_max_stream" {
			continue
		}
		compared++
		t.Run(r.name, func(t *testing.T) {
			e := New(Options{Model: "tiny", MaxModelLen: 2048, ChunkTokens: 1, Script: func(*Request, uint64) Reply { return r.reply() }})
			w := r.play(e)
			if w.Code != r.status {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if got, want := w.Header().Get("Content-Type"), r.header.Get("Content-Type"); got != want {
				t.Errorf("content type %q, want %q", got, want)
			}
			if !r.streamed() {
				if got, want := shape(t, w.Body.String()), shape(t, r.body); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				return
			}
			got, want := events(w.Body.String()), events(r.body)
			if got[len(got)-1] != "[DONE]" {
				t.Errorf("stream ends with %s", got[len(got)-1])
			}
			for _, pair := range [][2]string{{got[0], want[0]}, {got[len(got)-2], want[len(want)-2]}} {
				if g, w := shape(t, pair[0]), shape(t, pair[1]); g != w && !textWithEnd[r.name] {
					t.Errorf("first or last chunk:\ngot  %s\nwant %s", g, w)
				}
			}
			wantShapes := shapes(t, want)
			for s := range shapes(t, got) {
				if !known[s] {
					t.Errorf("a chunk that vLLM never sent: %s", s)
				}
				delete(wantShapes, s)
			}
			for s := range wantShapes {
				if !textWithEnd[r.name] {
					t.Errorf("vLLM sent a chunk that never came: %s", s)
				}
			}
		})
	}
	if compared < 40 {
		t.Fatalf("only %d recordings compared", compared)
	}
}

// textWithEnd are recordings in which text happened to come with the finish; here it stands alone.
var textWithEnd = map[string]bool{"s_interval": true, "b_d_stopstr_stream": true}

func shapes(t *testing.T, list []string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, e := range list {
		if e != "[DONE]" {
			out[shape(t, e)] = true
		}
	}
	return out
}

// Refusals are the recorded ones, byte for byte.
func TestErrorsMatchRecordings(t *testing.T) {
	compared := 0
	for _, r := range readRecordings(t) {
		if r.status == http.StatusOK && r.name != "h_lp_max_stream" {
			continue
		}
		compared++
		t.Run(r.name, func(t *testing.T) {
			w := r.play(New(Options{Model: "tiny", MaxModelLen: 2048}))
			if w.Code != r.status {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if r.name == "h_malformed" { // the decoder's words about the place are Python's own
				if got, want := shape(t, w.Body.String()), shape(t, r.body); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				return
			}
			if got, want := strings.TrimSpace(w.Body.String()), strings.TrimSpace(r.body); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if compared < 20 {
		t.Fatalf("only %d recordings compared", compared)
	}
}

func TestOtherRoutesMatchRecordings(t *testing.T) {
	for _, r := range readRecordings(t) {
		if !strings.HasPrefix(r.name, "i_") {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			w := r.play(New(Options{Model: "tiny", MaxModelLen: 2048}))
			if w.Code != r.status {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if r.body == "" {
				if w.Body.Len() != 0 {
					t.Errorf("a body: %s", w.Body)
				}
				return
			}
			if got, want := shape(t, w.Body.String()), shape(t, r.body); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// Streamed and whole, an answer is the same: text, calls, ids, logprobs.
func TestStreamEqualsWhole(t *testing.T) {
	for _, chunk := range []int{0, 1, 3, 100} {
		e := New(Options{ChunkTokens: chunk, Reasoning: true})
		for _, messages := range []string{
			`{"role":"user","content":"go"}`,
			`{"role":"user","content":"go"},{"role":"tool","content":"1"},{"role":"tool","content":"2"},{"role":"tool","content":"3"}`,
		} {
			body := func(extra string) []byte {
				return fmt.Appendf(nil, `{"messages":[%s],"tools":[%s],"seed":5,"logprobs":true,"return_token_ids":true%s}`, messages, bashTool, extra)
			}
			whole := post(t, e, body(""))
			stream := post(t, e, body(`,"stream":true,"stream_options":{"include_usage":true}`))
			var ids, logprobs []string
			var reply Reply
			rec := recording{body: stream, header: http.Header{"Content-Type": {"text/event-stream"}}}
			reply = rec.reply()
			for _, ev := range events(stream) {
				for _, id := range gjson.Get(ev, "choices.0.token_ids").Array() {
					ids = append(ids, id.Raw)
				}
				for _, row := range gjson.Get(ev, "choices.0.logprobs.content").Array() {
					logprobs = append(logprobs, row.Raw)
				}
			}
			choice := gjson.Get(whole, "choices.0")
			if got := "[" + strings.Join(ids, ",") + "]"; got != choice.Get("token_ids").Raw {
				t.Errorf("ids %s, whole %s", got, choice.Get("token_ids").Raw)
			}
			if got := "[" + strings.Join(logprobs, ",") + "]"; got != choice.Get("logprobs.content").Raw {
				t.Errorf("rows %s, whole %s", got, choice.Get("logprobs.content").Raw)
			}
			if want := (recording{body: whole, header: http.Header{}}).reply(); fmt.Sprint(reply) != fmt.Sprint(want) {
				t.Errorf("streamed %+v, whole %+v", reply, want)
			}
		}
	}
}

const bashTool = `{"type":"function","function":{"name":"bash","description":"Run","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}`

// tester is what helpers need of a test, be it rapid's.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// post sends a chat call and returns the body of its 200.
func post(t tester, e *Engine, body []byte) string {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}
