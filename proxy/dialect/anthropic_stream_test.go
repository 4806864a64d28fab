package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// heard is what Anthropic's own client makes of a stream.
type heard struct {
	anthropic.Message
	inputs []string // the argument text of each call, as the events had it
	events []string // the events' types; of content blocks with the index
}

// hear reads a stream with Anthropic's own client.
func hear(stream []byte) (*heard, error) {
	h := &heard{}
	calls := map[int64]int{}
	resp := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(stream))}
	events := ssestream.NewStream[anthropic.MessageStreamEventUnion](ssestream.NewDecoder(resp), nil)
	for events.Next() {
		e := events.Current()
		name := e.Type
		if strings.HasPrefix(name, "content_block") {
			name = fmt.Sprintf("%s %d", name, e.Index)
		}
		h.events = append(h.events, name)
		if e.Type == "content_block_start" && e.ContentBlock.Type == "tool_use" {
			calls[e.Index] = len(h.inputs)
			h.inputs = append(h.inputs, "")
		}
		if e.Delta.Type == "input_json_delta" {
			h.inputs[calls[e.Index]] += e.Delta.PartialJSON
		}
		if err := h.Accumulate(e); err != nil {
			return h, err
		}
	}
	return h, events.Err()
}

// growing draws what an engine says, as it grows: each step is longer than the one before, the last one is finished.
func growing(t *rapid.T) []*Said {
	text := rapid.StringMatching(`([a-z ]|\n|é|漢|😀|"|\\|<|\x01){0,6}`)
	arguments := rapid.SampledFrom([]string{
		`{"command": "ls -la"}`, `{}`, `{"n":1.50,"big":9007199254740993}`, `{"s":"\u00e9 é 漢 😀"}`, ``, `[1]`, `{"cut":"mid`, `{"command": "ls"} `, `{}{"a":1}`, "{\n \"a\": 1\n}",
	})
	now := &Said{}
	var steps []*Said
	grown := func() { // by whole pieces, or byte by byte
		copied := *now
		copied.Calls = append([]SaidCall(nil), now.Calls...)
		steps = append(steps, &copied)
	}
	write := func(field func() *[]byte, piece string) {
		size := rapid.IntRange(1, 7).Draw(t, "bytes at a time")
		for len(piece) > 0 {
			n := min(size, len(piece))
			f := field()
			*f = append((*f)[:len(*f):len(*f)], piece[:n]...)
			piece = piece[n:]
			grown()
		}
	}
	for range rapid.IntRange(0, 6).Draw(t, "pieces") {
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			write(func() *[]byte { return &now.Reasoning }, text.Draw(t, "reasoning"))
		case 1:
			write(func() *[]byte { return &now.Text }, text.Draw(t, "text"))
		case 2:
			write(func() *[]byte { return &now.Refusal }, text.Draw(t, "refusal"))
		case 3:
			i := len(now.Calls)
			now.Calls = append(now.Calls, SaidCall{ID: fmt.Sprintf("call_%d", i), Name: "bash"})
			grown()
			write(func() *[]byte { return &now.Calls[i].Arguments }, arguments.Draw(t, "arguments"))
		case 4: // two calls whose arguments come by turns
			i := len(now.Calls)
			now.Calls = append(now.Calls, SaidCall{ID: fmt.Sprintf("call_%d", i), Name: "a"}, SaidCall{ID: fmt.Sprintf("call_%d", i+1), Name: "b"})
			one, two := arguments.Draw(t, "arguments"), arguments.Draw(t, "arguments")
			half := rapid.IntRange(0, len(one)).Draw(t, "half")
			write(func() *[]byte { return &now.Calls[i].Arguments }, one[:half])
			write(func() *[]byte { return &now.Calls[i+1].Arguments }, two)
			write(func() *[]byte { return &now.Calls[i].Arguments }, one[half:])
		}
	}
	now.Finish = rapid.SampledFrom([]string{"stop", "length", "tool_calls", "content_filter", "abort"}).Draw(t, "finish")
	if now.Finish == "stop" && rapid.Bool().Draw(t, "stop string") {
		now.Stop = "\n\n"
	}
	now.Usage = SaidUsage{Known: true, Prompt: 163, Completion: 31, Cached: 128, Thinking: 8}
	grown()
	return steps
}

