package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"captureproxy/internal/jsonscan"
)

// responsesHistory turns items into messages. What belongs to one reply is gathered in reply until something else follows.
type responsesHistory struct {
	*responsesDecoder
	leading *chatMessage // the leading system message, nil once another message has begun
	reply   *chatMessage
	answer  string // the id of the answer of ours that reply was, "" when unknown
	last    string // the kind of the last item in reply
}

// history writes the messages: the instructions, what went before, and the input.
func (d *responsesDecoder) history() error {
	h := &responsesHistory{responsesDecoder: d, leading: &chatMessage{role: "system"}}
	if raw := d.doc.Get("instructions"); inside(raw) != nil {
		h.leading.parts = append(h.leading.parts, chatPart{text: inside(raw)})
	} else if !isNull(raw) {
		if err := h.instructions(raw); err != nil {
			return err
		}
	}
	items, err := responsesInput(d.doc, d.previous, &d.req.Cuts)
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := h.item(item); err != nil {
			return err
		}
	}
	h.closeLeading()
	h.closeReply()
	if len(d.out.messages) == 0 {
		return bad("input", "the request has no input: send `input` as a string or as a list of items")
	}
	return nil
}

// instructions takes the list form, which holds items.
func (h *responsesHistory) instructions(raw []byte) error {
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		if err := h.item(cur.Raw()); err != nil {
			return err
		}
	}
	return nil
}

// responsesInput gathers the input items, an earlier response's included, and adds the borders of those in the body to the cuts.
func responsesInput(doc *jsonscan.Doc, previous Previous, cuts *[]int) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if raw := doc.Get("previous_response_id"); !isNull(raw) {
		id := stringOf(raw)
		earlier, ok := lookUp(previous, id)
		if !ok {
			return nil, bad("previous_response_id", "no response "+id+" is known in this session: send the whole conversation in `input`")
		}
		items = slices.Clip(earlier)
	}
	return ownInput(doc, items, previous, cuts)
}

// ownInput appends the items that a request brings itself.
func ownInput(doc *jsonscan.Doc, items []json.RawMessage, previous Previous, cuts *[]int) ([]json.RawMessage, error) {
	m := lastMember(doc, "input")
	if m == nil || isNull(m.Raw(doc.Bytes)) {
		return items, nil
	}
	raw := m.Raw(doc.Bytes)
	if inside(raw) != nil {
		if cuts != nil {
			*cuts = append(*cuts, m.Value, m.End)
		}
		item := append([]byte(`{"type":"message","role":"user","content":`), raw...)
		return append(items, append(item, '}')), nil
	}
	if raw[0] != '[' {
		return nil, bad("input", "`input` must be a string or a list of items")
	}
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		item := cur.Raw()
		if cuts != nil {
			*cuts = append(*cuts, m.Value+a.Value, m.Value+a.Value+len(item))
		}
		if typeOf(item) == "item_reference" {
			found, err := referred(item, items, previous)
			if err != nil {
				return nil, err
			}
			item = found
		}
		items = append(items, item)
	}
	return items, nil
}

func lookUp(previous Previous, id string) ([]json.RawMessage, bool) {
	if previous == nil {
		return nil, false
	}
	return previous(id)
}

// referred finds the item that a reference names: among the items before it, or in the answer of ours that its id tells.
func referred(reference []byte, before []json.RawMessage, previous Previous) ([]byte, error) {
	id := memberText(reference, "id")
	if answer := answerOf(id); answer != "" {
		earlier, _ := lookUp(previous, responsePrefix+answer)
		before = append(before[:len(before):len(before)], earlier...)
	}
	for i := len(before) - 1; i >= 0; i-- {
		if memberText(before[i], "id") == id {
			return before[i], nil
		}
	}
	return nil, bad("input", "no item "+id+" is known in this session: send the item itself in place of the reference")
}

// memberText returns a string member of an object.
func memberText(raw []byte, key string) string {
	cur := jsonscan.New(raw)
	text := ""
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == key {
			text, _ = cur.String()
		}
	}
	return text
}

// clientCalls are the calls of built-in tools that the harness itself runs: the name that the engine is shown, and the
// member that holds the arguments.
var clientCalls = map[string][2]string{
	"local_shell_call": {"local_shell", "action"}, "shell_call": {"shell", "action"}, "apply_patch_call": {"apply_patch", "operation"},
}

