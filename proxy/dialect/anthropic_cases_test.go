package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/wiretest"
)

// caseBodies returns the request bodies of a public bug report that go to a path.
func caseBodies(t testing.TB, id, path string) [][]byte {
	t.Helper()
	type request struct {
		Line string `json:"request_line"`
		Body json.RawMessage
		Raw  *string `json:"body_raw"`
	}
	var reports []struct {
		ID    string
		Input struct {
			Request  request
			Requests []request
		}
	}
	file, err := os.ReadFile(wiretest.Shared(t, "cases", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &reports); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, r := range reports {
		if r.ID != id {
			continue
		}
		for _, req := range append(r.Input.Requests, r.Input.Request) {
			if !strings.HasPrefix(req.Line, "POST "+path) {
				continue
			}
			if req.Raw != nil {
				req.Body = []byte(*req.Raw)
			}
			out = append(out, req.Body)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no request to %s", id, path)
	}
	return out
}

func decodeCase(t testing.TB, body []byte) *Request {
	t.Helper()
	r, err := DecodeAnthropic(body)
	if err != nil {
		t.Fatal(err)
	}
	wellTranslated(t, r)
	return r
}

// BC20: the nonce line changes with every request; without it the second prompt begins with the first.
func TestBC20NonceLine(t *testing.T) {
	bodies := caseBodies(t, "BC20", "/v1/messages")
	one, two := decodeCase(t, bodies[0]), decodeCase(t, bodies[1])
	if len(two.Messages) != 4 || !slices.EqualFunc(one.Messages, two.Messages[:2], func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		t.Errorf("%s does not begin with %s", two.Messages, one.Messages)
	}
	for i, r := range []*Request{one, two} {
		if bytes.Contains(r.Doc.Bytes, []byte("billing")) || !bytes.Equal(r.Original, bodies[i]) {
			t.Errorf("translated to %s", r.Doc.Bytes)
		}
		if len(r.Edits) != 1 || r.Edits[0].Param != "system[0]" || !strings.Contains(string(r.Edits[0].From), "cch=") {
			t.Errorf("edits %+v", r.Edits)
		}
	}
}

// BC28: what was thought goes into the engine's field; the provider's signatures and the redacted block are named and stay
// in the record.
func TestBC28SignedThinking(t *testing.T) {
	body := caseBodies(t, "BC28", "/v1/messages")[0]
	r := decodeCase(t, body)
	want := `{"role":"assistant","content":"","reasoning":"a \u003c b \/ c","tool_calls":[{"id":"u1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]}`
	if got := string(r.Messages[1]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	named := fmt.Sprint(params(r.Edits))
	if !strings.Contains(named, `signature "c2ln"`) || !strings.Contains(named, "redacted_thinking") || !bytes.Equal(r.Original, body) {
		t.Errorf("edits %s", named)
	}
	for _, secret := range []string{"c2ln", "ZGF0YQ==", "ZW1wdHk="} {
		if bytes.Contains(r.Doc.Bytes, []byte(secret)) {
			t.Errorf("%s went to the engine", secret)
		}
	}
}

// BC45: a system message in mid-conversation stays there; a tool that chat cannot say is left out by name.
func TestBC45NewShapes(t *testing.T) {
	r := decodeCase(t, caseBodies(t, "BC45", "/v1/messages")[0])
	want := `{"messages":[{"role":"system","content":"base"},{"role":"user","content":"a"},{"role":"system","content":"mode: plan"},{"role":"user","content":"b"}],"model":"m","max_tokens":9}`
	if got := string(r.Doc.Bytes); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if named := fmt.Sprint(params(r.Edits)); !strings.Contains(named, "web_search_20250305") || !strings.Contains(named, "context_management") {
		t.Errorf("edits %s", named)
	}
}

// BC46 C: neither empty tools nor a choice that has nothing to choose from.
func TestBC46EmptyTools(t *testing.T) {
	r := decodeCase(t, caseBodies(t, "BC46", "/v1/messages")[0])
	if got, want := string(r.Doc.Bytes), `{"messages":[{"role":"user","content":"x"}],"model":"m","max_tokens":9}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(r.Edits) != 2 || r.Tools != nil {
		t.Errorf("edits %+v", r.Edits)
	}
}

// BC49: a count request has no max_tokens.
func TestBC49CountTokens(t *testing.T) {
	r, err := CountTokensAnthropic(caseBodies(t, "BC49", "/v1/messages/count_tokens")[0])
	if err != nil {
		t.Fatal(err)
	}
	wellTranslated(t, r)
	if got, want := string(r.Doc.Bytes), `{"messages":[{"role":"user","content":"x"}],"model":"m"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What vLLM's own Messages endpoint makes of its answers, ours is read back as, byte for byte (WIRE.md 1).
func TestAnthropicRecordedAnswers(t *testing.T) {
	for _, name := range []string{"j_anth", "j_anth_stream"} {
		e := wiretest.Load(t, "vllm-0.32.0", name)
		r := decodeCase(t, e.Request)
		if len(r.Messages) != 1 || len(r.Tools) != 2 || r.Stream != e.SSE() {
			t.Errorf("%s: %s", name, r.Doc.Bytes)
		}
	}
	e := wiretest.Load(t, "vllm-0.32.0", "j_anth_stream")
	h, err := hear(e.Body)
	if err != nil {
		t.Fatal(err)
	}
	said := &Said{Finish: "tool_calls", Usage: SaidUsage{Known: true, Prompt: 163, Completion: 31}}
	for _, c := range h.Content {
		said.Text, said.Reasoning = append(said.Text, c.Text...), append(said.Reasoning, c.Thinking...)
		if c.Type == "tool_use" {
			said.Calls = append(said.Calls, SaidCall{ID: c.ID, Name: c.Name, Arguments: []byte(h.inputs[0])})
		}
	}
	rest, terminal := NewAnthropicStream(&Request{Model: "tiny"}, Answer{ID: "1"}).End(nil, said)
	ours, err := hear(append(rest, terminal...))
	if err != nil {
		t.Fatal(err)
	}
	if len(ours.Content) != len(h.Content) || ours.StopReason != h.StopReason || ours.inputs[0] != h.inputs[0] || ours.Content[1].Text != h.Content[1].Text {
		t.Errorf("ours  %s\nvLLM's %s", ours.RawJSON(), h.RawJSON())
	}
}

func FuzzDecodeAnthropic(f *testing.F) {
	for _, id := range []string{"BC20", "BC25", "BC28", "BC45", "BC46"} {
		for _, body := range caseBodies(f, id, "/v1/messages") {
			f.Add([]byte(body))
		}
	}
	f.Add([]byte(`{"system":[{"type":"text","text":"x-anthropic-billing-header: \\"}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"","data":""}},
		{"type":"document","source":{"type":"content","content":[{}]}},{"type":"tool_result","is_error":true,"content":[{"type":"text","text":"\ud800"}]}]}],"tools":[{"name":1,"strict":null}],
		"tool_choice":{"type":"tool"},"output_config":{"format":{"type":"json_schema","schema":{}}},"model":7,"stream":"yes","max_tokens":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		sent := bytes.Clone(body)
		r, err := DecodeAnthropic(body)
		if err != nil {
			return
		}
		wellTranslated(t, r)
		if !bytes.Equal(body, sent) {
			t.Fatal("the body was written to")
		}
		again, err := DecodeAnthropic(body)
		if err != nil || !bytes.Equal(again.Doc.Bytes, r.Doc.Bytes) {
			t.Fatal("the same body gave another translation")
		}
	})
}
