package engine

import (
	"encoding/json"
	"strings"

	"captureproxy/internal/jsonscan"
)

// complaint is what an engine's error answer says, whatever shape it has.
type complaint struct {
	param string // the field that it names as the culprit, "" for none
	code  string
	text  string
}

// mostComplaint bounds how much of an error answer is looked at.
const mostComplaint = 64 << 10

// complaints reads an error answer: the nested shape of OpenAI, the flat one of SGLang and older vLLM, Google's list, a
// validator's list of details, a router's wrapping of another one's answer, or plain text. The outermost comes first.
func complaints(body []byte) []complaint {
	body = body[:min(len(body), mostComplaint)]
	if !json.Valid(body) {
		return []complaint{{text: string(body)}}
	}
	return complaintsIn(nil, body, 0)
}

func complaintsIn(out []complaint, raw json.RawMessage, depth int) []complaint {
	if depth > 6 {
		return out
	}
	var list []json.RawMessage
	var text string
	switch {
	case json.Unmarshal(raw, &list) == nil:
		for _, element := range list[:min(len(list), 16)] {
			out = complaintsIn(out, element, depth+1)
		}
		return out
	case json.Unmarshal(raw, &text) == nil:
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "{") && json.Valid([]byte(text)) { // an answer that somebody passed on as text
			return complaintsIn(out, json.RawMessage(text), depth+1)
		}
		if text != "" {
			out = append(out, complaint{text: text})
		}
		return out
	}
	var shape struct{ Error, Message, Detail, Param, Code, Type, Loc, Msg, Metadata json.RawMessage }
	if json.Unmarshal(raw, &shape) != nil {
		return out
	}
	out = complaintsIn(out, shape.Error, depth+1)
	c := complaint{param: strings.TrimPrefix(asText(shape.Param), "body."), code: asText(shape.Code), text: asText(shape.Message)}
	if t := asText(shape.Type); c.code == "" {
		c.code = t
	}
	if shape.Loc != nil {
		c.param, c.text = located(shape.Loc), asText(shape.Msg)
	}
	if passedOn := strings.HasPrefix(c.text, "{") && json.Valid([]byte(c.text)); passedOn || c.text == "" {
		out = complaintsIn(out, shape.Message, depth+1)
	}
	if c.text != "" || c.param != "" {
		out = append(out, c)
	}
	out = complaintsIn(out, shape.Detail, depth+1)
	var wrapped struct{ Raw json.RawMessage }
	if json.Unmarshal(shape.Metadata, &wrapped) == nil {
		out = complaintsIn(out, wrapped.Raw, depth+1)
	}
	return out
}

// asText is a JSON string's value, "" for anything else.
func asText(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// located spells a validator's place, ["body", "stream_options", "include_usage"], as a dotted name.
func located(raw json.RawMessage) string {
	var path []any
	if json.Unmarshal(raw, &path) != nil {
		return ""
	}
	var names []string
	for i, step := range path {
		name, ok := step.(string)
		switch {
		case !ok: // an element of a list
			return ""
		case i == 0 && name == "body":
		default:
			names = append(names, name)
		}
	}
	return strings.Join(names, ".")
}

// literal spells a value that an engine's prose names as JSON.
func literal(value string) string {
	if json.Valid([]byte(value)) {
		return value
	}
	switch lower := strings.ToLower(value); lower {
	case "true", "false":
		return lower
	}
	return string(jsonscan.AppendQuote(nil, value))
}
