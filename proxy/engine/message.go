package engine

import (
	"encoding/json"
	"math"

	"captureproxy/internal/jsonscan"
)

var notANumber = math.NaN()

// message is an assistant message put together from whole fields or deltas.
type message struct {
	any     bool // something of a message arrived
	content []byte
	hasText bool // content was a string, be it empty
	// reasoning has the name that the engine uses for it: reasoning or reasoning_content.
	reasoning     []byte
	reasoningName string
	refusal       []byte
	calls         []toolCall
	other         []member // fields that we do not know and that were not null, the last value of each
}

type toolCall struct {
	index     int64 // as the engine numbered it, -1 when it did not
	id        string
	kind      string
	name      string
	arguments []byte
	legacy    bool // function_call
}

type member struct {
	key   string
	value []byte
}

// read reads a message or a delta. members says whether the object has any that stay, said whether one of them was text
// or a call.
func (m *message) read(p *pass) (members, said bool) {
	m.any = true
	before := len(m.content) + len(m.reasoning) + len(m.refusal)
	cur, eraser := &p.cur, jsonscan.NewEraser()
	for o := cur.Object(); o.Next(); {
		isReasoning := string(o.Key) == "reasoning" || string(o.Key) == "reasoning_content"
		if isReasoning && p.strip.Reasoning && cur.Peek() != 'n' {
			cur.Skip()
			p.member(&eraser, &o, true)
			continue
		}
		members = true
		p.out = eraser.Keep(p.out, o.KeyStart)
		if as := p.strip.ReasoningAs; isReasoning && as != "" && as != string(o.Key) {
			p.out = append(p.out, jsonscan.Splice{Start: o.KeyStart + 1, End: o.KeyStart + 1 + len(o.Key), With: []byte(as)})
			o.Key = []byte(as)
		}
		switch string(o.Key) {
		case "role":
		case "content":
			if cur.Peek() == '"' {
				m.content, _ = cur.AppendString(m.content)
				m.hasText = true
			} else if !cur.Null() {
				m.keep("content", cur.Raw())
			}
		case "reasoning", "reasoning_content":
			if cur.Peek() != '"' {
				continue
			}
			// Some servers send both names with the same text; the first one seen counts.
			if m.reasoningName == "" {
				m.reasoningName = string(o.Key)
			}
			if m.reasoningName == string(o.Key) {
				m.reasoning, _ = cur.AppendString(m.reasoning)
			}
		case "refusal":
			if cur.Peek() == '"' {
				m.refusal, _ = cur.AppendString(m.refusal)
			}
		case "tool_calls":
			for calls := cur.Array(); calls.Next(); {
				m.readCall(cur)
				said = true
			}
		case "function_call":
			if cur.Peek() == '{' {
				call := m.legacyCall()
				call.function(cur)
				said = true
			}
		default:
			key := string(o.Key)
			raw := cur.Raw()
			if s := string(raw); s != "null" && s != "[]" {
				m.keep(key, raw)
			}
		}
	}
	p.out = eraser.Close(p.out)
	return members, said || len(m.content)+len(m.reasoning)+len(m.refusal) > before
}

// readText reads the text of the completions wire.
func (m *message) readText(cur *jsonscan.Cursor) (said bool) {
	m.any, m.hasText = true, true
	before := len(m.content)
	m.content, _ = cur.AppendString(m.content)
	return len(m.content) > before
}

// keep keeps a member that is not ours to understand. Of a garbled event nothing is kept that is no JSON: it would make the
// whole message unreadable.
func (m *message) keep(key string, raw []byte) {
	if !json.Valid(raw) {
		return
	}
	value := append([]byte(nil), raw...)
	for i := range m.other {
		if m.other[i].key == key {
			m.other[i].value = value
			return
		}
	}
	m.other = append(m.other, member{key, value})
}

// readCall reads a tool call or a fragment of one. Engines leave the index out, repeat one index for several calls, or
// send the id again with every fragment; so a new id begins a new call, and a fragment that says neither goes on with
// the last one.
func (m *message) readCall(cur *jsonscan.Cursor) {
	part := toolCall{index: -1}
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "index":
			if n, ok := cur.Int(); ok {
				part.index = n
			}
		case "id":
			part.id, _ = cur.String()
		case "type":
			part.kind, _ = cur.String()
		case "function", "custom":
			part.function(cur)
		}
	}
	into := m.findCall(&part)
	if into == nil {
		m.calls = append(m.calls, part)
		return
	}
	if into.id == "" {
		into.id = part.id
	}
	if into.kind == "" {
		into.kind = part.kind
	}
	if into.name == "" {
		into.name = part.name
	}
	into.arguments = append(into.arguments, part.arguments...)
}

