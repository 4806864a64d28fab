package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// odd is an engine that renders no past as it was sampled.
var odd = fakeengine.Odd{Arguments: true, Thinking: true, Field: true, Space: true, Split: true}

// newContinuityRig is a proxy in front of the built-in engine, with a session whose continuity is as given.
func newContinuityRig(t *testing.T, o fakeengine.Options, mode string) (*rig, *fakeengine.Server) {
	t.Helper()
	e, err := fakeengine.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return newRig(t, e.URL, rigOptions{session: func(s *record.Session) { s.Spec.Continuity = mode }}), e
}

// wire is how an agent plays one task in one dialect, unstreamed and by hand.
type wire struct {
	path string
	// body is the request for a history; answer takes an answer into it, and says whether a tool was called.
	body   func(history []json.RawMessage) string
	answer func(t *testing.T, history []json.RawMessage, body []byte) ([]json.RawMessage, bool)
	opens  string
}

func join(list []json.RawMessage) string {
	var parts []string
	for _, raw := range list {
		parts = append(parts, string(raw))
	}
	return strings.Join(parts, ",")
}

func into(t *testing.T, body []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}

var wires = map[record.Dialect]wire{
	record.OpenAIChat: {
		path: "/v1/chat/completions", opens: `{"role":"user","content":"List the files."}`,
		body: func(h []json.RawMessage) string {
			return `{"model":"m","tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}],"messages":[` + join(h) + `]}`
		},
		answer: func(t *testing.T, h []json.RawMessage, body []byte) ([]json.RawMessage, bool) {
			var a struct {
				Choices []struct{ Message json.RawMessage }
			}
			into(t, body, &a)
			var m struct {
				ToolCalls []struct{ ID string } `json:"tool_calls"`
			}
			into(t, a.Choices[0].Message, &m)
			h = append(h, a.Choices[0].Message)
			for _, call := range m.ToolCalls {
				h = append(h, json.RawMessage(`{"role":"tool","tool_call_id":"`+call.ID+`","content":"done"}`))
			}
			return h, len(m.ToolCalls) > 0
		},
	},
	record.AnthropicMessages: {
		path: "/v1/messages", opens: `{"role":"user","content":"List the files."}`,
		body: func(h []json.RawMessage) string {
			return `{"model":"m","max_tokens":900,"system":"x-anthropic-billing-header: cch=` + fmt.Sprint(len(h)) + `;","tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],"messages":[` + join(h) + `]}`
		},
		answer: func(t *testing.T, h []json.RawMessage, body []byte) ([]json.RawMessage, bool) {
			var a struct{ Content []json.RawMessage }
			into(t, body, &a)
			var results []json.RawMessage
			for _, raw := range a.Content {
				var block struct{ Type, ID string }
				into(t, raw, &block)
				if block.Type == "tool_use" {
					results = append(results, json.RawMessage(`{"type":"tool_result","tool_use_id":"`+block.ID+`","content":"done"}`))
				}
			}
			h = append(h, json.RawMessage(`{"role":"assistant","content":[`+join(a.Content)+`]}`))
			if results == nil {
				return h, false
			}
			return append(h, json.RawMessage(`{"role":"user","content":[`+join(results)+`]}`)), true
		},
	},
	record.OpenAIResponses: {
		path: "/v1/responses", opens: `{"type":"message","role":"user","content":"List the files."}`,
		body: func(h []json.RawMessage) string {
			return `{"model":"m","store":false,"include":["reasoning.encrypted_content"],"tools":[{"type":"function","name":"shell","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}],"input":[` + join(h) + `]}`
		},
		answer: func(t *testing.T, h []json.RawMessage, body []byte) ([]json.RawMessage, bool) {
			var a struct{ Output []json.RawMessage }
			into(t, body, &a)
			called := false
			h = append(h, a.Output...)
			for _, raw := range a.Output {
				var item struct {
					Type   string
					CallID string `json:"call_id"`
				}
				into(t, raw, &item)
				if item.Type == "function_call" {
					called = true
					h = append(h, json.RawMessage(`{"type":"function_call_output","call_id":"`+item.CallID+`","output":"done"}`))
				}
			}
			return h, called
		},
	},
	record.Google: {
		path: "/v1beta/models/m:generateContent", opens: `{"role":"user","parts":[{"text":"List the files."}]}`,
		body: func(h []json.RawMessage) string {
			return `{"tools":[{"functionDeclarations":[{"name":"run_shell_command","parameters":{"type":"OBJECT","properties":{"command":{"type":"STRING"}}}}]}],"contents":[` + join(h) + `]}`
		},
		answer: func(t *testing.T, h []json.RawMessage, body []byte) ([]json.RawMessage, bool) {
			var a struct {
				Candidates []struct{ Content json.RawMessage }
			}
			into(t, body, &a)
			var content struct {
				Parts []struct{ FunctionCall *struct{ ID, Name string } }
			}
			into(t, a.Candidates[0].Content, &content)
			h = append(h, a.Candidates[0].Content)
			var results []json.RawMessage
			for _, p := range content.Parts {
				if p.FunctionCall != nil {
					results = append(results, json.RawMessage(`{"functionResponse":{"id":"`+p.FunctionCall.ID+`","name":"`+p.FunctionCall.Name+`","response":{"output":"done"}}}`))
				}
			}
			if results == nil {
				return h, false
			}
			return append(h, json.RawMessage(`{"role":"user","parts":[`+join(results)+`]}`)), true
		},
	},
}

