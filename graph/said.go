package graph

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
)

// Said is a message in the form in which messages are compared (SPEC 4), for those who compare before there is a graph.
type Said struct {
	Role string
	// Identity is equal for two messages exactly when their role, trimmed text, and calls (names and arguments) are.
	Identity string
	// Reasoning is the thought that came along, trimmed; it is no part of the identity. Nor are the calls' ids.
	Reasoning string
	CallIDs   []string
	// Text and Arguments are as they were spelled.
	Text, Arguments string
	// Media says that the content is not text alone.
	Media bool
	// Moved are the messages that an answer would be if a part of its text were a thought that somebody moved there.
	Moved []Moved
}

// Moved is an answer with its text, or the part of it between think tags, taken for its reasoning.
type Moved struct{ Identity, Reasoning string }

// Read reads a message in OpenAI's format; role is taken where it names none.
func Read(raw json.RawMessage, role string) Said {
	m := parseMessage(raw, role)
	s := Said{Role: m.role, Identity: m.identity(), Reasoning: strings.TrimSpace(m.reasoning), Text: m.text, Media: hasMedia(raw)}
	for _, c := range m.calls {
		s.CallIDs = append(s.CallIDs, c.id)
		s.Arguments += string(appendPart(nil, c.arguments))
	}
	if m.role == "assistant" {
		s.Moved = moved(m)
	}
	return s
}

func moved(m message) []Moved {
	text := strings.TrimSpace(m.text)
	if text == "" {
		return nil
	}
	bare := m
	bare.text = ""
	list := []Moved{{bare.identity(), text}}
	if inner, ok := strings.CutPrefix(text, "<think>"); ok {
		if thought, rest, ok := strings.Cut(inner, "</think>"); ok && strings.TrimSpace(thought) != "" {
			bare.text = rest
			list = append(list, Moved{bare.identity(), strings.TrimSpace(thought)})
		}
	}
	return list
}

// hasMedia reports whether a message has a content part that is not text.
func hasMedia(raw json.RawMessage) bool {
	found := false
	if content := gjson.GetBytes(raw, "content"); content.IsArray() {
		content.ForEach(func(_, part gjson.Result) bool {
			switch part.Get("type").Str {
			case "text", "input_text", "output_text", "refusal", "thinking", "redacted_thinking", "reasoning", "":
			default:
				found = true
			}
			return !found
		})
	}
	return found
}
