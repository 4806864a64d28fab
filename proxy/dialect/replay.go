package dialect

import (
	"bytes"
	"slices"
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// replayPiece is how many bytes of text one chunk of a replayed answer carries at most.
const replayPiece = 96

// Replay turns a whole answer of chat or completions into the stream that a harness asked for. Members that it does not know
// go into the chunk in which streaming engines send them: those of the answer and of a message into the first, those of a
// choice into the one with its text. usage says that the harness asked for it. terminal is the event that ends the stream.
// ok is false when the body is no answer.
func Replay(d record.Dialect, body []byte, usage bool) (events, terminal []byte, ok bool) {
	doc, err := jsonscan.ParseDoc(body)
	if err != nil || doc.Get("choices") == nil {
		return nil, nil, false
	}
	w := &replay{dialect: d, usage: usage}
	w.heads(doc)
	cur := jsonscan.New(doc.Get("choices"))
	for list := cur.Array(); list.Next(); {
		choice, err := jsonscan.ParseDoc(cur.Raw())
		if err != nil {
			return nil, nil, false
		}
		w.choice(choice)
	}
	if usage {
		w.out = append(append(append(w.out, "data: "...), w.head...), `"choices":[],"usage":`...)
		w.out = append(append(w.out, orNull(doc.Get("usage"))...), "}\n\n"...)
	}
	return w.out, []byte("data: [DONE]\n\n"), true
}

// replay is a stream being written.
type replay struct {
	dialect record.Dialect
	usage   bool
	first   []byte // what begins the first chunk: all members of the answer
	head    []byte // what begins the others
	out     []byte
}

// heads writes the members that a chunk begins with.
func (w *replay) heads(doc *jsonscan.Doc) {
	w.first, w.head = []byte{'{'}, []byte{'{'}
	for i := range doc.Members {
		m := &doc.Members[i]
		raw := m.Raw(doc.Bytes)
		switch m.Key {
		case "choices", "usage":
			continue
		case "object":
			if w.dialect == record.OpenAIChat {
				raw = []byte(`"chat.completion.chunk"`)
			}
		}
		w.first = appendMember(w.first, m.Key, raw)
		switch m.Key {
		case "id", "object", "created", "model", "system_fingerprint", "service_tier":
			w.head = appendMember(w.head, m.Key, raw)
		}
	}
	for _, head := range []*[]byte{&w.first, &w.head} {
		if len(*head) > 1 {
			*head = append(*head, ',')
		}
	}
}

func appendMember(b []byte, key string, raw []byte) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(jsonscan.AppendQuote(b, key), ':'), raw...)
}

// chunk writes one chunk with one choice; choice holds the choice's members but for its index.
func (w *replay) chunk(index, choice []byte) {
	head := w.head
	if w.first != nil {
		head, w.first = w.first, nil
	}
	w.out = append(append(w.out, "data: "...), head...)
	w.out = append(append(w.out, `"choices":[{"index":`...), index...)
	w.out = append(append(w.out, ','), choice...)
	w.out = append(w.out, "}]"...)
	if w.usage {
		w.out = append(w.out, `,"usage":null`...)
	}
	w.out = append(w.out, "}\n\n"...)
}

// choice writes the chunks of one choice.
func (w *replay) choice(doc *jsonscan.Doc) {
	index := doc.Get("index")
	if index == nil {
		index = []byte("0")
	}
	var extra, finish []byte // with the text, with the end
	for i := range doc.Members {
		m := &doc.Members[i]
		raw := m.Raw(doc.Bytes)
		switch m.Key {
		case "index", "message", "text":
		case "finish_reason", "stop_reason", "matched_stop":
			finish = append(append(append(append(finish, `,"`...), m.Key...), `":`...), raw...)
		default:
			if string(raw) != "null" {
				extra = append(append(jsonscan.AppendQuote(append(extra, ','), m.Key), ':'), raw...)
			}
		}
	}
	if w.dialect == record.OpenAICompletions {
		for i, piece := range textPieces(orEmpty(doc.Get("text"))) {
			w.chunk(index, withExtra(append([]byte(`"text":`), piece...), &extra, i == 0))
		}
		w.chunk(index, append([]byte(`"text":""`), finish...))
		return
	}
	w.message(index, doc.Get("message"), &extra)
	w.chunk(index, append([]byte(`"delta":{}`), finish...))
}

