package dialect

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"captureproxy/internal/jsonscan"
)

// googleHistory turns contents into messages. Neighbouring contents of the model are gathered in reply.
type googleHistory struct {
	*googleDecoder
	reply   *chatMessage
	sealed  bool // reply's reasoning came out of a signature of ours
	calls   []googleCall
	counted int // calls so far
}

// googleCall is a call of the history that waits for its response.
type googleCall struct {
	id, name string
	answered bool
}

// history writes the messages: the system instruction, then the contents.
func (d *googleDecoder) history(doc *jsonscan.Doc) *Error {
	h := &googleHistory{googleDecoder: d}
	if raw := doc.Get("systemInstruction"); !isNull(raw) {
		if parts := h.instruction(raw); len(parts) > 0 {
			h.out.message(&chatMessage{role: "system", parts: parts})
		}
	}
	m := lastMember(doc, "contents")
	if m == nil || isNull(m.Raw(doc.Bytes)) {
		return bad("contents", "the request has no contents")
	}
	raw := m.Raw(doc.Bytes)
	if raw[0] == '{' { // a single content, as clients of the SDKs may write it
		if err := h.content(raw); err != nil {
			return err
		}
	}
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		content := cur.Raw()
		d.req.Cuts = append(d.req.Cuts, m.Value+a.Value, m.Value+a.Value+len(content))
		if err := h.content(content); err != nil {
			return err
		}
	}
	h.closeReply()
	if len(h.out.messages) == 0 {
		return bad("contents", "the request has no contents")
	}
	return nil
}

// instruction takes the system instruction: a string, a content, or a list of parts.
func (h *googleHistory) instruction(raw []byte) []chatPart {
	if text := inside(raw); text != nil {
		return []chatPart{{text: text}}
	}
	if raw[0] == '{' {
		content := camelDoc(raw)
		if text := content.Get("text"); text != nil { // a part alone
			return []chatPart{{text: inside(text)}}
		}
		raw = content.Get("parts")
		if len(raw) > 0 && raw[0] == '{' {
			raw = append(append([]byte{'['}, raw...), ']')
		}
	}
	var parts []chatPart
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		part := cur.Raw()
		if text := inside(part); text != nil {
			parts = append(parts, chatPart{text: text})
		} else if doc := camelDoc(part); doc != nil {
			parts = h.plain(parts, part, doc)
		}
	}
	return parts
}

// content takes one content.
func (h *googleHistory) content(raw []byte) *Error {
	content := camelDoc(raw)
	if content == nil {
		return bad("contents", "every content must be an object with a role and parts")
	}
	role := stringOf(content.Get("role"))
	switch role {
	case "", "user", "function", "tool":
		role = "user"
	case "model", "system":
	default:
		return bad("contents", "a content has the role "+role+": use user or model")
	}
	parts := content.Get("parts")
	if len(parts) > 0 && parts[0] == '{' {
		parts = append(append([]byte{'['}, parts...), ']')
	}
	m := &chatMessage{role: role}
	cur := jsonscan.New(parts)
	for a := cur.Array(); a.Next(); {
		raw := cur.Raw()
		part := camelDoc(raw)
		switch {
		case part == nil:
			return bad("contents", "every part must be an object")
		case !isNull(part.Get("functionResponse")):
			h.flush(m)
			h.response(part.Get("functionResponse"))
		case role == "model":
			h.modelPart(raw, part)
		default:
			m.parts = h.plain(m.parts, raw, part)
		}
	}
	h.flush(m)
	return nil
}

// flush writes what a content has so far.
func (h *googleHistory) flush(m *chatMessage) {
	if len(m.parts) > 0 {
		h.closeReply()
		h.out.message(m)
		m.parts = nil
	}
}

func (h *googleHistory) closeReply() {
	if h.reply != nil {
		h.out.message(h.reply)
	}
	h.reply, h.sealed = nil, false
}

// modelPart takes a part of a reply.
func (h *googleHistory) modelPart(raw []byte, part *jsonscan.Doc) {
	if h.reply == nil {
		h.reply = &chatMessage{role: "assistant"}
	}
	h.signature(part.Get("thoughtSignature"))
	text := inside(part.Get("text"))
	switch {
	case string(part.Get("thought")) == "true":
		if !h.sealed {
			h.reply.reasoning = append(h.reply.reasoning, text...)
		}
	case !isNull(part.Get("functionCall")):
		h.call(part.Get("functionCall"))
	case text != nil:
		h.reply.parts = append(h.reply.parts, chatPart{text: text})
	case !isNull(part.Get("inlineData")), !isNull(part.Get("fileData")):
		h.noteBehaviour("contents[].parts[]", raw, "an assistant's message in chat holds no media")
	default:
		h.unknown(raw, part)
	}
}

// signature takes the reasoning out of a signature of ours. Each holds all the reasoning of its reply up to there, so a
// later one counts instead of an earlier one, and any of them instead of thoughts in plain text.
func (h *googleHistory) signature(raw []byte) {
	if isNull(raw) {
		return
	}
	text := stringOf(raw)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding, base64.RawStdEncoding} {
		plain, err := encoding.DecodeString(text)
		if err != nil {
			continue
		}
		if own, ok := Unseal(string(plain)); ok {
			reasoning := appendInside(nil, own)
			if h.sealed && !bytes.HasPrefix(reasoning, h.reply.reasoning) { // another reply follows at once
				h.closeReply()
				h.reply = &chatMessage{role: "assistant"}
			}
			h.reply.reasoning, h.sealed = reasoning, true
			return
		}
	}
	h.note("contents[].parts[].thoughtSignature", raw, "signed by another provider: the engine cannot read it")
}