// play plays the task to its end and returns the history.
func (r *rig) play(w wire) []json.RawMessage {
	r.t.Helper()
	history := []json.RawMessage{json.RawMessage(w.opens)}
	for range 10 {
		resp, body := r.post(w.path, w.body(history))
		if resp.StatusCode != http.StatusOK {
			r.t.Fatalf("%d %s", resp.StatusCode, body)
		}
		var called bool
		if history, called = w.answer(r.t, history, body); !called {
			return history
		}
	}
	r.t.Fatal("the task has no end")
	return nil
}

// bridged returns what the turns say about how they carry on: the prompt's source, and why it is not forced.
func bridged(doc *export.Rollout) (sources []record.PromptSource, whys []string) {
	for i := range doc.Turns {
		t := &doc.Turns[i]
		sources = append(sources, t.PromptSource)
		for _, e := range t.Edits {
			if e.Param == record.ParamPromptIDs && string(e.To) == "null" {
				whys = append(whys, e.Why)
			}
		}
	}
	return sources, whys
}

// sameAsTruth checks that every recorded prompt and answer is the one that the engine used.
func sameAsTruth(t *testing.T, e *fakeengine.Engine, calls []*record.Call) {
	t.Helper()
	for _, c := range calls {
		truth, ok := e.Truth("chatcmpl-" + c.RequestID)
		if !ok || !c.Outcome.IsNode() {
			continue
		}
		for _, ch := range c.Choices {
			if !slices.Equal(ch.PromptIDs, truth.Prompt) || !slices.Equal(ch.SampledIDs, truth.Sampled[ch.Index]) {
				t.Errorf("call %d: recorded are not the ids that the engine used", c.Number)
			}
		}
	}
}

// A conversation whose messages the engine renders otherwise than it sampled them is one row with continuity and several
// without, in every dialect.
func TestContinuityInEveryDialect(t *testing.T) {
	for d, w := range wires {
		t.Run(string(d), func(t *testing.T) {
			r, e := newContinuityRig(t, fakeengine.Options{Reasoning: true, Odd: odd}, "on")
			r.play(w)
			r.oneRow(4, d)
			doc := r.document(export.Options{})
			sources, whys := bridged(doc)
			if want := []record.PromptSource{"engine", "forced", "forced", "forced"}; !slices.Equal(sources, want) || whys != nil {
				t.Errorf("prompts from %v, %v", sources, whys)
			}
			if doc.Stats.Forced != 3 {
				t.Errorf("n_forced %d", doc.Stats.Forced)
			}
			sameAsTruth(t, e.Engine, r.calls())

			plain, _ := newContinuityRig(t, fakeengine.Options{Reasoning: true, Odd: odd}, "off")
			plain.play(w)
			if doc := plain.document(export.Options{}); len(doc.Sequences) < 2 || doc.Stats.Forced != 0 {
				t.Errorf("without continuity: %d rows", len(doc.Sequences))
			}
		})
	}
}
