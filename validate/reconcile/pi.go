package reconcile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// piReader reads pi's session log, which has a line per message. A call that failed is an assistant message with the
// stop reason "error" or "aborted".
type piReader struct{ t Trajectory }

type piLine struct {
	Type    string          `json:"type"`
	ID      text            `json:"id"`
	Message json.RawMessage `json:"message"`
}

type piMessage struct {
	Role       string `json:"role"`
	StopReason string `json:"stopReason"`
	Error      string `json:"errorMessage"`
	Content    []struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		Text string `json:"text"`
	} `json:"content"`
	Usage struct {
		Input      *int64 `json:"input"`
		Output     *int64 `json:"output"`
		CacheRead  *int64 `json:"cacheRead"`
		CacheWrite *int64 `json:"cacheWrite"`
	} `json:"usage"`
}

func (r *piReader) add(value json.RawMessage) error {
	var line piLine
	if err := json.Unmarshal(value, &line); err != nil {
		return err
	}
	if line.Type == "session" {
		r.t.SessionID = string(line.ID)
	}
	if line.Type != "message" {
		return nil
	}
	var role struct {
		Role text `json:"role"`
	}
	if err := json.Unmarshal(line.Message, &role); err != nil || role.Role != "assistant" {
		return err
	}
	var m piMessage
	if err := json.Unmarshal(line.Message, &m); err != nil {
		return fmt.Errorf("message %s: %w", line.ID, err)
	}
	step := Step{ID: "message " + string(line.ID)}
	for _, part := range m.Content {
		switch part.Type {
		case "text":
			step.Text = strings.TrimSpace(step.Text + " " + part.Text)
		case "toolCall":
			step.ToolCalls = append(step.ToolCalls, part.ID)
		}
	}
	if m.StopReason == "error" || m.StopReason == "aborted" {
		step.Synthetic, step.Text = true, m.Error
	} else {
		step.Prompt, step.Completion = sum(m.Usage.Input, m.Usage.CacheRead, m.Usage.CacheWrite), m.Usage.Output
	}
	r.t.Steps = append(r.t.Steps, step)
	return nil
}

func (r *piReader) finish() Trajectory {
	r.t.Kind = Pi
	return r.t
}