// TestAnthropicStreamProperty grows an answer in random steps and lets Anthropic's own client read the stream: it hears
// what was said, and sent back as it heard it, that is what the engine gets to see again.
func TestAnthropicStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		w := NewAnthropicStream(&Request{Model: "claude-x"}, Answer{ID: "7"})
		var stream []byte
		for _, s := range steps[:len(steps)-1] {
			stream = w.Advance(stream, s)
		}
		said := steps[len(steps)-1]
		rest, terminal := w.End(nil, said)
		h, err := hear(append(append(stream, rest...), terminal...))
		if err != nil {
			t.Fatal(err)
		}
		checkHeard(t, h, said)
		checkOrder(t, h.events)
		echoed, err := json.Marshal(h.ToParam())
		if err != nil {
			t.Fatal(err)
		}
		checkEcho(t, echoed, said, false)
	})
}

func checkHeard(t *rapid.T, h *heard, said *Said) {
	var text, reasoning, refusal string
	var calls []string
	for _, c := range h.Content {
		switch c.Type {
		case "text":
			text += c.Text
		case "thinking":
			own, ok := Unseal(c.Signature)
			if !ok || string(own) != c.Thinking {
				t.Fatalf("signature of %q holds %q, %v", c.Thinking, own, ok)
			}
			reasoning += c.Thinking
		case "tool_use":
			calls = append(calls, c.ID+" "+c.Name)
		}
	}
	if len(said.Refusal) > 0 {
		refusal = string(said.Refusal) // its place among the text is free
	}
	if reasoning != string(said.Reasoning) || len(text) != len(said.Text)+len(refusal) || refusal == "" && text != string(said.Text) {
		t.Fatalf("heard %q and %q", reasoning, text)
	}
	if len(calls) != len(said.Calls) {
		t.Fatalf("heard calls %v", calls)
	}
	for i, c := range said.Calls {
		if calls[i] != c.ID+" "+c.Name {
			t.Fatalf("call %d is %s", i, calls[i])
		}
		// Space that comes behind an object when the next call has begun is all that may be lost.
		if got := h.inputs[i]; got != string(c.Arguments) && got != strings.TrimRight(string(c.Arguments), " ") && !strings.HasPrefix(string(c.Arguments), "{}{") {
			t.Fatalf("arguments %q, want %q", got, c.Arguments)
		}
	}
	if h.ID != "msg_7" || h.Role != "assistant" || h.Model != "claude-x" || string(h.StopReason) != stopReason(said) || (h.StopSequence != "") != (stopReason(said) == "stop_sequence") {
		t.Fatalf("heard %s", h.RawJSON())
	}
	if u := h.Usage; u.InputTokens != 35 || u.CacheReadInputTokens != 128 || u.OutputTokens != 31 || u.OutputTokensDetails.ThinkingTokens != 8 || !u.JSON.CacheCreation.Valid() {
		t.Fatalf("usage %s", u.RawJSON())
	}
}

// checkOrder holds a stream to the order of events: one block at a time, each with something in it.
func checkOrder(t interface{ Fatalf(string, ...any) }, events []string) {
	if len(events) < 3 || events[0] != "message_start" || events[len(events)-2] != "message_delta" || events[len(events)-1] != "message_stop" {
		t.Fatalf("events %v", events)
	}
	index, open := 0, false
	for _, e := range events[1 : len(events)-2] {
		var want string
		switch {
		case !open:
			want, open = "content_block_start", true
		case strings.HasPrefix(e, "content_block_stop"):
			want = "content_block_stop"
			open = false
		default:
			want = "content_block_delta"
		}
		if e != fmt.Sprintf("%s %d", want, index) {
			t.Fatalf("%s where %s %d was due: %v", e, want, index, events)
		}
		if !open {
			index++
		}
	}
	if open {
		t.Fatalf("block %d never ends: %v", index, events)
	}
}

