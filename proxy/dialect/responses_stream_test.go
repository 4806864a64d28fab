package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/responses"
	"pgregory.net/rapid"

	"captureproxy/internal/jsonscan"
)

const responsesTools = `[{"type":"function","name":"bash","strict":false,"parameters":{"type":"object"},"description":"line\nbreak"},
	{"type":"namespace","name":"ns","description":"","tools":[{"type":"function","name":"a"}]},{"type":"custom","name":"b"}]`

func responsesRequest(t failer, more string) *Request {
	t.Helper()
	r, err := DecodeResponses([]byte(`{"model":"m","instructions":"i","input":"x","tools":`+responsesTools+`,`+more+`}`), nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

// offered gives the calls of what was said the names that the engine knows the tools by.
func offered(steps []*Said) {
	for _, s := range steps {
		for i := range s.Calls {
			if s.Calls[i].Name == "a" {
				s.Calls[i].Name = "ns__a"
			}
		}
	}
}

func TestResponsesStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		offered(steps)
		w := NewResponsesStream(responsesRequest(t, `"store":false`), Answer{ID: "q-1", Created: 9})
		var stream []byte
		for _, s := range steps[:len(steps)-1] {
			stream = w.Advance(stream, s)
		}
		said := steps[len(steps)-1]
		rest, terminal := w.End(nil, said)
		if n := bytes.Count(terminal, []byte("\n\n")); n != 1 {
			t.Fatalf("%d terminal events", n)
		}
		got := receive(t, append(append(stream, rest...), terminal...))
		checkResponse(t, &got.Response, said)
		checkDeltas(t, got)
		checkResponsesEcho(t, got.RawJSON(), said, false)
	})
}

func TestResponsesWholeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		offered(steps)
		said := steps[len(steps)-1]
		raw := ResponsesWhole(responsesRequest(t, `"include":["reasoning.encrypted_content"]`), Answer{ID: "q-1", Created: 9}, said)
		var got responses.Response
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		required(t, reflect.ValueOf(got), string(raw))
		checkResponse(t, &got, said)
		checkResponsesEcho(t, string(raw), said, false)
		checkResponsesEcho(t, string(raw), said, true)
	})
}

// checkDeltas compares what the deltas add up to with what the items are in the end.
func checkDeltas(t failer, got *received) {
	t.Helper()
	if len(got.snapshot.Output) != len(got.Output) {
		t.Fatalf("%d items begun, %d in the end", len(got.snapshot.Output), len(got.Output))
	}
	for i, it := range got.Output {
		begun := got.snapshot.Output[i]
		if begun.ItemID != it.ID || begun.Type != it.Type || begun.CallID != it.CallID || begun.Arguments != it.Arguments.OfString || begun.Input != it.Input {
			t.Fatalf("item %d: %+v, in the end %s", i, begun, it.RawJSON())
		}
		for j, part := range it.Content {
			if part.Type == "output_text" && begun.Text[int64(j)] != part.Text {
				t.Fatalf("text %q, in the end %q", begun.Text[int64(j)], part.Text)
			}
		}
	}
}

func checkResponse(t failer, r *responses.Response, said *Said) {
	t.Helper()
	var text, refusal, reasoning string
	calls := 0
	for _, it := range r.Output {
		switch it.Type {
		case "reasoning":
			for _, part := range it.Content {
				reasoning += part.Text
			}
			if own, ok := Unseal(it.EncryptedContent); !ok || !strings.HasSuffix(reasoning, string(own)) {
				t.Fatalf("the seal of %s holds %q", it.RawJSON(), own)
			}
		case "message":
			for _, part := range it.Content {
				text += part.Text
				refusal += part.Refusal
			}
		case "function_call", "custom_tool_call":
			call := said.Calls[calls]
			calls++
			name, namespace, heard := call.Name, "", it.Arguments.OfString
			switch call.Name {
			case "ns__a":
				name, namespace = "a", "ns"
			case "b":
				heard = it.Input // no object with an input: given whole
			}
			if it.CallID != call.ID || it.Name != name || it.Namespace != namespace || (it.Type == "custom_tool_call") != (call.Name == "b") {
				t.Fatalf("call %+v became %s", call, it.RawJSON())
			}
			if heard != string(call.Arguments) && heard != strings.TrimRight(string(call.Arguments), " ") && !strings.HasPrefix(string(call.Arguments), "{}{") {
				t.Fatalf("arguments %q became %q", call.Arguments, heard)
			}
		}
	}
	if text != string(said.Text) || refusal != string(said.Refusal) || reasoning != string(said.Reasoning) || calls != len(said.Calls) {
		t.Fatalf("%+v became %s", said, r.RawJSON())
	}
	o := outcomeOf(said)
	if string(r.Status) != o.status || r.IncompleteDetails.Reason != o.reason || r.ID != "resp_q-1" || r.Model != "m" || r.CreatedAt != 9 {
		t.Fatalf("%s", r.RawJSON())
	}
	if u := r.Usage; u.InputTokens != 163 || u.InputTokensDetails.CachedTokens != 128 || u.OutputTokens != 31 || u.OutputTokensDetails.ReasoningTokens != 8 || u.TotalTokens != 194 {
		t.Fatalf("usage %s", u.RawJSON())
	}
}

