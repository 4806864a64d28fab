package dialect

import (
	"slices"

	"captureproxy/internal/jsonscan"
)

// anthropicBlock is a content block's members as they were sent, nil when absent.
type anthropicBlock struct {
	kind                      string
	raw                       []byte
	text, thinking, signature []byte
	source                    []byte
	id, name, input           []byte
	toolUseID, content        []byte
	isError                   []byte
	extras                    []member
}

func readAnthropicBlock(raw []byte) anthropicBlock {
	b := anthropicBlock{raw: raw}
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		value := cur.Raw()
		switch string(o.Key) {
		case "type":
			b.kind = stringOf(value)
		case "text":
			b.text = value
		case "thinking":
			b.thinking = value
		case "signature":
			b.signature = value
		case "source":
			b.source = value
		case "id":
			b.id = value
		case "name":
			b.name = value
		case "input":
			b.input = value
		case "tool_use_id":
			b.toolUseID = value
		case "content":
			b.content = value
		case "is_error":
			b.isError = value
		default:
			b.extras = append(b.extras, member{string(o.Key), value})
		}
	}
	return b
}

// extras notes the members that are left out of what is otherwise translated. What is null says nothing.
func (t *fromAnthropic) extras(at string, list []member) {
	for _, m := range list {
		switch {
		case isNull(m.raw):
		case m.key == "cache_control":
			t.note("cache_control", m.raw, whyCache)
		default:
			t.note(at+m.key, m.raw, whyUnknown)
		}
	}
}

// unknown notes a block that is left out whole.
func (t *fromAnthropic) unknown(at string, b *anthropicBlock) {
	kind := b.kind
	if kind == "" {
		kind = "none"
	}
	t.note(at, b.raw, "chat has no place for a block of type "+kind)
}

// parts translates a block of a prompt.
func (t *fromAnthropic) parts(at string, b *anthropicBlock) []chatPart {
	switch b.kind {
	case "text":
		if text := inside(b.text); text != nil {
			t.extras(at+".", b.extras)
			return textPart(text)
		}
	case "image":
		if url := imageURL(b.source); url != nil {
			t.extras(at+".", b.extras)
			return []chatPart{{other: slices.Concat([]byte(`{"type":"image_url","image_url":{"url":`), url, []byte("}}"))}}
		}
	case "document":
		if list, ok := t.document(at, b); ok {
			t.extras(at+".", b.extras)
			return list
		}
	}
	t.unknown(at, b)
	return nil
}

// document translates a document that is text; a PDF is left out like every block that chat has no place for.
func (t *fromAnthropic) document(at string, b *anthropicBlock) (list []chatPart, ok bool) {
	src := readAnthropicSource(b.source)
	switch src.kind {
	case "text":
		return textPart(inside(src.data)), true
	case "content":
		list = textPart(inside(src.content))
		cur := jsonscan.New(src.content)
		for a := cur.Array(); a.Next(); {
			inner := readAnthropicBlock(cur.Raw())
			if inner.kind != "document" { // which would nest for ever
				list = append(list, t.parts(at+".source.content[]", &inner)...)
			}
		}
		return list, true
	}
	return nil, false
}

// anthropicSource is where an image or a document comes from.
type anthropicSource struct {
	kind                          string
	mediaType, data, url, content []byte
}

func readAnthropicSource(raw []byte) anthropicSource {
	var s anthropicSource
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		value := cur.Raw()
		switch string(o.Key) {
		case "type":
			s.kind = stringOf(value)
		case "media_type":
			s.mediaType = value
		case "data":
			s.data = value
		case "url":
			s.url = value
		case "content":
			s.content = value
		}
	}
	return s
}

// imageURL returns an image's address as a JSON string, nil when it has none: a file kept by the provider cannot be seen
// from here.
func imageURL(raw []byte) []byte {
	src := readAnthropicSource(raw)
	switch src.kind {
	case "base64":
		if kind, data := inside(src.mediaType), inside(src.data); kind != nil && data != nil {
			return slices.Concat([]byte(`"data:`), kind, []byte(";base64,"), data, []byte{'"'})
		}
	case "url":
		if inside(src.url) != nil {
			return src.url
		}
	}
	return nil
}

// textPart is a text as a list of parts, of none when it is empty.
func textPart(text []byte) []chatPart {
	if len(text) == 0 {
		return nil
	}
	return []chatPart{{text: text}}
}

// unparsedArguments is the only member of the input that a call gets in a whole answer when the engine's arguments are no
// JSON, its value being their text: a call that was cut. An empty object would claim arguments that nobody gave, and the
// text itself is no value. No tool's schema has the name, so a harness that runs such a call refuses it.
const unparsedArguments = "__unparsed_arguments"

// sampledArguments is the argument text that an input stands for: its bytes as they came.
func sampledArguments(input []byte) []byte {
	if input == nil {
		return []byte("{}")
	}
	cur := jsonscan.New(input)
	var text []byte
	members, ours := 0, false
	for o := cur.Object(); o.Next(); members++ {
		if string(o.Key) == unparsedArguments {
			text, ours = cur.AppendString(nil)
		}
	}
	if members == 1 && ours && !validJSON(text) {
		return text
	}
	return input
}
