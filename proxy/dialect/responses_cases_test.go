package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/wiretest"
)

// BC43: an unknown id is refused, never a fresh start.
func TestBC43UnknownResponse(t *testing.T) {
	bodies := caseBodies(t, "BC43", "/v1/responses")
	if r, err := DecodeResponses(bodies[0], nil); err != nil || len(r.Messages) != 1 {
		t.Errorf("%v", err)
	}
	for _, body := range bodies[1:3] {
		_, err := DecodeResponses(body, func(string) ([]json.RawMessage, bool) { return nil, false })
		var bad *Error
		if !errors.As(err, &bad) || bad.Status != 400 || bad.Param != "previous_response_id" {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// BC44: a request to compact is refused at once, in words that say what to do.
func TestBC44Compaction(t *testing.T) {
	refused := 0
	for _, body := range caseBodies(t, "BC44", "/v1/responses") {
		if _, err := DecodeResponses(body, nil); err != nil {
			refused++
			if !strings.Contains(err.Error(), "compaction off") {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d refused", refused)
	}
}

// BC45: developer, custom calls and a namespace.
func TestBC45ResponsesShapes(t *testing.T) {
	r := decodeResponses(t, string(caseBodies(t, "BC45", "/v1/responses")[0]), nil)
	var roles []string
	for _, m := range r.Messages {
		roles = append(roles, memberText(m, "role"))
	}
	if d := cmp.Diff([]string{"system", "assistant", "tool"}, roles); d != "" {
		t.Error(d)
	}
	if len(r.Tools) != 2 || len(r.Edits) != 0 {
		t.Errorf("tools %s, edits %+v", r.Tools, r.Edits)
	}
}

// What vLLM's and llama.cpp's own Responses endpoints make of their answers, ours makes of what was said in them (WIRE.md).
func TestResponsesRecordedAnswers(t *testing.T) {
	for _, c := range []struct{ engine, name string }{
		{"vllm-0.32.0", "j_resp"}, {"vllm-0.32.0", "j_resp_stream"}, {"vllm-0.32.0", "j_resp_kv"}, {"vllm-0.32.0", "j_resp_text"},
		{"llamacpp", "g_resp"}, {"llamacpp", "g_resp_stream"},
	} {
		e := wiretest.Load(t, c.engine, c.name)
		r := decodeResponses(t, string(e.Request), nil)
		if r.Stream != e.SSE() {
			t.Errorf("%s: stream %v", c.name, r.Stream)
		}
		theirs := e.Body
		if e.SSE() {
			_, last, _ := bytes.Cut(e.Body, []byte("event: response.completed\ndata: "))
			last, _, _ = bytes.Cut(last, []byte("\n"))
			theirs = []byte(parentOf(t, last))
		}
		said := saidIn(t, theirs)
		var ours []byte
		if e.SSE() {
			w := NewResponsesStream(r, Answer{ID: "1"})
			_, terminal := w.End(nil, said)
			_, data, _ := bytes.Cut(terminal, []byte("data: "))
			ours = []byte(parentOf(t, data))
		} else {
			ours = ResponsesWhole(r, Answer{ID: "1"}, said)
		}
		if d := cmp.Diff(said, saidIn(t, ours)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		for _, key := range keysOf(t, theirs) {
			if !slices.Contains(keysOf(t, ours), key) && !slices.Contains(vllmOnly, key) {
				t.Errorf("%s: a response of ours has no %s", c.name, key)
			}
		}
	}
}

// vllmOnly are members that the Responses API does not know, or that only a finished response has.
var vllmOnly = []string{
	"presence_penalty", "frequency_penalty", "kv_transfer_params", "ec_transfer_params", "input_messages", "output_messages", "prompt", "completed_at",
}

func parentOf(t *testing.T, event []byte) string {
	var e struct{ Response json.RawMessage }
	if err := json.Unmarshal(event, &e); err != nil {
		t.Fatalf("%v in %s", err, event)
	}
	return string(e.Response)
}

func keysOf(t *testing.T, object []byte) []string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key := range members {
		keys = append(keys, key)
	}
	return keys
}

func saidIn(t *testing.T, response []byte) *Said {
	var r struct {
		Output []struct {
			Type, Name, Arguments string
			CallID                string `json:"call_id"`
			Content               []struct{ Type, Text string }
		}
		Usage struct {
			In      int64 `json:"input_tokens"`
			Out     int64 `json:"output_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			Thought struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		}
	}
	if err := json.Unmarshal(response, &r); err != nil {
		t.Fatal(err)
	}
	s := &Said{Usage: SaidUsage{Prompt: r.Usage.In, Completion: r.Usage.Out, Cached: r.Usage.Details.Cached, Thinking: r.Usage.Thought.Reasoning}}
	for _, it := range r.Output {
		for _, part := range it.Content {
			switch part.Type {
			case "reasoning_text":
				s.Reasoning = append(s.Reasoning, part.Text...)
			case "output_text":
				s.Text = append(s.Text, part.Text...)
			}
		}
		if it.Type == "function_call" {
			s.Calls = append(s.Calls, SaidCall{ID: it.CallID, Name: it.Name, Arguments: []byte(it.Arguments)})
		}
	}
	return s
}