func (h *responsesHistory) item(raw []byte) error {
	doc, err := jsonscan.ParseDoc(raw)
	if err != nil {
		return bad("input", "every item of `input` must be an object")
	}
	kind := stringOf(doc.Get("type"))
	switch kind {
	case "", "message":
		return h.message(doc)
	case "reasoning":
		h.reasoningItem(doc)
	case "function_call":
		name := h.names.of(stringOf(doc.Get("namespace")), stringOf(doc.Get("name")))
		h.call(doc, name, argumentText(doc.Get("arguments")))
	case "custom_tool_call":
		name := h.names.of(stringOf(doc.Get("namespace")), stringOf(doc.Get("name")))
		h.call(doc, name, customArguments(doc.Get("input")))
	case "local_shell_call", "shell_call", "apply_patch_call":
		as := clientCalls[kind]
		h.note("input[]."+kind, raw, "the engine is shown a call of a function "+as[0])
		h.call(doc, as[0], argumentText(doc.Get(as[1])))
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output":
		h.output(doc)
	case "compaction_trigger":
		return bad("input", "this engine does not compact conversations: switch remote compaction off in the harness, so that it writes the summary itself")
	case "compaction", "compaction_summary", "context_compaction":
		h.noteBehaviour("input[]."+kind, raw, "a provider's encrypted summary, which nobody else can read: the engine does not see what it stands for")
	default:
		h.note("input[]."+kind, raw, "chat has no such item")
	}
	return nil
}

// message takes a message item. System and developer messages that nothing precedes join the leading one.
func (h *responsesHistory) message(doc *jsonscan.Doc) error {
	role := stringOf(doc.Get("role"))
	switch role {
	case "developer":
		role = "system"
	case "user", "system", "assistant":
	default:
		return bad("input", "a message of `input` has the role "+string(orEmpty(doc.Get("role")))+": use user, assistant, system or developer")
	}
	parts, refusal := h.content(doc.Get("content"))
	if role == "assistant" {
		h.begin("message", doc)
		h.reply.parts = append(h.reply.parts, parts...)
		h.reply.refusal = append(h.reply.refusal, refusal...)
		return nil
	}
	if role == "system" && h.leading != nil {
		h.leading.parts = append(h.leading.parts, parts...)
		return nil
	}
	h.closeLeading()
	h.closeReply()
	h.out.message(&chatMessage{role: role, parts: parts})
	return nil
}

// begin makes reply the one that an item of the assistant belongs to. An id of ours tells; without ids a reply is
// reasoning, then text, then calls, and text that directly follows text, or reasoning that follows anything but reasoning,
// begins another.
func (h *responsesHistory) begin(kind string, doc *jsonscan.Doc) {
	h.closeLeading()
	answer := answerOf(stringOf(doc.Get("id")))
	same := h.reply != nil
	switch {
	case !same:
	case answer != "" && h.answer != "":
		same = answer == h.answer
	case kind == "message":
		same = h.last != "message"
	case kind == "reasoning":
		same = h.last == "reasoning"
	}
	if !same {
		h.closeReply()
		h.reply = &chatMessage{role: "assistant"}
	}
	if answer != "" {
		h.answer = answer
	}
	h.last = kind
}

func (h *responsesHistory) closeLeading() {
	if h.leading != nil && len(h.leading.parts) > 0 {
		h.out.message(h.leading)
	}
	h.leading = nil
}

func (h *responsesHistory) closeReply() {
	if h.reply != nil {
		h.out.message(h.reply)
	}
	h.reply, h.answer, h.last = nil, "", ""
}

// reasoningItem takes reasoning back: out of our own seal, else as the plain text that some harnesses keep.
func (h *responsesHistory) reasoningItem(doc *jsonscan.Doc) {
	sealed := doc.Get("encrypted_content")
	var text []byte
	if own, ok := Unseal(stringOf(sealed)); ok {
		text = appendInside(nil, own)
	} else {
		if !isNull(sealed) {
			h.note("input[].encrypted_content", sealed, "encrypted by another provider: the engine cannot read it")
		}
		cur := jsonscan.New(doc.Get("content"))
		for a := cur.Array(); a.Next(); {
			for o := cur.Object(); o.Next(); {
				if raw := cur.Raw(); string(o.Key) == "text" {
					text = append(text, inside(raw)...)
				}
			}
		}
		if summary := doc.Get("summary"); len(text) == 0 && !isNull(summary) && string(summary) != "[]" {
			h.note("input[].summary", summary, "a summary is not what the model thought")
		}
	}
	if len(text) > 0 {
		h.begin("reasoning", doc)
		h.reply.reasoning = append(h.reply.reasoning, text...)
	}
}

