package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"
	"pgregory.net/rapid"
)

// elements takes a stream apart, as events or as an array, and reads each element with the types of Google's own client.
func elements(t failer, stream []byte, sse bool) []*genai.GenerateContentResponse {
	t.Helper()
	var raws []json.RawMessage
	if sse {
		for _, event := range strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
			data, ok := strings.CutPrefix(event, "data: ")
			if !ok || strings.Contains(data, "\n") {
				t.Fatalf("no event of one line: %q", event)
			}
			raws = append(raws, json.RawMessage(data))
		}
	} else if err := json.Unmarshal(stream, &raws); err != nil {
		t.Fatalf("%v in %s", err, stream)
	}
	var out []*genai.GenerateContentResponse
	for _, raw := range raws {
		r := &genai.GenerateContentResponse{}
		if err := json.Unmarshal(raw, r); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		out = append(out, r)
	}
	return out
}

func googleRequest(t failer, config string) *Request {
	t.Helper()
	r, err := DecodeGoogle([]byte(`{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{`+config+`}}`), "gemini-x", true)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

func TestGoogleStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		sse := rapid.Bool().Draw(t, "sse")
		hidden := rapid.Bool().Draw(t, "hidden")
		w := NewGoogleStream(googleRequest(t, fmt.Sprintf(`"thinkingConfig":{"includeThoughts":%v}`, !hidden)), Answer{ID: "7"}, sse)
		var stream []byte
		for _, s := range steps[:len(steps)-1] {
			stream = w.Advance(stream, s)
		}
		said := steps[len(steps)-1]
		rest, terminal := w.End(nil, said)
		heard := elements(t, append(append(stream, rest...), terminal...), sse)
		for _, r := range heard[:len(heard)-1] {
			if c := r.Candidates[0]; c.FinishReason != "" || r.UsageMetadata != nil || len(c.Content.Parts) != 1 {
				t.Fatalf("%+v in mid-stream", c)
			}
		}
		checkGoogle(t, heard, said, hidden)
		// Harnesses differ in what they keep: each chunk, or all but the thoughts.
		for _, thoughts := range []bool{true, false} {
			if late := len(said.Reasoning) > 0 && !keepsAll(heard); !thoughts && late {
				continue // thoughts at the very end are in a thought part alone
			}
			checkGoogleEcho(t, heard, said, thoughts)
		}
	})
}

// keepsAll says whether the last signature stands on a part that is no thought.
func keepsAll(heard []*genai.GenerateContentResponse) bool {
	kept := false
	for _, r := range heard {
		for _, p := range r.Candidates[0].Content.Parts {
			if p.ThoughtSignature != nil || p.Thought {
				kept = !p.Thought
			}
		}
	}
	return kept
}

func TestGoogleWholeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		said := steps[len(steps)-1]
		r := googleRequest(t, "")
		raw := GoogleWhole(r, Answer{ID: "7"}, said)
		heard := &genai.GenerateContentResponse{}
		if err := json.Unmarshal(raw, heard); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		all := []*genai.GenerateContentResponse{heard}
		checkGoogle(t, all, said, false)
		checkGoogleEcho(t, all, said, true)
		if keepsAll(all) {
			checkGoogleEcho(t, all, said, false)
		}
	})
}

// Where a harness keeps the bytes of the arguments, the engine sees its own again.
func TestGoogleArgumentsKeepTheirBytes(t *testing.T) {
	for _, arguments := range []string{`{"n": 1.50, "big":9007199254740993, "s":"\u00e9é"}`, ` {"a" : 1}`, `{"cut":"mid`, `[1]`, `{"` + unparsedArguments + `":"{}"}`} {
		var raw struct {
			Candidates []struct{ Content json.RawMessage }
		}
		whole := GoogleWhole(googleRequest(t, ""), Answer{ID: "7"}, &Said{Calls: []SaidCall{{ID: "k", Name: "f", Arguments: []byte(arguments)}}})
		if err := json.Unmarshal(whole, &raw); err != nil {
			t.Fatal(err)
		}
		r := decodeGoogle(t, `{"contents":[`+string(raw.Candidates[0].Content)+`]}`, false)
		var m struct {
			ToolCalls []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
		}
		if err := json.Unmarshal(r.Messages[0], &m); err != nil {
			t.Fatal(err)
		}
		if got := m.ToolCalls[0].Function.Arguments; got != strings.TrimSpace(arguments) {
			t.Errorf("%q, want %q", got, arguments)
		}
	}
}

