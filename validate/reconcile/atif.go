package reconcile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// atifReader reads ATIF trajectories, one or several: a file may hold one a line, and a trajectory those of its
// subagents.
type atifReader struct{ t Trajectory }

type atifTrajectory struct {
	SessionID    text             `json:"session_id"`
	TrajectoryID text             `json:"trajectory_id"`
	Steps        []atifStep       `json:"steps"`
	Subagents    []atifTrajectory `json:"subagent_trajectories"`
}

type atifStep struct {
	ID        json.Number     `json:"step_id"`
	Source    string          `json:"source"`
	Model     text            `json:"model_name"`
	Message   json.RawMessage `json:"message"`
	ToolCalls []struct {
		ID string `json:"tool_call_id"`
	} `json:"tool_calls"`
	Metrics *struct {
		Prompt        *int64  `json:"prompt_tokens"` // cached tokens included
		Completion    *int64  `json:"completion_tokens"`
		CompletionIDs []int32 `json:"completion_token_ids"`
	} `json:"metrics"`
	Copied bool `json:"is_copied_context"`
	Calls  *int `json:"llm_call_count"` // model calls that the step stands for; 1 where it does not say
}

func (r *atifReader) add(value json.RawMessage) error {
	var t atifTrajectory
	if err := json.Unmarshal(value, &t); err != nil {
		return fmt.Errorf("this is no ATIF trajectory: %w", err)
	}
	r.t.SessionID = string(t.SessionID)
	return r.trajectory(&t, "")
}

func (r *atifReader) trajectory(t *atifTrajectory, prefix string) error {
	for i := range t.Steps {
		if err := r.step(&t.Steps[i], prefix); err != nil {
			return fmt.Errorf("step %s: %w", t.Steps[i].ID, err)
		}
	}
	for i := range t.Subagents {
		if err := r.trajectory(&t.Subagents[i], fmt.Sprintf("subagent %d, ", i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (r *atifReader) step(s *atifStep, prefix string) error {
	if s.Source != "agent" || s.Calls != nil && *s.Calls == 0 {
		return nil // no model call: an agent's step may come from code
	}
	message, err := atifText(s.Message)
	if err != nil {
		return err
	}
	step := Step{ID: fmt.Sprintf("%sstep %s", prefix, s.ID), Text: message, Copied: s.Copied, Synthetic: s.Model == "<synthetic>"}
	for _, c := range s.ToolCalls {
		step.ToolCalls = append(step.ToolCalls, c.ID)
	}
	if s.Calls != nil && *s.Calls > 1 { // its metrics are sums, its calls before the last are not told apart
		for i := 1; i < *s.Calls; i++ {
			r.t.Steps = append(r.t.Steps, Step{ID: fmt.Sprintf("%s (call %d of %d)", step.ID, i, *s.Calls), Copied: s.Copied})
		}
	} else if m := s.Metrics; m != nil && !step.Synthetic {
		step.Prompt, step.Completion, step.CompletionIDs = m.Prompt, m.Completion, m.CompletionIDs
	}
	r.t.Steps = append(r.t.Steps, step)
	return nil
}

// atifText is a message's text: a string, or parts of which some have text.
func atifText(raw json.RawMessage) (string, error) {
	var s string
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	var parts []struct {
		Text text `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", err
	}
	for _, p := range parts {
		s = strings.TrimSpace(s + " " + string(p.Text))
	}
	return s, nil
}

func (r *atifReader) finish() Trajectory {
	r.t.Kind = ATIF
	return r.t
}