// checkResponsesEcho decodes a request whose history holds an answer of ours: as an SDK's user sends it back, or, bare, as
// codex does, without ids and with nothing but the encrypted content of the reasoning.
func checkResponsesEcho(t failer, response string, said *Said, bare bool) {
	t.Helper()
	var answer struct{ Output []map[string]any }
	if err := json.Unmarshal([]byte(response), &answer); err != nil {
		t.Fatalf("%v", err)
	}
	for _, it := range answer.Output {
		if bare {
			delete(it, "id")
			if it["type"] == "reasoning" {
				delete(it, "content")
			}
		}
	}
	if len(answer.Output) == 0 {
		return
	}
	var echo bytes.Buffer
	e := json.NewEncoder(&echo)
	e.SetEscapeHTML(false)
	if err := e.Encode(answer.Output); err != nil {
		t.Fatalf("%v", err)
	}
	items := bytes.TrimSpace(echo.Bytes())
	r, err := DecodeResponses(fmt.Appendf(nil, `{"input":[{"role":"user","content":"u"},%s,{"role":"user","content":"v"}],"tools":%s}`,
		items[1:len(items)-1], responsesTools), nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(r.Messages) != 3 || len(r.Edits) != 0 {
		t.Fatalf("messages %s, edits %+v", r.Messages, r.Edits)
	}
	if want := engineMessage(said); string(r.Messages[1]) != want && !loose(said) {
		t.Fatalf("got  %s\nwant %s", r.Messages[1], want)
	}
}

// loose says that the arguments have what may be lost: space or more behind an object.
func loose(said *Said) bool {
	return slices.ContainsFunc(said.Calls, func(c SaidCall) bool {
		return strings.HasSuffix(string(c.Arguments), " ") || strings.HasPrefix(string(c.Arguments), "{}{")
	})
}

// engineMessage is what the engine said, as a chat message.
func engineMessage(said *Said) string {
	b := newChatBody(0)
	m := &chatMessage{role: "assistant", parts: []chatPart{{text: appendInside(nil, said.Text)}}, reasoning: appendInside(nil, said.Reasoning), refusal: appendInside(nil, said.Refusal)}
	for _, c := range said.Calls {
		arguments := c.Arguments
		if c.Name == "b" {
			arguments = customArguments(jsonscan.AppendQuote(nil, c.Arguments))
		}
		m.calls = append(m.calls, chatCall{id: jsonscan.AppendQuote(nil, c.ID), name: jsonscan.AppendQuote(nil, c.Name), arguments: arguments})
	}
	b.message(m)
	return string(b.buf[b.messages[0].start:b.messages[0].end])
}

// The input of a custom tool's call comes out of the arguments byte by byte as it does in one go, and goes back as it was.
func TestCustomInputProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", `\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, "é", "😀", `\/`, " "}), 0, 12).Draw(t, "text"), "")
		arguments := []byte(rapid.SampledFrom([]string{`{"input": "`, ` { "input" :"`, `{"input":"`}).Draw(t, "head") + inner + `"}`)
		var want struct{ Input string }
		if err := json.Unmarshal(arguments, &want); err != nil {
			t.Fatal(err)
		}
		var steps, whole customInput
		before := 0
		for i := range arguments {
			steps.grow(arguments[:i+1])
			if len(steps.text) < before {
				t.Fatal("it shrinks")
			}
			before = len(steps.text)
		}
		steps.end(arguments)
		whole.end(arguments)
		if string(steps.text) != want.Input || string(whole.text) != want.Input {
			t.Fatalf("%q and %q, want %q", steps.text, whole.text, want.Input)
		}
	})
}