// BC49: two calls of one name, each whole, in order; their ids are the engine's.
func TestBC49ParallelCalls(t *testing.T) {
	decodeGoogle(t, string(caseBodies(t, "BC49", "/v1beta/models/m:streamGenerateContent?alt=sse")[0]), true)
	said := &Said{}
	var got []string
	w := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, true)
	for _, step := range []func(){
		func() { said.Calls = append(said.Calls, SaidCall{ID: "k1", Name: "read"}) },
		func() { said.Calls[0].Arguments = []byte(`{"p":`) },
		func() { said.Calls[0].Arguments = []byte(`{"p":"a"}`) },
		func() {
			said.Calls = append(said.Calls, SaidCall{ID: "k2", Name: "read", Arguments: []byte(`{"p":"b"}`)})
		},
	} {
		step()
		out := w.Advance(nil, said)
		if len(out) == 0 {
			got = append(got, "")
			continue
		}
		call := elements(t, out, true)[0].Candidates[0].Content.Parts[0].FunctionCall
		got = append(got, fmt.Sprint(call.ID, call.Args["p"]))
	}
	if d := cmp.Diff([]string{"", "", "", "k1a"}, got); d != "" {
		t.Error(d)
	}
	said.Finish = "tool_calls"
	rest, terminal := w.End(nil, said)
	if last := elements(t, rest, true)[0].Candidates[0].Content.Parts[0].FunctionCall; last.ID != "k2" || last.Args["p"] != "b" || !bytes.Contains(terminal, []byte(`"finishReason":"STOP"`)) || bytes.Contains(terminal, []byte("[DONE]")) {
		t.Errorf("%s%s", rest, terminal)
	}
}

// A model that writes on behind what looks like the end of its arguments has said something else: the harness gets that whole,
// so that what it brings back is what was given.
func TestGoogleCallIsWhole(t *testing.T) {
	said := &Said{Calls: []SaidCall{{ID: "k1", Name: "ls", Arguments: []byte(`{"p":"a"}`)}}}
	w := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, true)
	out := w.Advance(nil, said)
	said.Calls[0].Arguments = []byte(`{"p":"a"}}x`)
	said.Finish = "tool_calls"
	rest, _ := w.End(out, said)
	if args := elements(t, rest, true)[0].Candidates[0].Content.Parts[0].FunctionCall.Args; args["p"] != nil || len(args) != 1 {
		t.Errorf("args %v", args)
	}
}

// The array grows element by element, and its end belongs to the last one.
func TestGoogleArray(t *testing.T) {
	w := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, false)
	s := &Said{}
	if out := w.Advance(nil, s); len(out) != 0 {
		t.Errorf("an element for nothing: %s", out)
	}
	s.Text = []byte("he\xf0\x9f")
	one := w.Advance(nil, s)
	if !bytes.HasPrefix(one, []byte("[{")) || !bytes.Contains(one, []byte(`"text":"he"`)) {
		t.Errorf("%s", one)
	}
	s.Finish = "length"
	rest, terminal := w.End(nil, s)
	if !bytes.HasPrefix(rest, []byte(",\n{")) || !bytes.HasPrefix(terminal, []byte(",\n{")) || !bytes.HasSuffix(terminal, []byte("}]\n")) {
		t.Errorf("%s%s", rest, terminal)
	}
	empty, terminal := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, false).End(nil, &Said{Finish: "stop"})
	if len(empty) != 0 || !json.Valid(terminal) {
		t.Errorf("%s%s", empty, terminal)
	}
	if failed := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, false).Fail(nil, 502, "gone"); string(failed) != `[{"error":{"code":502,"message":"gone","status":"UNAVAILABLE"}}]`+"\n" {
		t.Errorf("%s", failed)
	}
}

