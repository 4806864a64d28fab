package format

import (
	"encoding/json"
	"fmt"
	"strings"

	"captureproxy/export"
)

// message is what the forms need of a message in OpenAI's format.
type message struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	ToolCalls        []toolCall      `json:"tool_calls"`
	ToolCallID       string          `json:"tool_call_id"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
}

type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// part is a part of a message's content.
type part struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
}

func parseMessage(raw json.RawMessage) (message, error) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("a message is not in OpenAI's format: %w", err)
	}
	if m.Role == "developer" {
		m.Role = "system"
	}
	return m, nil
}

// parts are the message's content, text as one part; nil where there is none.
func (m *message) parts() ([]part, error) {
	var text string
	switch {
	case len(m.Content) == 0 || string(m.Content) == "null":
		return nil, nil
	case json.Unmarshal(m.Content, &text) == nil:
		return []part{{Type: "text", Text: text}}, nil
	}
	var list []part
	if err := json.Unmarshal(m.Content, &list); err != nil {
		return nil, fmt.Errorf("a message's content is neither text nor a list of parts: %w", err)
	}
	return list, nil
}

// text is the content as text. A part that is none is named in its place, so that nobody takes the text for the whole.
func (m *message) text() (string, error) {
	list, err := m.parts()
	var texts []string
	for _, p := range list {
		texts = append(texts, p.shown())
	}
	return strings.Join(texts, "\n"), err
}

func (p part) shown() string {
	if p.Type != "text" && p.Text == "" {
		return "[" + p.Type + "]"
	}
	return p.Text
}

// reasoning is what the model thought, under either of the names that engines use.
func (m *message) reasoning() string {
	for _, raw := range []json.RawMessage{m.ReasoningContent, m.Reasoning} {
		var text string
		if json.Unmarshal(raw, &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

// fresh are the messages that a turn's request has and the conversation up to its parent's answer has not.
func fresh(t, parent *export.Turn) []json.RawMessage {
	if parent == nil {
		return t.RequestMessages
	}
	return t.RequestMessages[min(len(parent.RequestMessages)+1, len(t.RequestMessages)):]
}

// chat is the conversation of a row: the last request and its answer.
func (r *row) chat() []json.RawMessage {
	t := r.last().turn
	list := append([]json.RawMessage{}, t.RequestMessages...)
	if len(t.ResponseMessage) > 0 && string(t.ResponseMessage) != "null" {
		list = append(list, t.ResponseMessage)
	}
	return list
}

// opening is the row's first request.
func (r *row) opening() []json.RawMessage { return r.steps[0].turn.RequestMessages }