func TestCustomInputForms(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"why":"x","input":"y\n"}`: "y\n", `{"patch":"p"}`: `{"patch":"p"}`, `plain`: "plain", `{"input": "cut \u00e9 and`: "cut é and", `{"input": "half \`: "half ",
		``: "", `{"inp`: `{"inp`, `{"input":7}`: `{"input":7}`,
	} {
		var c customInput
		c.end([]byte(arguments))
		if string(c.text) != want {
			t.Errorf("%s: %q, want %q", arguments, c.text, want)
		}
	}
}

// A plain answer, event by event.
func TestResponsesStreamText(t *testing.T) {
	r := responsesRequest(t, `"store":false,"stream":true`)
	w := NewResponsesStream(r, Answer{ID: "7", Created: 1})
	var stream []byte
	text := "Say é."
	call := SaidCall{ID: "k", Name: "b"}
	args := `{"input": "*** Begin\n+x"}`
	s := &Said{}
	for _, step := range []func(){
		func() { s.Reasoning = []byte("Hm") },
		func() { s.Text = []byte(text[:5]) }, // half of é
		func() { s.Text = []byte(text) },
		func() { s.Calls = []SaidCall{call} },
		func() { s.Calls[0].Arguments = []byte(args[:14]) },
		func() { s.Calls[0].Arguments = []byte(args) },
		func() {},
	} {
		step()
		stream = w.Advance(stream, s)
	}
	s.Finish, s.Usage = "tool_calls", SaidUsage{Known: true, Prompt: 5, Completion: 6}
	rest, terminal := w.End(nil, s)
	if !bytes.HasPrefix(terminal, []byte("event: response.completed\ndata: ")) || bytes.Contains(terminal, []byte("[DONE]")) {
		t.Errorf("terminal %s", terminal)
	}
	got := receive(t, append(append(stream, rest...), terminal...))
	want := []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
		"response.output_item.added", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "response.output_item.done",
		"response.completed",
	}
	if d := cmp.Diff(want, got.events); d != "" {
		t.Error(d)
	}
	if it := got.Output[2]; it.Input != "*** Begin\n+x" || it.Name != "b" || it.CallID != "k" {
		t.Errorf("call %s", it.RawJSON())
	}
	if string(got.Instructions.OfString) != "i" || len(got.Tools) != 3 || got.Tools[0].Name != "bash" {
		t.Errorf("the settings are not those of the request: %s", got.RawJSON())
	}
}

// Each step of the engine's goes out at once.
func TestResponsesStreamIsLive(t *testing.T) {
	w := NewResponsesStream(responsesRequest(t, `"stream":true`), Answer{ID: "7"})
	s := &Said{}
	if first := w.Advance(nil, s); !bytes.HasPrefix(first, []byte("event: response.created\n")) {
		t.Fatalf("%s", first)
	}
	if again := w.Advance(nil, s); len(again) != 0 {
		t.Fatalf("an event for nothing: %s", again)
	}
	for i, c := range "Hello 😀" {
		s.Text = append(s.Text, string(c)...)
		if out := w.Advance(nil, s); !strings.Contains(string(out), `"delta":"`+string(c)+`"`) {
			t.Fatalf("character %d: %s", i, out)
		}
	}
	s.Calls = []SaidCall{{ID: "k", Name: "bash", Arguments: []byte(`{"a"`)}}
	if out := w.Advance(nil, s); !bytes.Contains(out, []byte(`"delta":"{\"a\""`)) {
		t.Fatalf("%s", out)
	}
	s.Calls = append(s.Calls, SaidCall{ID: "l", Name: "bash"})
	if out := w.Advance(nil, s); len(out) != 0 {
		t.Fatalf("a call begins before the one before it is complete: %s", out)
	}
	s.Calls[0].Arguments = []byte(`{"a":1}`)
	if out := w.Advance(nil, s); !bytes.Contains(out, []byte(`"call_id":"l"`)) {
		t.Fatalf("%s", out)
	}
}

func TestResponsesReasoningIsSealedWhenAsked(t *testing.T) {
	said := &Said{Reasoning: []byte("r"), Finish: "length"}
	for more, want := range map[string]bool{
		`"store":false`: true, `"store":true`: false, `"include":["reasoning.encrypted_content"]`: true, `"include":[]`: false,
	} {
		out := ResponsesWhole(responsesRequest(t, more), Answer{ID: "1"}, said)
		if got := bytes.Contains(out, []byte(sealPrefix)); got != want {
			t.Errorf("%s: %s", more, out)
		}
		if !bytes.Contains(out, []byte(`"incomplete_details":{"reason":"max_output_tokens"}`)) || !bytes.Contains(out, []byte(`"status":"incomplete"}],`)) {
			t.Errorf("%s: %s", more, out)
		}
	}
}

func TestResponsesStreamFails(t *testing.T) {
	for status, code := range map[int]string{502: "server_error", 429: "rate_limit_exceeded", 400: "invalid_prompt"} {
		w := NewResponsesStream(responsesRequest(t, `"stream":true`), Answer{ID: "7"})
		stream := w.Advance(nil, &Said{Text: []byte("he")})
		got := receive(t, w.Fail(stream, status, "gone"))
		if n := len(got.events); got.events[n-2] != "error" || got.events[n-1] != "response.failed" {
			t.Errorf("%v", got.events)
		}
		failed := w.Fail(nil, status, "gone")
		if !bytes.Contains(failed, []byte(`"error":{"code":"`+code+`","message":"gone"}`)) {
			t.Errorf("%s", failed)
		}
	}
}

// A call that was cut still makes a well-formed stream.
func TestResponsesCutCall(t *testing.T) {
	w := NewResponsesStream(responsesRequest(t, `"stream":true`), Answer{ID: "q-1", Created: 9})
	said := &Said{Calls: []SaidCall{{ID: "k", Name: "bash", Arguments: []byte(`{"command": "l`)}, {Name: "bash"}}, Finish: "length"}
	rest, terminal := w.End(nil, said)
	got := receive(t, append(rest, terminal...))
	if got.Status != "incomplete" || got.Output[0].Arguments.OfString != `{"command": "l` || got.Output[1].Status != "incomplete" || got.Output[1].CallID != "call_q-1_1" {
		t.Errorf("%s", got.RawJSON())
	}
}

func TestResponsesCount(t *testing.T) {
	if got := string(ResponsesCount(7)); got != `{"object":"response.input_tokens","input_tokens":7}` {
		t.Error(got)
	}
}
