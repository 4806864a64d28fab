package dialect

import (
	"encoding/json"

	"captureproxy/internal/jsonscan"
)

// chatBody writes the chat body that another dialect's request is translated to, in one go: messages first, then tools,
// then the other members. The same conversation always gives the same bytes, so that one turn's messages begin the next
// turn's.
type chatBody struct {
	buf      []byte
	messages []span
	tools    []span
	open     section
}

type span struct{ start, end int }

// section is the array that a chatBody stands in.
type section int

const (
	inMessages section = iota
	inTools
	inMembers
)

func newChatBody(size int) *chatBody {
	return &chatBody{buf: append(make([]byte, 0, size), `{"messages":[`...)}
}

// chatMessage is one message of the chat format. Texts of parts are the insides of JSON strings, as a harness spelled
// them, so that they need not be decoded.
type chatMessage struct {
	role   string
	parts  []chatPart
	callID string // of a tool message
	// reasoning is the inside of a JSON string too. It goes into the field that the engine reads, `reasoning`.
	reasoning []byte
	refusal   []byte // likewise
	calls     []chatCall
}

// chatPart is a piece of a message's content: text, or another kind of part as a JSON object.
type chatPart struct {
	text  []byte
	other []byte
}

// chatCall is a tool call; id and name are JSON strings, arguments is the text of the argument object.
type chatCall struct {
	id, name  []byte
	arguments []byte
}

// message adds a message. Content of nothing but text becomes one string, because many chat templates take no other: an
// assistant's pieces are joined as they are, for they are pieces of what it said; other roles' by a newline, as engines
// join text parts themselves. Content with anything else stays a list of parts.
func (b *chatBody) message(m *chatMessage) {
	b.begin(&b.messages)
	b.buf = append(b.buf, `{"role":`...)
	b.buf = jsonscan.AppendQuote(b.buf, m.role)
	if m.callID != "" {
		b.buf = append(b.buf, `,"tool_call_id":`...)
		b.buf = jsonscan.AppendQuote(b.buf, m.callID)
	}
	b.buf = append(b.buf, `,"content":`...)
	b.content(m)
	if len(m.reasoning) > 0 {
		b.buf = append(b.buf, `,"reasoning":"`...)
		b.buf = append(append(b.buf, m.reasoning...), '"')
	}
	if len(m.refusal) > 0 {
		b.buf = append(b.buf, `,"refusal":"`...)
		b.buf = append(append(b.buf, m.refusal...), '"')
	}
	for i, call := range m.calls {
		if i == 0 {
			b.buf = append(b.buf, `,"tool_calls":[`...)
		} else {
			b.buf = append(b.buf, ',')
		}
		b.buf = append(append(b.buf, `{"id":`...), call.id...)
		b.buf = append(append(b.buf, `,"type":"function","function":{"name":`...), call.name...)
		b.buf = append(b.buf, `,"arguments":`...)
		b.buf = append(jsonscan.AppendQuote(b.buf, call.arguments), "}}"...)
	}
	if len(m.calls) > 0 {
		b.buf = append(b.buf, ']')
	}
	b.buf = append(b.buf, '}')
	b.end(&b.messages)
}

func (b *chatBody) content(m *chatMessage) {
	mixed := false
	for _, p := range m.parts {
		mixed = mixed || p.other != nil
	}
	if !mixed {
		b.buf = append(b.buf, '"')
		for i, p := range m.parts {
			if i > 0 && m.role != "assistant" {
				b.buf = append(b.buf, `\n`...)
			}
			b.buf = append(b.buf, p.text...)
		}
		b.buf = append(b.buf, '"')
		return
	}
	for i, p := range m.parts {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		b.buf = append(b.buf, sep)
		if p.other != nil {
			b.buf = append(b.buf, p.other...)
			continue
		}
		b.buf = append(b.buf, `{"type":"text","text":"`...)
		b.buf = append(append(b.buf, p.text...), `"}`...)
	}
	b.buf = append(b.buf, ']')
}

// chatTool is a function that the model may call; all fields are JSON, nil when absent.
type chatTool struct {
	name, description, parameters, strict []byte
}

func (b *chatBody) tool(t *chatTool) {
	if b.open == inMessages {
		b.buf = append(b.buf, `],"tools":[`...)
		b.open = inTools
	}
	b.begin(&b.tools)
	b.buf = append(append(b.buf, `{"type":"function","function":{"name":`...), t.name...)
	if t.description != nil {
		b.buf = append(append(b.buf, `,"description":`...), t.description...)
	}
	if t.parameters != nil {
		b.buf = append(append(b.buf, `,"parameters":`...), t.parameters...)
	}
	if t.strict != nil {
		b.buf = append(append(b.buf, `,"strict":`...), t.strict...)
	}
	b.buf = append(b.buf, "}}"...)
	b.end(&b.tools)
}

// member adds a top-level parameter. No message or tool may follow.
func (b *chatBody) member(key string, raw []byte) {
	b.closeArray()
	b.buf = append(b.buf, ',')
	b.buf = jsonscan.AppendQuote(b.buf, key)
	b.buf = append(append(b.buf, ':'), raw...)
}

func (b *chatBody) closeArray() {
	if b.open != inMembers {
		b.buf = append(b.buf, ']')
		b.open = inMembers
	}
}

func (b *chatBody) begin(list *[]span) {
	if len(*list) > 0 {
		b.buf = append(b.buf, ',')
	}
	*list = append(*list, span{start: len(b.buf)})
}

func (b *chatBody) end(list *[]span) { (*list)[len(*list)-1].end = len(b.buf) }

// finish ends the body and puts it, its messages and its tools into the request.
func (b *chatBody) finish(r *Request) error {
	b.closeArray()
	b.buf = append(b.buf, '}')
	doc, err := parseBody(b.buf) // what nests at the limit may nest one deeper in chat
	if err != nil {
		return err
	}
	r.Doc, r.Messages, r.Tools = doc, pieces(b.buf, b.messages), pieces(b.buf, b.tools)
	return nil
}

func pieces(buf []byte, spans []span) []json.RawMessage {
	var out []json.RawMessage
	for _, s := range spans {
		out = append(out, buf[s.start:s.end:s.end])
	}
	return out
}

// inside returns the inside of a JSON string, nil when raw is no string.
func inside(raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// appendInside appends a text as the inside of a JSON string.
func appendInside[T ~string | ~[]byte](dst []byte, text T) []byte {
	start := len(dst)
	dst = jsonscan.AppendQuote(dst, text)
	copy(dst[start:], dst[start+1:])
	return dst[:len(dst)-2]
}
