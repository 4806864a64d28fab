package reconcile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// claudeReader reads claude-code's session log: a line per content block of an answer, all blocks of one answer with
// the same message id. Errors that the API answered become an assistant message of the model "<synthetic>".
type claudeReader struct {
	t    Trajectory
	byID map[string]int // of the answer, its step
}

type claudeLine struct {
	Type       string        `json:"type"`
	Subtype    string        `json:"subtype"`
	SessionID  string        `json:"sessionId"`
	UUID       string        `json:"uuid"`
	APIError   bool          `json:"isApiErrorMessage"`
	RetryCount *int          `json:"retryAttempt"`
	Message    claudeMessage `json:"message"`
}

type claudeMessage struct {
	ID         string          `json:"id"`
	Model      string          `json:"model"`
	Content    json.RawMessage `json:"content"`
	StopReason *string         `json:"stop_reason"`
	Usage      struct {
		Input         *int64 `json:"input_tokens"`
		CacheCreation *int64 `json:"cache_creation_input_tokens"`
		CacheRead     *int64 `json:"cache_read_input_tokens"`
		Output        *int64 `json:"output_tokens"`
	} `json:"usage"`
}

type claudeBlock struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Text string `json:"text"`
}

func (r *claudeReader) add(value json.RawMessage) error {
	var kind struct {
		Type text `json:"type"`
	}
	if err := json.Unmarshal(value, &kind); err != nil || kind.Type != "assistant" && kind.Type != "system" {
		return err // other lines have fields of the same names and other forms
	}
	var line claudeLine
	if err := json.Unmarshal(value, &line); err != nil {
		return err
	}
	if r.t.SessionID == "" {
		r.t.SessionID = line.SessionID
	}
	if line.Type == "system" {
		if line.Subtype == "api_error" && line.RetryCount != nil {
			r.t.Retries = append(r.t.Retries, fmt.Sprintf("the harness logged an API error, its attempt %d of one call", *line.RetryCount))
		}
		return nil
	}
	return r.answer(&line)
}

func (r *claudeReader) answer(line *claudeLine) error {
	m := &line.Message
	id := m.ID
	if id == "" {
		id = line.UUID
	}
	i, seen := r.byID[id]
	if !seen {
		if r.byID == nil {
			r.byID = map[string]int{}
		}
		i = len(r.t.Steps)
		r.byID[id] = i
		r.t.Steps = append(r.t.Steps, Step{ID: "message " + id, Synthetic: line.APIError || m.Model == "<synthetic>"})
	}
	step := &r.t.Steps[i]
	if m.StopReason != nil && !step.Synthetic { // until then the counts are those of the stream's first event
		step.Prompt = sum(m.Usage.Input, m.Usage.CacheCreation, m.Usage.CacheRead)
		step.Completion = m.Usage.Output
	}
	if len(m.Content) > 0 && m.Content[0] == '"' {
		return json.Unmarshal(m.Content, &step.Text)
	}
	var blocks []claudeBlock
	if err := json.Unmarshal(m.Content, &blocks); err != nil {
		return fmt.Errorf("content of message %s: %w", id, err)
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			step.Text = strings.TrimSpace(step.Text + " " + b.Text)
		case "tool_use":
			step.ToolCalls = append(step.ToolCalls, b.ID)
		}
	}
	return nil
}

func (r *claudeReader) finish() Trajectory {
	r.t.Kind = ClaudeCode
	return r.t
}
