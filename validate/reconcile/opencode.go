package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// openCodeReader reads what `opencode export` prints, or the files of opencode's message and part storage one after the
// other, in any order. Ids ascend with time. An answer ends with a step-finish part; older versions put several answers
// into one message.
type openCodeReader struct {
	t        Trajectory
	messages []openCodeMessage
	parts    map[string][]openCodePart // by message
}

type openCodeExport struct {
	Info     openCodeMessage `json:"info"`
	Messages []struct {
		Info  openCodeMessage `json:"info"`
		Parts []openCodePart  `json:"parts"`
	} `json:"messages"`
}

type openCodeMessage struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionID"`
	Role      string          `json:"role"`
	Error     json.RawMessage `json:"error"`
}

type openCodePart struct {
	ID        string         `json:"id"`
	MessageID string         `json:"messageID"`
	Type      string         `json:"type"`
	Text      text           `json:"text"`
	CallID    string         `json:"callID"`
	Tokens    openCodeTokens `json:"tokens"`
	Attempt   int            `json:"attempt"`
}

type openCodeTokens struct {
	Total     *int64 `json:"total"`
	Input     *int64 `json:"input"`
	Output    *int64 `json:"output"`
	Reasoning *int64 `json:"reasoning"`
	Cache     struct {
		Read  *int64 `json:"read"`
		Write *int64 `json:"write"`
	} `json:"cache"`
}

func (r *openCodeReader) add(value json.RawMessage) error {
	var m marks
	if err := json.Unmarshal(value, &m); err != nil {
		return err
	}
	if r.parts == nil {
		r.parts = map[string][]openCodePart{}
	}
	if m.Messages != nil {
		var e openCodeExport
		if err := json.Unmarshal(value, &e); err != nil {
			return err
		}
		r.t.SessionID = e.Info.ID
		for _, message := range e.Messages {
			r.messages = append(r.messages, message.Info)
			r.parts[message.Info.ID] = message.Parts
		}
		return nil
	}
	var part openCodePart
	if m.Type != "" {
		if err := json.Unmarshal(value, &part); err != nil {
			return err
		}
		r.parts[part.MessageID] = append(r.parts[part.MessageID], part)
		return nil
	}
	var message openCodeMessage
	if err := json.Unmarshal(value, &message); err != nil {
		return err
	}
	if message.Role != "" {
		r.t.SessionID = message.SessionID
		r.messages = append(r.messages, message)
	}
	return nil
}

func (r *openCodeReader) finish() Trajectory {
	r.t.Kind = OpenCode
	slices.SortStableFunc(r.messages, func(a, b openCodeMessage) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range r.messages {
		if m.Role == "assistant" {
			r.message(m)
		}
	}
	return r.t
}

func (r *openCodeReader) message(m openCodeMessage) {
	parts := r.parts[m.ID]
	slices.SortStableFunc(parts, func(a, b openCodePart) int { return cmp.Compare(a.ID, b.ID) })
	step, content := Step{}, false
	end := func() {
		step.ID = "message " + m.ID
		r.t.Steps = append(r.t.Steps, step)
		step, content = Step{}, false
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			step.Text, content = strings.TrimSpace(step.Text+" "+string(p.Text)), true
		case "reasoning":
			content = true
		case "tool":
			step.ToolCalls, content = append(step.ToolCalls, p.CallID), true
		case "retry":
			r.t.Retries = append(r.t.Retries, fmt.Sprintf("the harness logged attempt %d of message %s", p.Attempt, m.ID))
		case "step-finish":
			step.Prompt, step.Completion = p.Tokens.counts()
			end()
		}
	}
	if failed := len(m.Error) > 0 && string(m.Error) != "null"; failed || content {
		if failed {
			step.Synthetic, step.Text = true, openCodeError(m.Error)
		}
		end()
	}
}

// counts are the prompt's and the completion's. Whether output holds the reasoning tokens too depends on the version:
// the total tells, and without one they are not compared.
func (t *openCodeTokens) counts() (prompt, completion *int64) {
	prompt = sum(t.Input, t.Cache.Read, t.Cache.Write)
	switch {
	case prompt != nil && t.Total != nil:
		n := *t.Total - *prompt
		return prompt, &n
	case t.Reasoning == nil || *t.Reasoning == 0:
		return prompt, t.Output
	}
	return prompt, nil
}

func openCodeError(raw json.RawMessage) string {
	var e struct {
		Name text `json:"name"`
		Data struct {
			Message text `json:"message"`
		} `json:"data"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return string(raw)
	}
	return strings.Trim(string(e.Name)+": "+string(e.Data.Message), ": ")
}
