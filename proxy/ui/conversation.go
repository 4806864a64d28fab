package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// message is one message of a conversation, as people read it.
type message struct {
	Anchor string
	Number int // place among the request's messages, -1 for the answer
	Role   string
	Name   string
	New    bool // was not there when the turn before was asked
	Parts  []part
}

// part is a piece of a message.
type part struct {
	Kind  string // text, thinking, call, result, media, json, empty
	Label string // tool's name, kind of medium
	Ref   string // id of the tool call
	Text  string
	More  string // address of what follows, "" when this is all
	Rest  int    // bytes that follow
}

// wire is what is read of a message in OpenAI's format, whatever else it holds.
type wire struct {
	Role             string          `json:"role"`
	Name             string          `json:"name"`
	Content          json.RawMessage `json:"content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Refusal          json.RawMessage `json:"refusal"`
	ToolCallID       string          `json:"tool_call_id"`
	ToolCalls        []wireCall      `json:"tool_calls"`
	FunctionCall     *wireFunction   `json:"function_call"`
}

type wireCall struct {
	ID       string          `json:"id"`
	Function wireFunction    `json:"function"`
	Custom   json.RawMessage `json:"custom"`
}

type wireFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type wirePart struct {
	Type     string          `json:"type"`
	Text     json.RawMessage `json:"text"`
	Thinking json.RawMessage `json:"thinking"`
	ImageURL json.RawMessage `json:"image_url"`
}

// readMessage takes a message apart. One that has not the form of a message is shown as the JSON that it is.
func readMessage(raw json.RawMessage, number int) message {
	m := message{Number: number, Anchor: anchorOf(number)}
	raw = keepSurrogates(raw)
	var w wire
	if err := json.Unmarshal(raw, &w); err != nil {
		m.Role, m.Parts = "unreadable", []part{{Kind: "json", Text: indent(raw)}}
		return m
	}
	m.Role, m.Name = w.Role, w.Name
	if t := textOf(w.ReasoningContent); t != "" {
		m.Parts = append(m.Parts, part{Kind: "thinking", Text: t})
	}
	if t := textOf(w.Reasoning); t != "" && t != textOf(w.ReasoningContent) {
		m.Parts = append(m.Parts, part{Kind: "thinking", Text: t})
	}
	kind := "text"
	if w.Role == "tool" || w.Role == "function" {
		kind = "result"
	}
	m.Parts = append(m.Parts, contentOf(w.Content, kind)...)
	for i := range m.Parts {
		if m.Parts[i].Kind == "result" {
			m.Parts[i].Ref = w.ToolCallID
		}
	}
	if t := textOf(w.Refusal); t != "" {
		m.Parts = append(m.Parts, part{Kind: "text", Label: "refusal", Text: t})
	}
	for _, c := range w.ToolCalls {
		p := part{Kind: "call", Label: c.Function.Name, Ref: c.ID, Text: arguments(c.Function.Arguments)}
		if p.Label == "" && len(c.Custom) > 0 {
			p.Label, p.Text = "custom", indent(c.Custom)
		}
		m.Parts = append(m.Parts, p)
	}
	if f := w.FunctionCall; f != nil {
		m.Parts = append(m.Parts, part{Kind: "call", Label: f.Name, Text: arguments(f.Arguments)})
	}
	if len(m.Parts) == 0 {
		m.Parts = []part{{Kind: "empty"}}
	}
	return m
}

func anchorOf(number int) string {
	if number < 0 {
		return "answer"
	}
	return fmt.Sprintf("m%d", number)
}

// contentOf reads a string, or a list of parts.
func contentOf(raw json.RawMessage, kind string) []part {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return nil
		}
		return []part{{Kind: kind, Text: s}}
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return []part{{Kind: "json", Text: indent(raw)}}
	}
	var parts []part
	for _, item := range list {
		parts = append(parts, partOf(item, kind))
	}
	return parts
}

func partOf(raw json.RawMessage, kind string) part {
	var w wirePart
	if err := json.Unmarshal(raw, &w); err != nil {
		return part{Kind: "json", Text: indent(raw)}
	}
	switch {
	case w.Type == "text" || w.Type == "input_text" || w.Type == "output_text" || w.Type == "refusal":
		return part{Kind: kind, Text: textOf(w.Text)}
	case w.Type == "thinking" || w.Type == "reasoning":
		if t := textOf(w.Thinking); t != "" {
			return part{Kind: "thinking", Text: t}
		}
		return part{Kind: "thinking", Text: textOf(w.Text)}
	case strings.Contains(w.Type, "image") || strings.Contains(w.Type, "audio") || strings.Contains(w.Type, "video") || strings.Contains(w.Type, "file"):
		return part{Kind: "media", Label: w.Type, Text: mediaNote(raw)}
	}
	return part{Kind: "json", Label: w.Type, Text: indent(raw)}
}

// mediaNote says what a picture is without showing it: it may be megabytes, or an address of somebody else's.
func mediaNote(raw json.RawMessage) string {
	note := fmt.Sprintf("%s bytes of JSON", number(len(raw)))
	if i := bytes.Index(raw, []byte("data:")); i >= 0 {
		kind, _, _ := bytes.Cut(raw[i+len("data:"):min(i+100, len(raw))], []byte(";"))
		return string(kind) + ", " + note
	}
	if i := bytes.Index(raw, []byte("http")); i >= 0 {
		address, _, _ := bytes.Cut(raw[i:min(i+200, len(raw))], []byte(`"`))
		return string(address) + ", not loaded"
	}
	return note
}

// textOf is a JSON string's text; anything else that is there is shown as JSON.
func textOf(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return indent(raw)
}

