package graph

import (
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
)

// message is what matters of a chat message: what is compared when linking, and what explains a broken prefix.
type message struct {
	role      string
	text      string // strings and text parts joined, as they came
	calls     []toolCall
	reasoning string
}

type toolCall struct{ id, name, arguments string }

// parseMessage reads a message in OpenAI's format; role is taken where it names none.
func parseMessage(raw json.RawMessage, role string) message {
	m := message{role: role}
	v := gjson.ParseBytes(raw)
	if !v.IsObject() {
		m.text = string(raw)
		return m
	}
	v.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "role":
			if value.Type == gjson.String {
				m.role = value.Str
			}
		case "content":
			m.text = contentText(value)
			m.reasoning += thinkingParts(value)
		case "tool_calls":
			m.calls = toolCalls(value)
		case "reasoning", "reasoning_content":
			if value.Type == gjson.String && !strings.Contains(m.reasoning, value.Str) {
				m.reasoning += value.Str
			}
		}
		return true
	})
	return m
}

func contentText(content gjson.Result) string {
	if !content.IsArray() {
		return content.String()
	}
	var b strings.Builder
	content.ForEach(func(_, part gjson.Result) bool {
		if part.Type == gjson.String {
			b.WriteString(part.Str)
			return true
		}
		switch part.Get("type").Str {
		case "text", "input_text", "output_text", "":
			b.WriteString(part.Get("text").String())
		}
		return true
	})
	return b.String()
}

// thinkingParts joins the reasoning that some dialects keep among a message's content parts.
func thinkingParts(content gjson.Result) string {
	var b strings.Builder
	if content.IsArray() {
		content.ForEach(func(_, part gjson.Result) bool {
			b.WriteString(part.Get("thinking").String())
			return true
		})
	}
	return b.String()
}

func toolCalls(list gjson.Result) []toolCall {
	var calls []toolCall
	if !list.IsArray() {
		return nil
	}
	list.ForEach(func(_, call gjson.Result) bool {
		if !call.IsObject() {
			return true
		}
		name, arguments := call.Get("function.name"), call.Get("function.arguments")
		if custom := call.Get("custom"); custom.Exists() {
			name, arguments = custom.Get("name"), custom.Get("input")
		}
		calls = append(calls, toolCall{id: call.Get("id").String(), name: name.String(), arguments: argumentText(arguments)})
		return true
	})
	return calls
}

// argumentText returns a call's arguments as JSON text, be they a string that holds it or the value itself.
func argumentText(v gjson.Result) string {
	switch v.Type {
	case gjson.Null:
		return ""
	case gjson.String:
		return v.Str
	}
	return v.Raw
}

// leads reports whether the message belongs to the system text when it stands at the start.
func (m *message) leads() bool { return m.role == "system" || m.role == "developer" }

// identity is equal for two messages exactly when they are the same by SPEC 4: role, trimmed text, and the calls'
// names and arguments. Each part carries its length, so that no two messages share an identity by accident.
func (m *message) identity() string {
	b := appendPart(nil, m.role)
	b = appendPart(b, strings.TrimSpace(m.text))
	for _, c := range m.calls {
		b = appendPart(b, c.name)
		b = appendPart(b, canonicalArguments(c.arguments))
	}
	return string(b)
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// hasReply reports whether the turn was answered with a message at all.
func hasReply(t *Turn) bool {
	v := gjson.ParseBytes(t.Reply)
	return v.IsObject() && len(v.Map()) > 0
}