// checkEcho decodes a request whose history holds an answer of ours as a harness sends it back. exact says that the
// harness keeps the bytes of arguments, cut ones too.
func checkEcho(t *rapid.T, echoed []byte, said *Said, exact bool) {
	r, err := DecodeAnthropic(fmt.Appendf(nil, `{"messages":[{"role":"user","content":"u"},%s,{"role":"user","content":"v"}]}`, echoed))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Messages) != 3 || len(r.Edits) != 0 {
		t.Fatalf("messages %s, edits %+v", r.Messages, r.Edits)
	}
	var m struct {
		Role, Content string
		Reasoning     string
		ToolCalls     []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(r.Messages[1], &m); err != nil {
		t.Fatal(err)
	}
	if m.Role != "assistant" || m.Reasoning != string(said.Reasoning) || len(said.Refusal) == 0 && m.Content != string(said.Text) || len(m.ToolCalls) != len(said.Calls) {
		t.Fatalf("%s is not %q %q", r.Messages[1], said.Reasoning, said.Text)
	}
	for i, c := range said.Calls {
		got := m.ToolCalls[i]
		if got.ID != c.ID || got.Function.Name != c.Name {
			t.Fatalf("call %+v", got)
		}
		switch want := strings.TrimSpace(string(c.Arguments)); { // space around a value is no part of it
		case want == "":
			want = "{}"
			fallthrough
		case exact:
			if strings.TrimSpace(got.Function.Arguments) != want {
				t.Fatalf("arguments %q, want %q", got.Function.Arguments, want)
			}
		case json.Valid(c.Arguments): // this client writes JSON anew, without spaces
			if d := cmp.Diff(decoded(want), decoded(got.Function.Arguments)); d != "" {
				t.Fatal(d)
			}
		}
	}
}

func decoded(text string) any {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

func TestAnthropicWholeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := growing(t)
		said := steps[len(steps)-1]
		whole := AnthropicWhole(&Request{Model: "claude-x"}, Answer{ID: "7"}, said)
		h := &heard{}
		if err := json.Unmarshal(whole, &h.Message); err != nil {
			t.Fatalf("%s: %v", whole, err)
		}
		var content struct{ Content json.RawMessage }
		if err := json.Unmarshal(whole, &content); err != nil {
			t.Fatal(err)
		}
		for i := range said.Calls {
			h.inputs = append(h.inputs, string(said.Calls[i].Arguments)) // compared below, byte for byte
		}
		checkHeard(t, h, said)
		checkEcho(t, fmt.Appendf(nil, `{"role":"assistant","content":%s}`, content.Content), said, true)
	})
}

// The first answer of the two is told in one piece, the other byte by byte: the events differ in nothing but how much
// each tells.
func TestAnthropicStreamText(t *testing.T) {
	said := &Said{Reasoning: []byte("hm é"), Text: []byte("ok"), Calls: []SaidCall{{ID: "k", Name: "f", Arguments: []byte(`{"a":1}`)}, {Name: "g"}}, Finish: "tool_calls"}
	w := NewAnthropicStream(&Request{Model: `m"`}, Answer{ID: "1"})
	rest, terminal := w.End(nil, said)
	const usage = `{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0},` +
		`"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}}`
	want := `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m\"","content":[],"stop_reason":null,"stop_sequence":null,"usage":` + usage + `}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm é"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"` + Seal([]byte("hm é")) + `"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ok"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"k","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1_1","name":"g","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":` + usage + `}

`
	if d := cmp.Diff(want, string(rest)); d != "" {
		t.Error(d)
	}
	if got := string(terminal); got != "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n" {
		t.Errorf("terminal %q", got)
	}
}

// Nothing new is no event, half a character waits, and a later call waits for the one before it.
func TestAnthropicStreamIsLive(t *testing.T) {
	w := NewAnthropicStream(&Request{}, Answer{})
	step := func(s *Said) string { return string(w.Advance(nil, s)) }
	s := &Said{}
	if got := step(s); !strings.HasPrefix(got, "event: message_start\n") || strings.Contains(got, "content_block") {
		t.Errorf("opened with %q", got)
	}
	if got := step(s); got != "" {
		t.Errorf("nothing new gave %q", got)
	}
	s.Text = []byte("a\xe6\xbc")
	if got := step(s); !strings.Contains(got, `"text":"a"`) || strings.Contains(got, "\ufffd") {
		t.Errorf("half a character: %q", got)
	}
	if got := step(s); got != "" {
		t.Errorf("half a character gave %q", got)
	}
	s.Text = []byte("a\xe6\xbc\xa2")
	if got := step(s); !strings.Contains(got, `"text":"漢"`) {
		t.Errorf("the rest of it: %q", got)
	}
	s.Calls = []SaidCall{{ID: "k1", Name: "f", Arguments: []byte(`{"a"`)}, {ID: "k2", Name: "g", Arguments: []byte(`{}`)}}
	if got := step(s); !strings.Contains(got, `"k1"`) || strings.Contains(got, `"k2"`) {
		t.Errorf("two calls: %q", got)
	}
	s.Calls[0].Arguments = []byte(`{"a":1}`)
	if got := step(s); !strings.Contains(got, `"partial_json":":1}"`) || !strings.Contains(got, `"k2"`) {
		t.Errorf("the first call is whole: %q", got)
	}
	s.Text = []byte("a\xe6\xbc\xa2 b")
	if got := step(s); !strings.Contains(got, `"text":" b"`) || !strings.Contains(got, `"index":3`) {
		t.Errorf("text behind calls: %q", got)
	}
}