func (h *responsesHistory) call(doc *jsonscan.Doc, name string, arguments []byte) {
	h.begin("call", doc)
	id := doc.Get("call_id")
	if isNull(id) {
		id = doc.Get("id")
	}
	h.reply.calls = append(h.reply.calls, chatCall{id: orEmpty(id), name: jsonscan.AppendQuote(nil, name), arguments: arguments})
}

// argumentText returns the arguments of a call: the text of a string as it is, or another value's own spelling.
func argumentText(raw []byte) []byte {
	if inside(raw) == nil {
		return raw
	}
	cur := jsonscan.New(raw)
	text, _ := cur.AppendString(nil)
	return text
}

// output takes a tool's result.
func (h *responsesHistory) output(doc *jsonscan.Doc) {
	h.closeLeading()
	h.closeReply()
	id := stringOf(doc.Get("call_id"))
	if id == "" {
		id = stringOf(doc.Get("id"))
	}
	raw := doc.Get("output")
	parts, _ := h.content(raw)
	if len(raw) > 0 && (raw[0] == '{' || len(parts) == 0 && raw[0] == '[') && string(raw) != "[]" { // some other structure: as it is spelled
		parts = []chatPart{{text: appendInside(nil, raw)}}
	}
	h.out.message(&chatMessage{role: "tool", callID: id, parts: parts})
}

// content translates the content of a message or the output of a tool.
func (h *responsesHistory) content(raw []byte) (parts []chatPart, refusal []byte) {
	if text := inside(raw); text != nil {
		return []chatPart{{text: text}}, nil
	}
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		raw := cur.Raw()
		doc, err := jsonscan.ParseDoc(raw)
		if err != nil {
			h.note("input[].content[]", raw, "it is no object")
			continue
		}
		switch kind := stringOf(doc.Get("type")); kind {
		case "input_text", "output_text", "text":
			parts = append(parts, chatPart{text: inside(doc.Get("text"))})
		case "refusal":
			refusal = append(refusal, inside(doc.Get("refusal"))...)
		case "input_image", "computer_screenshot":
			parts = h.image(parts, raw, doc)
		case "input_file":
			parts = h.file(parts, raw, doc)
		case "input_audio":
			if audio := doc.Get("input_audio"); !isNull(audio) {
				parts = append(parts, chatPart{other: raw})
			}
		default:
			h.noteBehaviour("input[].content[]."+kind, raw, "chat has no such part")
		}
	}
	return parts, refusal
}

// image makes an image part. Its URL, often megabytes of base64, keeps its spelling.
func (h *responsesHistory) image(parts []chatPart, raw []byte, doc *jsonscan.Doc) []chatPart {
	url := doc.Get("image_url")
	if inside(url) == nil {
		h.noteBehaviour("input[].content[].input_image", raw, "an image that is stored with the provider: the engine cannot see it")
		return parts
	}
	part := append([]byte(`{"type":"image_url","image_url":{"url":`), url...)
	switch detail := doc.Get("detail"); string(detail) {
	case `"low"`, `"high"`, `"auto"`:
		part = append(append(part, `,"detail":`...), detail...)
	case "", "null":
	default:
		h.note("input[].content[].detail", detail, "chat has no such detail")
	}
	return append(parts, chatPart{other: append(part, "}}"...)})
}

// file makes a file part of a file that is in the request.
func (h *responsesHistory) file(parts []chatPart, raw []byte, doc *jsonscan.Doc) []chatPart {
	data := doc.Get("file_data")
	if inside(data) == nil {
		h.noteBehaviour("input[].content[].input_file", raw, "a file that is stored elsewhere: the engine cannot see it")
		return parts
	}
	part := append([]byte(`{"type":"file","file":{"file_data":`), data...)
	if name := doc.Get("filename"); inside(name) != nil {
		part = append(append(part, `,"filename":`...), name...)
	}
	return append(parts, chatPart{other: append(part, "}}"...)})
}

// responsePrefix begins the id of a response.
const responsePrefix = "resp_"

// answerOf returns the answer that an item id of ours belongs to: ids are a prefix for the kind, the answer's id and the
// item's place, with underscores between. "" for an id that was made elsewhere.
func answerOf(itemID string) string {
	_, rest, ok := strings.Cut(itemID, "_")
	end := strings.LastIndexByte(rest, '_')
	if !ok || end < 1 || end+1 == len(rest) || strings.Trim(rest[end+1:], "0123456789") != "" {
		return ""
	}
	return rest[:end]
}