// Google's own client reads the streams, and the error in one.
func TestGoogleClient(t *testing.T) {
	said := &Said{Reasoning: []byte("hm"), Text: []byte("hello\n"), Calls: []SaidCall{{ID: "k", Name: "f", Arguments: []byte("{\n\"a\": 1\n}")}}, Finish: "tool_calls"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, true)
		out := stream.Advance(nil, said)
		if strings.Contains(r.URL.Path, "broken") {
			out = stream.Fail(out, 503, "gone")
		} else {
			rest, terminal := stream.End(out, said)
			out = append(rest, terminal...)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write(out) //nolint:errcheck // the client reads it
	}))
	defer server.Close()
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var calls []*genai.FunctionCall
	for r, err := range client.Models.GenerateContentStream(t.Context(), "x", genai.Text("q"), nil) {
		if err != nil {
			t.Fatal(err)
		}
		text += r.Text()
		calls = append(calls, r.FunctionCalls()...)
	}
	if text != "hello\n" || len(calls) != 1 || calls[0].ID != "k" || calls[0].Args["a"] != 1.0 {
		t.Errorf("%q %+v", text, calls)
	}
	var last error
	for _, err := range client.Models.GenerateContentStream(t.Context(), "broken", genai.Text("q"), nil) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "gone") {
		t.Errorf("%v", last)
	}
}

// With several candidates each is an answer of its own.
func TestGoogleCandidates(t *testing.T) {
	raw := GoogleWhole(googleRequest(t, ""), Answer{ID: "7"}, &Said{Text: []byte("a"), Finish: "stop"}, &Said{Text: []byte("b"), Finish: "length"})
	var heard genai.GenerateContentResponse
	if err := json.Unmarshal(raw, &heard); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	var got []string
	for _, c := range heard.Candidates {
		got = append(got, fmt.Sprint(c.Index, c.Content.Parts[0].Text, c.FinishReason))
	}
	if !slices.Equal(got, []string{"0aSTOP", "1bMAX_TOKENS"}) {
		t.Error(got)
	}
}

// Thoughts are signed once: at their end, and on the part that follows.
func TestGoogleSignsOnce(t *testing.T) {
	w := NewGoogleStream(googleRequest(t, ""), Answer{ID: "7"}, true)
	s := &Said{Reasoning: []byte("hm")}
	out := w.Advance(nil, s)
	for _, text := range []string{"a", "ab", "abc"} {
		s.Text = []byte(text)
		out = w.Advance(out, s)
	}
	s.Calls, s.Finish = []SaidCall{{ID: "k", Name: "f", Arguments: []byte("{}")}}, "tool_calls"
	rest, terminal := w.End(out, s)
	var got []string
	for _, r := range elements(t, append(rest, terminal...), true) {
		for _, p := range r.Candidates[0].Content.Parts {
			kind := "text"
			if p.Thought {
				kind = "thought"
			} else if p.FunctionCall != nil {
				kind = "call"
			}
			got = append(got, fmt.Sprint(kind, " ", len(p.Text), " ", p.ThoughtSignature != nil))
		}
	}
	want := []string{"thought 2 false", "thought 0 true", "text 1 true", "text 1 false", "text 1 false", "call 0 false", "text 0 false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestGoogleThoughtsHidden(t *testing.T) {
	r := googleRequest(t, `"thinkingConfig":{"includeThoughts":false}`)
	for _, s := range []*Said{{Reasoning: []byte("hm"), Text: []byte("t")}, {Reasoning: []byte("hm")}} {
		out := GoogleWhole(r, Answer{ID: "7"}, s)
		if bytes.Contains(out, []byte(`"thought":`)) || !bytes.Contains(out, []byte(`"thoughtSignature":"`)) {
			t.Errorf("%s", out)
		}
	}
}