// arguments are a string that should hold JSON, or JSON itself.
func arguments(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return indent(raw)
	}
	return indent([]byte(s))
}

// indent lays JSON out for reading. What is none stays as it is.
func indent(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	var b bytes.Buffer
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// Bounds of what a page shows at once.
const (
	firstText    = 6_000  // of one part of a message, in bytes
	moreText     = 30_000 // of each further piece
	shownBefore  = 30     // messages before the answer
	moreMessages = 50
)

// conversation is the part of a turn's messages that a page shows.
type conversation struct {
	Missing  bool // the document has no messages
	Earlier  int  // messages before the first shown
	Load     string
	Messages []message
	Answer   *message
}

// converse reads messages [from, to) of a turn, and with answer what the model said.
func converse(b *book, l links, i, from, to int, answer bool) conversation {
	t := &b.doc.Turns[i]
	if t.RequestMessages == nil {
		return conversation{Missing: true}
	}
	to = min(max(to, 0), len(t.RequestMessages))
	from = min(max(from, 0), to)
	c := conversation{Earlier: from}
	known := 0
	if p := b.turn(t.ParentID); p >= 0 {
		known = len(b.doc.Turns[p].RequestMessages) + 1
	}
	names := callNames(t.RequestMessages[max(0, from-shownBefore):to])
	for k := from; k < to; k++ {
		m := readMessage(t.RequestMessages[k], k)
		m.New = known > 0 && k >= known
		for j := range m.Parts {
			if p := &m.Parts[j]; p.Kind == "result" && m.Name == "" {
				p.Label = names[p.Ref]
			}
		}
		c.Messages = append(c.Messages, bounded(m, b, l, i))
	}
	if from > 0 && !l.inline {
		c.Load = fmt.Sprintf("%s/messages?from=%d&to=%d", l.turn(b.key, i), max(from-moreMessages, 0), from)
	}
	if answer && len(t.ResponseMessage) > 0 && string(t.ResponseMessage) != "null" {
		m := bounded(readMessage(t.ResponseMessage, -1), b, l, i)
		c.Answer = &m
	}
	return c
}

// callNames finds the names of the tools that results answer.
func callNames(messages []json.RawMessage) map[string]string {
	names := map[string]string{}
	for _, raw := range messages {
		if !bytes.Contains(raw, []byte(`"tool_calls"`)) {
			continue
		}
		var w wire
		if json.Unmarshal(raw, &w) != nil { // is shown as it stands
			continue
		}
		for _, c := range w.ToolCalls {
			names[c.ID] = c.Function.Name
		}
	}
	return names
}

// bounded shortens what is long, and says where the rest is.
func bounded(m message, b *book, l links, turn int) message {
	limit := firstText
	if l.inline {
		limit = moreText
	}
	for j := range m.Parts {
		p := &m.Parts[j]
		next := 0
		if p.Text, next, p.Rest = window(p.Text, 0, limit); p.Rest > 0 && !l.inline {
			p.More = moreLink(b, l, turn, m.Number, j, next)
		}
	}
	return m
}

func moreLink(b *book, l links, turn, number, part, from int) string {
	return fmt.Sprintf("%s/text?m=%d&p=%d&from=%d", l.turn(b.key, turn), number, part, from)
}

// further is the next piece of a long part of a message; ok is false where there is none.
func further(b *book, l links, turn, number, k, from int) (p part, ok bool) {
	t := &b.doc.Turns[turn]
	var m message
	switch {
	case number == -1:
		m = readMessage(t.ResponseMessage, -1)
	case number >= 0 && number < len(t.RequestMessages):
		m = readMessage(t.RequestMessages[number], number)
	default:
		return part{}, false
	}
	if k < 0 || k >= len(m.Parts) || from < 0 || from >= len(m.Parts[k].Text) {
		return part{}, false
	}
	p = m.Parts[k]
	next := 0
	if p.Text, next, p.Rest = window(p.Text, from, moreText); p.Rest > 0 {
		p.More = moreLink(b, l, turn, number, k, next)
	}
	return p, true
}

// tool is one of a turn's tools.
type tool struct{ Name, Description, Schema string }

func toolsOf(raw []json.RawMessage) []tool {
	var list []tool
	for _, r := range raw {
		var w struct {
			Type     string `json:"type"`
			Name     string `json:"name"`
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		t := tool{Schema: indent(r)}
		if json.Unmarshal(keepSurrogates(r), &w) == nil {
			t.Name, t.Description = w.Function.Name, w.Function.Description
			if t.Name == "" {
				t.Name = w.Name
			}
			if len(w.Function.Parameters) > 0 {
				t.Schema = indent(w.Function.Parameters)
			}
		}
		if t.Schema, _, _ = window(t.Schema, 0, firstText); t.Name == "" {
			t.Name = "(without a name)"
		}
		list = append(list, t)
	}
	return list
}

// snippet is what a message says, in one line.
func snippet(raw json.RawMessage) (text, calls string) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", ""
	}
	m := readMessage(raw, -1)
	var names []string
	for _, p := range m.Parts {
		switch {
		case p.Kind == "text" && text == "":
			text = short(p.Text, 110)
		case p.Kind == "call":
			names = append(names, short(p.Label, 30))
		}
	}
	if text == "" {
		if i := slices.IndexFunc(m.Parts, func(p part) bool { return p.Kind == "thinking" }); i >= 0 {
			text = short(m.Parts[i].Text, 110)
		}
	}
	if len(names) > 4 {
		names = append(names[:4], "…")
	}
	return text, strings.Join(names, ", ")
}
