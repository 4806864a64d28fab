package dialect

import (
	"encoding/json"
)

// anthropicReader reads the answers of Anthropic's Messages API.
type anthropicReader struct {
	buf       []byte
	input     anthropicUsage // of message_start: message_delta may give the output's count alone
	tools     map[int]int    // content block → place among the calls
	arguments map[int]bool   // blocks whose arguments have begun
}

type anthropicUsage struct {
	Input         *int64 `json:"input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	Output        *int64 `json:"output_tokens"`
}

type anthropicContent struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Input    json.RawMessage `json:"input"`
}

type anthropicMessage struct {
	ID           string             `json:"id"`
	Type         string             `json:"type"`
	Model        string             `json:"model"`
	Content      []anthropicContent `json:"content"`
	StopReason   string             `json:"stop_reason"`
	StopSequence string             `json:"stop_sequence"`
	Usage        json.RawMessage    `json:"usage"`
}

type anthropicEvent struct {
	Type    string            `json:"type"`
	Index   int               `json:"index"`
	Message *anthropicMessage `json:"message"`
	Block   *anthropicContent `json:"content_block"`
	Delta   struct {
		Text         string `json:"text"`
		Thinking     string `json:"thinking"`
		JSON         string `json:"partial_json"`
		StopReason   string `json:"stop_reason"`
		StopSequence string `json:"stop_sequence"`
	} `json:"delta"`
	Usage json.RawMessage `json:"usage"`
	Error json.RawMessage `json:"error"`
}

func (r *anthropicReader) Event(data []byte) (chunk []byte, last bool) {
	var ev anthropicEvent
	if json.Unmarshal(data, &ev) != nil {
		return nil, false
	}
	var d nativeDelta
	switch ev.Type {
	case "message_start":
		if ev.Message == nil {
			return nil, false
		}
		r.usage(ev.Message.Usage)
		return r.chunk(ev.Message.ID, ev.Message.Model, nil, nil, nil), false
	case "content_block_start":
		if ev.Block == nil {
			return nil, false
		}
		d.text, d.reasoning = ev.Block.Text, ev.Block.Thinking
		d.calls = r.begin(ev.Index, ev.Block)
	case "content_block_delta":
		d.text, d.reasoning = ev.Delta.Text, ev.Delta.Thinking
		if place, ok := r.tools[ev.Index]; ok && ev.Delta.JSON != "" {
			r.arguments[ev.Index] = true
			d.calls = []nativeCall{{index: place, arguments: ev.Delta.JSON}}
		}
	case "content_block_stop":
		if place, ok := r.tools[ev.Index]; ok && !r.arguments[ev.Index] { // a call without arguments streams none
			d.calls = []nativeCall{{index: place, arguments: "{}"}}
		}
	case "message_delta":
		d.finish, d.stopString = ev.Delta.StopReason, ev.Delta.StopSequence
		return r.chunk("", "", &d, r.usage(ev.Usage), nil), false
	case "message_stop":
		return nil, true
	case "error":
		return r.chunk("", "", nil, nil, ev.Error), false
	}
	if d.text == "" && d.reasoning == "" && len(d.calls) == 0 {
		return nil, false
	}
	return r.chunk("", "", &d, nil, nil), false
}

// begin notes a block that is a tool's call.
func (r *anthropicReader) begin(index int, b *anthropicContent) []nativeCall {
	if b.Type != "tool_use" {
		return nil
	}
	if r.tools == nil {
		r.tools, r.arguments = map[int]int{}, map[int]bool{}
	}
	place := len(r.tools)
	r.tools[index] = place
	call := nativeCall{index: place, id: b.ID, name: b.Name}
	if s := string(b.Input); s != "" && s != "{}" && s != "null" { // whole from the start
		call.arguments = s
		r.arguments[index] = true
	}
	return []nativeCall{call}
}

// usage reads counts and gives them chat's names. What is cached is part of the prompt.
func (r *anthropicReader) usage(raw json.RawMessage) []byte {
	var u anthropicUsage
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil {
		return nil
	}
	if u.Input == nil {
		u.Input, u.CacheRead, u.CacheCreation = r.input.Input, r.input.CacheRead, r.input.CacheCreation
	}
	r.input = u
	if u.Input == nil || u.Output == nil {
		return nil
	}
	return withCounts(raw, *u.Input+count(u.CacheRead)+count(u.CacheCreation), *u.Output)
}

func count(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func (r *anthropicReader) Whole(body []byte) []byte {
	var m anthropicMessage
	var fault struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &m) != nil {
		return nil
	}
	if m.Type == "error" && json.Unmarshal(body, &fault) == nil {
		return r.chunk("", "", nil, nil, fault.Error)
	}
	if m.Type != "message" {
		return nil
	}
	d := nativeDelta{finish: m.StopReason, stopString: m.StopSequence}
	for _, b := range m.Content {
		d.text += b.Text
		d.reasoning += b.Thinking
		if b.Type == "tool_use" {
			d.calls = append(d.calls, nativeCall{index: len(d.calls), id: b.ID, name: b.Name, arguments: string(b.Input)})
		}
	}
	return r.chunk(m.ID, m.Model, &d, r.usage(m.Usage), nil)
}

func (r *anthropicReader) chunk(id, model string, d *nativeDelta, usage, fault []byte) []byte {
	var deltas []nativeDelta
	if d != nil {
		deltas = []nativeDelta{*d}
	}
	r.buf = appendChunk(r.buf, id, model, deltas, usage, fault)
	return r.buf
}