// withExtra adds the choice's other members, once, and the finish reason that is still open.
func withExtra(choice []byte, extra *[]byte, now bool) []byte {
	if now {
		choice = append(choice, *extra...)
		*extra = nil
	}
	return append(choice, `,"finish_reason":null`...)
}

// message writes a message's members as deltas: the role with what it does not know first, then thinking, text and calls.
func (w *replay) message(index, message []byte, extra *[]byte) {
	doc, err := jsonscan.ParseDoc(message)
	if err != nil {
		return
	}
	first := []byte(`{"role":"assistant","content":""`)
	for i := range doc.Members {
		m := &doc.Members[i]
		switch raw := m.Raw(doc.Bytes); m.Key {
		case "role", "content", "reasoning", "reasoning_content", "refusal", "tool_calls":
		default:
			if string(raw) != "null" {
				first = appendMember(first, m.Key, raw)
			}
		}
	}
	said := false
	delta := func(d []byte, carries bool) {
		w.chunk(index, withExtra(append([]byte(`"delta":`), d...), extra, carries))
		said = said || carries
	}
	delta(append(first, '}'), false)
	for _, key := range []string{"reasoning", "reasoning_content", "content", "refusal"} {
		raw := doc.Get(key)
		if inside(raw) == nil || string(raw) == `""` {
			continue
		}
		for _, piece := range textPieces(raw) {
			delta(append(appendMember([]byte{'{'}, key, piece), '}'), true)
		}
	}
	w.calls(doc.Get("tool_calls"), delta)
	if !said && len(*extra) > 0 { // nothing was said, but there are logprobs of it
		delta([]byte("{}"), true)
	}
}

// calls writes tool calls, each at first without its arguments.
func (w *replay) calls(raw []byte, delta func(d []byte, carries bool)) {
	cur := jsonscan.New(raw)
	i := 0
	for list := cur.Array(); list.Next(); i++ {
		call, err := jsonscan.ParseDoc(cur.Raw())
		if err != nil {
			continue
		}
		at := strconv.Itoa(i)
		function, err := jsonscan.ParseDoc(call.Get("function"))
		if err != nil { // a custom tool's call: as it is
			delta(slices.Concat([]byte(`{"tool_calls":[`), call.Edit(nil, []jsonscan.Change{{Key: "index", To: []byte(at)}}), []byte("]}")), true)
			continue
		}
		head := function.Edit(nil, []jsonscan.Change{{Key: "arguments", To: []byte(`""`)}})
		begin := call.Edit(nil, []jsonscan.Change{{Key: "index", To: []byte(at)}, {Key: "function", To: head}})
		delta(slices.Concat([]byte(`{"tool_calls":[`), begin, []byte("]}")), true)
		for _, piece := range textPieces(orEmpty(function.Get("arguments"))) {
			delta(slices.Concat([]byte(`{"tool_calls":[{"index":`), []byte(at), []byte(`,"function":{"arguments":`), piece, []byte("}}]}")), true)
		}
	}
}

// textPieces cuts a JSON string into JSON strings of a few words each. One that spells surrogates stays whole: half a pair is
// no character.
func textPieces(raw []byte) [][]byte {
	text := inside(raw)
	if len(text) <= replayPiece || bytes.Contains(text, []byte(`\u`)) {
		return [][]byte{raw}
	}
	var out [][]byte
	for len(text) > 0 {
		n := min(len(text), replayPiece)
		if n < len(text) {
			if space := bytes.LastIndexByte(text[:n], ' '); space > 0 {
				n = space
			}
			n = wholeChars(text[:n])
			// Not between a backslash and what it escapes.
			if slashes := n - len(bytes.TrimRight(text[:n], `\`)); slashes%2 == 1 {
				n--
			}
		}
		out = append(out, slices.Concat([]byte{'"'}, text[:n], []byte{'"'}))
		text = text[n:]
	}
	return out
}

func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}