// call takes a functionCall.
func (h *googleHistory) call(raw []byte) {
	call := camelDoc(raw)
	if call == nil {
		h.note("contents[].parts[].functionCall", raw, "it is no object")
		return
	}
	h.counted++
	id := stringOf(call.Get("id"))
	if id == "" {
		id = "call_" + strconv.Itoa(h.counted)
	}
	h.calls = append(h.calls, googleCall{id: id, name: stringOf(call.Get("name"))})
	h.reply.calls = append(h.reply.calls, chatCall{
		id: jsonscan.AppendQuote(nil, id), name: orEmpty(call.Get("name")), arguments: googleArguments(call.Get("args")),
	})
}

// response takes a functionResponse. The output of one that holds nothing else is its text, any other structure is given
// as it is spelled.
func (h *googleHistory) response(raw []byte) {
	h.closeReply()
	response := camelDoc(raw)
	if response == nil {
		h.note("contents[].parts[].functionResponse", raw, "it is no object")
		return
	}
	m := &chatMessage{role: "tool", callID: h.answered(stringOf(response.Get("id")), stringOf(response.Get("name")))}
	value := response.Get("response")
	if doc, err := jsonscan.ParseDoc(value); err == nil && len(doc.Members) == 1 && doc.Members[0].Key == "output" && inside(doc.Get("output")) != nil {
		m.parts = []chatPart{{text: inside(doc.Get("output"))}}
	} else if !isNull(value) {
		m.parts = []chatPart{{text: appendInside(nil, value)}}
	}
	cur := jsonscan.New(response.Get("parts"))
	for a := cur.Array(); a.Next(); {
		raw := cur.Raw()
		if part := camelDoc(raw); part != nil {
			m.parts = h.plain(m.parts, raw, part)
		}
	}
	h.out.message(m)
}

// answered finds the call that a response belongs to: by id, else the first of its name that waits, else the first that
// waits at all.
func (h *googleHistory) answered(id, name string) string {
	best := -1
	for i := range h.calls {
		c := &h.calls[i]
		if id != "" && c.id == id {
			c.answered = true
			return id
		}
		if !c.answered && (best < 0 || h.calls[best].name != name && c.name == name) {
			best = i
		}
	}
	if best >= 0 && (id == "" || h.calls[best].name == name) {
		h.calls[best].answered = true
		return h.calls[best].id
	}
	if id == "" {
		id = "call_of_" + name
	}
	return id
}

// plain takes a part that is text or media.
func (h *googleHistory) plain(parts []chatPart, raw []byte, part *jsonscan.Doc) []chatPart {
	if text := inside(part.Get("text")); text != nil {
		return append(parts, chatPart{text: text})
	}
	if blob := camelDoc(part.Get("inlineData")); blob != nil {
		mime := inside(blob.Get("mimeType"))
		data := inside(blob.Get("data"))
		if media := mediaPart(string(mime), data); media != nil {
			return append(parts, chatPart{other: media})
		}
		h.noteBehaviour("contents[].parts[].inlineData", raw, "chat has no part for media of this type")
		return parts
	}
	if file := camelDoc(part.Get("fileData")); file != nil {
		uri := file.Get("fileUri")
		if isImage(string(inside(file.Get("mimeType")))) && inside(uri) != nil {
			image := append([]byte(`{"type":"image_url","image_url":{"url":`), uri...)
			return append(parts, chatPart{other: append(image, "}}"...)})
		}
		h.noteBehaviour("contents[].parts[].fileData", raw, "a file that is stored elsewhere: the engine cannot see it")
		return parts
	}
	h.unknown(raw, part)
	return parts
}

func isImage(mime string) bool { return len(mime) > 6 && mime[:6] == "image/" }

// mediaPart is a chat part for media; nil when chat has none of the type. mime and data are the insides of JSON strings.
func mediaPart(mime string, data []byte) []byte {
	switch {
	case data == nil:
		return nil
	case isImage(mime):
		part := append([]byte(`{"type":"image_url","image_url":{"url":"data:`), mime...)
		part = append(append(part, ";base64,"...), data...)
		return append(part, `"}}`...)
	case mime == "audio/wav", mime == "audio/mp3", mime == "audio/mpeg":
		part := append([]byte(`{"type":"input_audio","input_audio":{"data":"`), data...)
		format := "mp3"
		if mime == "audio/wav" {
			format = "wav"
		}
		return append(append(append(part, `","format":"`...), format...), `"}}`...)
	case mime == "application/pdf":
		part := append([]byte(`{"type":"file","file":{"file_data":"data:application/pdf;base64,`), data...)
		return append(part, `"}}`...)
	}
	return nil
}

// unknown notes a part that chat has nothing like. One with nothing in it is how some clients spell an empty text.
func (h *googleHistory) unknown(raw []byte, part *jsonscan.Doc) {
	for i := range part.Members {
		switch key := part.Members[i].Key; key {
		case "thought", "thoughtSignature", "text":
		default:
			h.noteBehaviour("contents[].parts[]."+key, raw, "chat has no such part")
			return
		}
	}
}