// findCall returns the call that a fragment continues, nil when it begins one.
func (m *message) findCall(part *toolCall) *toolCall {
	if part.id != "" {
		for i := range m.calls {
			if m.calls[i].id == part.id {
				return &m.calls[i]
			}
		}
	}
	for i := len(m.calls) - 1; i >= 0; i-- {
		c := &m.calls[i]
		if part.index >= 0 && c.index != part.index {
			continue
		}
		if part.id != "" && c.id != "" { // another id: another call under the same or no index
			return nil
		}
		return c
	}
	return nil
}

func (m *message) legacyCall() *toolCall {
	for i := range m.calls {
		if m.calls[i].legacy {
			return &m.calls[i]
		}
	}
	m.calls = append(m.calls, toolCall{legacy: true})
	return &m.calls[len(m.calls)-1]
}

// function reads {"name", "arguments"} or a custom tool's {"name", "input"}.
func (t *toolCall) function(cur *jsonscan.Cursor) {
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "name":
			if name, ok := cur.String(); ok && t.name == "" {
				t.name = name
			}
		case "arguments", "input":
			if cur.Peek() == '"' {
				t.arguments, _ = cur.AppendString(t.arguments)
			} else if !cur.Null() { // an object where the field is a string
				t.arguments = append(t.arguments, cur.Raw()...)
			}
		}
	}
}

// encode gives the message in OpenAI's format. Content is null where there is something else instead of it.
func (m *message) encode() json.RawMessage {
	if !m.any {
		return nil
	}
	b := []byte(`{"role":"assistant"`)
	if !m.has("content") {
		b = append(b, `,"content":`...)
		switch {
		case len(m.content) > 0 || m.hasText && len(m.calls) == 0 && len(m.reasoning) == 0:
			b = jsonscan.AppendQuote(b, m.content)
		default:
			b = append(b, "null"...)
		}
	}
	if m.reasoningName != "" && len(m.reasoning) > 0 {
		b = append(b, ',', '"')
		b = append(b, m.reasoningName...)
		b = append(b, `":`...)
		b = jsonscan.AppendQuote(b, m.reasoning)
	}
	if len(m.refusal) > 0 {
		b = append(b, `,"refusal":`...)
		b = jsonscan.AppendQuote(b, m.refusal)
	}
	b = m.encodeCalls(b)
	for _, o := range m.other {
		b = append(b, ',')
		b = jsonscan.AppendQuote(b, o.key)
		b = append(b, ':')
		b = append(b, o.value...)
	}
	return append(b, '}')
}

func (m *message) has(key string) bool {
	for _, o := range m.other {
		if o.key == key {
			return true
		}
	}
	return false
}

func (m *message) encodeCalls(b []byte) []byte {
	open := false
	for i := range m.calls {
		t := &m.calls[i]
		if t.legacy {
			continue
		}
		if open {
			b = append(b, ',')
		} else {
			b = append(b, `,"tool_calls":[`...)
			open = true
		}
		b = append(b, `{"id":`...)
		b = jsonscan.AppendQuote(b, t.id)
		if t.kind == "custom" {
			b = append(b, `,"type":"custom","custom":{"name":`...)
			b = jsonscan.AppendQuote(b, t.name)
			b = append(b, `,"input":`...)
		} else {
			b = append(b, `,"type":"function","function":{"name":`...)
			b = jsonscan.AppendQuote(b, t.name)
			b = append(b, `,"arguments":`...)
		}
		b = jsonscan.AppendQuote(b, t.arguments)
		b = append(b, "}}"...)
	}
	if open {
		b = append(b, ']')
	}
	for i := range m.calls {
		if t := &m.calls[i]; t.legacy {
			b = append(b, `,"function_call":{"name":`...)
			b = jsonscan.AppendQuote(b, t.name)
			b = append(b, `,"arguments":`...)
			b = jsonscan.AppendQuote(b, t.arguments)
			b = append(b, '}')
		}
	}
	return b
}
