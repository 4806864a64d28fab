package dialect

import (
	"encoding/json"
)

// responsesReader reads the answers of OpenAI's Responses API.
type responsesReader struct {
	buf    []byte
	spoken map[int]bool // items whose text came in deltas
	calls  int
}

type responsesItem struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Content   []responsesPart `json:"content"`
	Summary   []responsesPart `json:"summary"`
}

type responsesPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

type responsesObject struct {
	ID         string `json:"id"`
	Object     string `json:"object"`
	Model      string `json:"model"`
	Status     string `json:"status"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Output []responsesItem `json:"output"`
	Usage  json.RawMessage `json:"usage"`
	Error  json.RawMessage `json:"error"`
}

type responsesEvent struct {
	Type     string           `json:"type"`
	Output   int              `json:"output_index"`
	Delta    string           `json:"delta"`
	Item     *responsesItem   `json:"item"`
	Response *responsesObject `json:"response"`
	Error    json.RawMessage  `json:"error"`
}

func (r *responsesReader) Event(data []byte) (chunk []byte, last bool) {
	var ev responsesEvent
	if json.Unmarshal(data, &ev) != nil {
		return nil, false
	}
	var d nativeDelta
	switch ev.Type {
	case "response.created":
		if ev.Response == nil {
			return nil, false
		}
		return r.chunk(ev.Response.ID, ev.Response.Model, nil, nil, nil), false
	case "response.output_text.delta":
		d.text = ev.Delta
	case "response.refusal.delta":
		d.refusal = ev.Delta
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		d.reasoning = ev.Delta
	case "response.output_item.done":
		if ev.Item != nil {
			r.item(&d, ev.Item, r.spoken[ev.Output])
		}
	case "response.completed", "response.incomplete", "response.failed":
		if ev.Response == nil {
			return nil, false
		}
		return r.ended(ev.Response, nil), true
	case "error":
		fault := ev.Error
		if fault == nil {
			fault = data
		}
		return r.chunk("", "", nil, nil, fault), false
	}
	if d.text == "" && d.refusal == "" && d.reasoning == "" && len(d.calls) == 0 {
		return nil, false
	}
	if ev.Item == nil {
		r.spoken[ev.Output] = true
	}
	return r.chunk("", "", &d, nil, nil), false
}

// item adds what a finished item says; its text only where no delta said it before.
func (r *responsesReader) item(d *nativeDelta, it *responsesItem, spoken bool) {
	switch it.Type {
	case "function_call", "custom_tool_call":
		call := nativeCall{index: r.calls, id: it.CallID, name: it.Name, arguments: it.Arguments}
		if it.Type == "custom_tool_call" {
			call.custom, call.arguments = true, it.Input
		}
		r.calls++
		d.calls = append(d.calls, call)
	case "message":
		for _, p := range it.Content {
			if !spoken {
				d.text += p.Text
				d.refusal += p.Refusal
			}
		}
	case "reasoning":
		for _, p := range append(it.Summary, it.Content...) {
			if !spoken {
				d.reasoning += p.Text
			}
		}
	}
}

// ended reads the response object that ends an answer. d holds what it says beyond the deltas, nil for nothing.
func (r *responsesReader) ended(o *responsesObject, d *nativeDelta) []byte {
	if d == nil {
		d = &nativeDelta{}
	}
	if o.Status == "failed" || o.Error != nil && string(o.Error) != "null" {
		fault := o.Error
		if fault == nil {
			fault = json.RawMessage(`{"message":"the response failed"}`)
		}
		return r.chunk(o.ID, o.Model, nil, nil, fault)
	}
	d.finish = o.Status
	if o.Status == "incomplete" {
		d.finish = o.Incomplete.Reason
	}
	return r.chunk(o.ID, o.Model, d, responsesUsage(o.Usage), nil)
}

func responsesUsage(raw json.RawMessage) []byte {
	var u struct {
		Input  *int64 `json:"input_tokens"`
		Output *int64 `json:"output_tokens"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u.Input == nil || u.Output == nil {
		return nil
	}
	return withCounts(raw, *u.Input, *u.Output)
}

func (r *responsesReader) Whole(body []byte) []byte {
	var o responsesObject
	if json.Unmarshal(body, &o) != nil || o.Object != "response" {
		return nil
	}
	var d nativeDelta
	for i := range o.Output {
		r.item(&d, &o.Output[i], false)
	}
	return r.ended(&o, &d)
}

func (r *responsesReader) chunk(id, model string, d *nativeDelta, usage, fault []byte) []byte {
	var deltas []nativeDelta
	if d != nil {
		deltas = []nativeDelta{*d}
	}
	r.buf = appendChunk(r.buf, id, model, deltas, usage, fault)
	return r.buf
}
