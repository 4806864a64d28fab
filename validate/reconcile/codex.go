package reconcile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// codexReader reads codex's rollout log. What an answer brought stands there as response items; the answer ends with
// its usage: token_usage_record in newer versions, a token_count event in all. Newer ones repeat the usage in the event
// after the tools ran, so that an event without new items before it says nothing.
type codexReader struct {
	t    Trajectory
	open *Step // the answer that items belong to
	// outputs says that tools have answered the open step, so that the next item is another answer's.
	outputs bool
}

type codexPayload struct {
	Type       string          `json:"type"`
	ID         text            `json:"id"`
	SessionID  text            `json:"session_id"`
	Role       text            `json:"role"`
	CallID     text            `json:"call_id"`
	Content    json.RawMessage `json:"content"`
	Message    json.RawMessage `json:"message"` // of an event
	Error      json.RawMessage `json:"error"`   // of task_complete
	ResponseID text            `json:"response_id"`
	Usage      *codexUsage     `json:"usage"`
	Info       *struct {
		Last *codexUsage `json:"last_token_usage"`
	} `json:"info"`
}

type codexUsage struct {
	Input  *int64 `json:"input_tokens"` // cached tokens included
	Output *int64 `json:"output_tokens"`
}

func (r *codexReader) add(value json.RawMessage) error {
	var line struct {
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(value, &line); err != nil {
		return err
	}
	switch line.Type {
	case "session_meta", "response_item", "event_msg", "token_usage_record":
	default:
		return nil // settings and state, whose fields have other forms
	}
	var p codexPayload
	if err := json.Unmarshal(line.Payload, &p); err != nil {
		return fmt.Errorf("%s: %w", line.Type, err)
	}
	switch line.Type {
	case "session_meta":
		if r.t.SessionID = string(p.SessionID); r.t.SessionID == "" {
			r.t.SessionID = string(p.ID)
		}
	case "response_item":
		return r.item(&p)
	case "token_usage_record":
		r.usage(p.Usage, string(p.ResponseID))
	case "event_msg":
		r.event(&p)
	}
	return nil
}

func (r *codexReader) item(p *codexPayload) error {
	switch p.Type {
	case "message":
		if p.Role != "assistant" {
			r.outputs = r.open != nil
			return nil
		}
		var parts []struct {
			Text text `json:"text"`
		}
		if err := json.Unmarshal(p.Content, &parts); err != nil {
			return fmt.Errorf("content of message %s: %w", p.ID, err)
		}
		step := r.step()
		for _, part := range parts {
			step.Text = strings.TrimSpace(step.Text + " " + string(part.Text))
		}
	case "reasoning":
		r.step()
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call":
		step := r.step()
		step.ToolCalls = append(step.ToolCalls, string(p.CallID))
	default:
		if strings.HasSuffix(p.Type, "_output") {
			r.outputs = r.open != nil
		}
	}
	return nil
}

// step is the answer that an item belongs to.
func (r *codexReader) step() *Step {
	if r.outputs {
		r.close()
	}
	if r.open == nil {
		r.open = &Step{}
	}
	return r.open
}

func (r *codexReader) close() {
	if r.open == nil {
		return
	}
	if r.open.ID == "" {
		r.open.ID = fmt.Sprintf("answer %d", len(r.t.Steps)+1)
	}
	r.t.Steps = append(r.t.Steps, *r.open)
	r.open, r.outputs = nil, false
}

// usage ends an answer.
func (r *codexReader) usage(u *codexUsage, id string) {
	if r.open == nil || u == nil {
		return
	}
	r.open.Prompt, r.open.Completion = u.Input, u.Output
	if id != "" {
		r.open.ID = "response " + id
	}
	r.close()
}

func (r *codexReader) event(p *codexPayload) {
	switch p.Type {
	case "token_count":
		if p.Info != nil {
			r.usage(p.Info.Last, "")
		}
	case "stream_error":
		r.t.Retries = append(r.t.Retries, "the harness logged a stream that broke: "+clip(errorText(p.Message)))
	case "error":
		r.failed(p.Message)
	case "task_complete":
		if len(p.Error) > 0 && string(p.Error) != "null" {
			r.failed(p.Error)
		}
	}
}

// failed adds an error once: codex says it as an event and again when the task ends.
func (r *codexReader) failed(message json.RawMessage) {
	r.close()
	step := Step{ID: "error event", Text: normal(errorText(message)), Synthetic: true}
	if n := len(r.t.Steps); n > 0 && r.t.Steps[n-1].Synthetic && r.t.Steps[n-1].Text == step.Text {
		return
	}
	r.t.Steps = append(r.t.Steps, step)
}

// errorText is the message of an error, which is a string or an object with one.
func errorText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var object struct {
		Message text `json:"message"`
	}
	if json.Unmarshal(raw, &object) == nil && object.Message != "" {
		return string(object.Message)
	}
	return string(raw)
}

func (r *codexReader) finish() Trajectory {
	r.close()
	r.t.Kind = Codex
	return r.t
}