// A call that the output cap cut: the stream tells what there is of it, a whole answer says that it is no JSON, and both
// say why. Nothing is closed, emptied or made up.
func TestAnthropicCutCall(t *testing.T) {
	said := &Said{Calls: []SaidCall{{ID: "k", Name: "bash", Arguments: []byte(`{"command": "rm -rf /tmp/x`)}}, Finish: "length"}
	rest, terminal := NewAnthropicStream(&Request{}, Answer{}).End(nil, said)
	h, err := hear(append(rest, terminal...))
	if err != nil || h.inputs[0] != `{"command": "rm -rf /tmp/x` || h.StopReason != "max_tokens" {
		t.Errorf("heard %q, %s, %v", h.inputs, h.StopReason, err)
	}
	checkOrder(t, h.events)
	whole := string(AnthropicWhole(&Request{}, Answer{}, said))
	if !strings.Contains(whole, `"input":{"__unparsed_arguments":"{\"command\": \"rm -rf /tmp/x"}`) || !strings.Contains(whole, `"stop_reason":"max_tokens"`) {
		t.Errorf("whole: %s", whole)
	}
}

func TestAnthropicStopReasons(t *testing.T) {
	call := []SaidCall{{ID: "k", Name: "f", Arguments: []byte("{}")}}
	for _, c := range []struct {
		said *Said
		want string
	}{
		{&Said{Finish: "stop"}, "end_turn"}, {&Said{Finish: "length"}, "max_tokens"}, {&Said{Finish: "tool_calls", Calls: call}, "tool_use"}, {&Said{Finish: "function_call", Calls: call}, "tool_use"},
		{&Said{Finish: "stop", Calls: call}, "tool_use"}, {&Said{Finish: "stop", Stop: "x"}, "stop_sequence"}, {&Said{Finish: "content_filter"}, "refusal"},
		{&Said{Finish: "stop", Refusal: []byte("no")}, "refusal"}, {&Said{Finish: "length", Calls: call}, "max_tokens"}, {&Said{Finish: "abort"}, "max_tokens"}, {&Said{Finish: "repetition"}, "max_tokens"},
	} {
		if got := stopReason(c.said); got != c.want {
			t.Errorf("%+v: %s, want %s", c.said, got, c.want)
		}
	}
}

// Errors reach Anthropic's own client as errors, before the answer and in the middle of it; a ping reaches nobody.
func TestAnthropicStreamFails(t *testing.T) {
	for _, begun := range []bool{false, true} {
		w := NewAnthropicStream(&Request{}, Answer{ID: "1"})
		var stream []byte
		if begun {
			stream = append(w.Advance(nil, &Said{Text: []byte("half")}), AnthropicPing...)
		}
		h, err := hear(w.Fail(stream, 502, "the engine's stream broke off"))
		if err == nil || !strings.Contains(err.Error(), "broke off") || !strings.Contains(err.Error(), "api_error") {
			t.Errorf("begun %v: %v", begun, err)
		}
		if begun && (len(h.Content) != 1 || h.Content[0].Text != "half") {
			t.Errorf("heard %s", h.RawJSON())
		}
	}
}

func TestAnthropicCount(t *testing.T) {
	var got anthropic.MessageTokensCount
	if err := json.Unmarshal(AnthropicCount(163), &got); err != nil || got.InputTokens != 163 {
		t.Errorf("%+v, %v", got, err)
	}
}
