package dialect

import (
	"bytes"
	"fmt"

	"captureproxy/internal/jsonscan"
)

// billingLine begins a line that claude-code puts at the top of its system prompt. It holds a nonce that changes with
// every request, so that no prompt would extend the one before.
const billingLine = "x-anthropic-billing-header:"

// system translates the top-level system prompt, one text or several blocks, to the leading system message.
func (t *fromAnthropic) system() *Error {
	raw := t.doc.Get("system")
	if isNull(raw) {
		return nil
	}
	m := &chatMessage{role: "system"}
	switch raw[0] {
	case '"':
		m.parts = t.withoutNonce("system", inside(raw))
	case '[':
		err := t.elements("system", func(i int, raw []byte) *Error {
			b := readAnthropicBlock(raw)
			if text := inside(b.text); i == 0 && b.kind == "text" && text != nil {
				t.extras("system[].", b.extras)
				m.parts = t.withoutNonce("system[0]", text)
			} else {
				m.parts = append(m.parts, t.parts("system[]", &b)...)
			}
			return nil
		})
		if err != nil {
			return err
		}
	default:
		return bad("system", "system must be a string or a list of text blocks")
	}
	if len(m.parts) > 0 {
		t.add(m)
	}
	return nil
}

// withoutNonce returns a text as a part, without a billing line at its top.
func (t *fromAnthropic) withoutNonce(param string, text []byte) []chatPart {
	if bytes.HasPrefix(text, []byte(billingLine)) {
		end := lineEnd(text)
		t.note(param, append(append([]byte{'"'}, text[:end]...), '"'), "a line that changes with every request would break every prefix")
		text = bytes.TrimPrefix(text[end:], []byte(`\n`))
	}
	return textPart(text)
}

// lineEnd is the offset of the first line break in the inside of a JSON string.
func lineEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			if i+1 < len(text) && text[i+1] == 'n' {
				return i
			}
			i++
		}
	}
	return len(text)
}

func (t *fromAnthropic) messages() *Error {
	if raw := t.doc.Get("messages"); raw == nil || raw[0] != '[' {
		return bad("messages", "messages must be a list")
	}
	if err := t.elements("messages", t.message); err != nil {
		return err
	}
	if t.pending != nil && t.pending.role == "assistant" {
		t.noteBehaviour("messages", nil, "the last message is the assistant's: the chat API answers it with a new message and does not continue it")
	}
	t.flush()
	return nil
}

// add adds a message behind the last one. What Anthropic takes for one turn becomes one message: consecutive messages of
// the assistant (its pieces of one answer), and all system text at the beginning.
func (t *fromAnthropic) add(m *chatMessage) {
	p := t.pending
	if p == nil || p.role != m.role || m.role != "assistant" && (m.role != "system" || len(t.chat.messages) > 0) {
		t.flush()
		t.pending = m
		return
	}
	p.parts = append(p.parts, m.parts...)
	p.reasoning = append(p.reasoning, m.reasoning...)
	p.calls = append(p.calls, m.calls...)
}

func (t *fromAnthropic) flush() {
	if t.pending != nil {
		t.chat.message(t.pending)
		t.pending = nil
	}
}

func (t *fromAnthropic) message(i int, raw []byte) *Error {
	where := fmt.Sprintf("messages[%d]", i)
	if raw[0] != '{' {
		return bad(where, where+" must be an object")
	}
	var role string
	var content []byte
	var extras []member
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		switch value := cur.Raw(); string(o.Key) {
		case "role":
			role = stringOf(value)
		case "content":
			content = value
		default:
			extras = append(extras, member{string(o.Key), value})
		}
	}
	t.extras("messages[].", extras)
	if role == "" {
		return bad(where+".role", where+" has no role")
	}
	if !isNull(content) && content[0] != '"' && content[0] != '[' {
		return bad(where+".content", where+".content must be a string or a list of blocks")
	}
	switch role {
	case "assistant":
		t.assistant(content)
	case "developer":
		t.other("system", content)
	default:
		t.other(role, content)
	}
	return nil
}

// other translates a message that is not the assistant's. Tool results become messages of their own, before what else
// the message holds: in chat they must follow the calls.
func (t *fromAnthropic) other(role string, content []byte) {
	m := &chatMessage{role: role, parts: textPart(inside(content))}
	results := 0
	cur := jsonscan.New(content)
	for a := cur.Array(); a.Next(); {
		b := readAnthropicBlock(cur.Raw())
		if b.kind != "tool_result" {
			m.parts = append(m.parts, t.parts("messages[].content[]", &b)...)
			continue
		}
		if len(m.parts) > 0 {
			t.note("messages[].content", nil, "tool results come first: in chat they follow the calls")
		}
		t.result(&b)
		results++
	}
	if results == 0 || len(m.parts) > 0 {
		t.add(m)
	}
}

// result translates a tool result. Chat has no flag for a failed call; the content says what went wrong, and where there
// is none the word "error" does.
func (t *fromAnthropic) result(b *anthropicBlock) {
	m := &chatMessage{role: "tool", callID: stringOf(b.toolUseID), parts: textPart(inside(b.content))}
	cur := jsonscan.New(b.content)
	for a := cur.Array(); a.Next(); {
		inner := readAnthropicBlock(cur.Raw())
		m.parts = append(m.parts, t.parts("messages[].content[].content[]", &inner)...)
	}
	if string(b.isError) == "true" {
		t.note("messages[].content[].is_error", b.isError, `chat has no such flag: the result's text stands for it, the word "error" where there is none`)
		if len(m.parts) == 0 {
			m.parts = textPart([]byte("error"))
		}
	}
	t.extras("messages[].content[].", b.extras)
	t.add(m)
}

// assistant translates a message of the assistant, which may be an answer of ours coming back.
func (t *fromAnthropic) assistant(content []byte) {
	m := &chatMessage{role: "assistant", parts: textPart(inside(content))}
	cur := jsonscan.New(content)
	for a := cur.Array(); a.Next(); {
		b := readAnthropicBlock(cur.Raw())
		switch b.kind {
		case "text":
			m.parts = append(m.parts, t.parts("messages[].content[]", &b)...)
		case "thinking":
			t.thinking(m, &b)
		case "tool_use":
			t.extras("messages[].content[].", b.extras)
			m.calls = append(m.calls, chatCall{id: orEmpty(b.id), name: orEmpty(b.name), arguments: sampledArguments(b.input)})
		default:
			t.unknown("messages[].content[]", &b)
		}
	}
	t.add(m)
}

// thinking puts a thinking block into the reasoning field. One of ours carries what the engine thought in its signature,
// whatever became of its text; a provider's has a text, perhaps, and a signature that means nothing to the engine.
func (t *fromAnthropic) thinking(m *chatMessage, b *anthropicBlock) {
	t.extras("messages[].content[].", b.extras)
	if ours, ok := Unseal(stringOf(b.signature)); ok {
		m.reasoning = appendInside(m.reasoning, ours)
		return
	}
	if !isNull(b.signature) && len(inside(b.signature)) > 0 {
		t.note("messages[].content[].signature", b.signature, "another provider's signature, which means nothing to the engine")
	}
	text := inside(b.thinking)
	if len(text) > 0 && len(m.reasoning) > 0 {
		m.reasoning = append(m.reasoning, `\n`...) // separate thoughts, not pieces of one
	}
	m.reasoning = append(m.reasoning, text...)
}
