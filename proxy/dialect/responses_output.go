package dialect

import (
	"encoding/json"
	"strconv"

	"captureproxy/internal/jsonscan"
)

// outputItem is one item of a response's output: a stretch of what was said.
type outputItem struct {
	kind  outputKind
	parts []stretch // of the reasoning, or of the text and the refusal
	call  int       // which call, and how much of its arguments went out
	sent  int
	input *customInput // of a custom tool's call
}

type outputKind int

const (
	reasoningOutput outputKind = iota
	messageOutput
	callOutput
)

// stretch is a part of a message's text or refusal, or of the reasoning.
type stretch struct {
	refusal  bool
	from, to int
}

// text returns what a stretch of an item stands for.
func (p stretch) text(kind outputKind, s *Said) []byte {
	switch {
	case kind == reasoningOutput:
		return s.Reasoning[p.from:p.to]
	case p.refusal:
		return s.Refusal[p.from:p.to]
	}
	return s.Text[p.from:p.to]
}

// wholeOutput are the items of an answer that is not streamed.
func wholeOutput(r *Request, s *Said) []outputItem {
	var items []outputItem
	if len(s.Reasoning) > 0 {
		items = append(items, outputItem{kind: reasoningOutput, parts: []stretch{{to: len(s.Reasoning)}}})
	}
	var parts []stretch
	if len(s.Text) > 0 {
		parts = append(parts, stretch{to: len(s.Text)})
	}
	if len(s.Refusal) > 0 {
		parts = append(parts, stretch{refusal: true, to: len(s.Refusal)})
	}
	if parts != nil {
		items = append(items, outputItem{kind: messageOutput, parts: parts})
	}
	for i := range s.Calls {
		it := outputItem{kind: callOutput, call: i, sent: len(s.Calls[i].Arguments)}
		if r.responses.names.back(s.Calls[i].Name).custom {
			it.input = &customInput{}
			it.input.end(s.Calls[i].Arguments)
		}
		items = append(items, it)
	}
	return items
}

// responsesOutput are the output items of an answer.
func responsesOutput(r *Request, a Answer, s *Said) []json.RawMessage {
	items := wholeOutput(r, s)
	out := make([]json.RawMessage, len(items))
	for i := range items {
		out[i] = (&outputWriter{r, a, s}).item(nil, i, &items[i], "completed")
	}
	return out
}

// outputWriter writes items.
type outputWriter struct {
	r *Request
	a Answer
	s *Said
}

// itemID appends the id of the item at a place, as a JSON string (see [answerOf]).
func (w *outputWriter) itemID(dst []byte, place int, it *outputItem) []byte {
	prefix := "msg_"
	switch {
	case it.kind == reasoningOutput:
		prefix = "rs_"
	case it.input != nil:
		prefix = "ctc_"
	case it.kind == callOutput:
		prefix = "fc_"
	}
	return jsonscan.AppendQuote(dst, prefix+w.a.ID+"_"+strconv.Itoa(place))
}

// item appends an item as it stands. One that is in progress has its frame only.
func (w *outputWriter) item(dst []byte, place int, it *outputItem, status string) []byte {
	dst = w.itemID(append(dst, `{"id":`...), place, it)
	begun := status == "in_progress"
	switch {
	case it.kind == reasoningOutput:
		dst = append(dst, `,"type":"reasoning","summary":[],"content":[`...)
		dst = w.parts(dst, it, begun)
		dst = append(dst, `],"encrypted_content":`...)
		if w.r.responses.sealed && !begun {
			p := it.parts[0]
			dst = jsonscan.AppendQuote(dst, Seal(p.text(it.kind, w.s)))
		} else {
			dst = append(dst, "null"...)
		}
	case it.kind == messageOutput:
		dst = append(dst, `,"type":"message","role":"assistant","content":[`...)
		dst = append(w.parts(dst, it, begun), ']')
	case it.input != nil:
		dst = append(dst, `,"type":"custom_tool_call"`...)
		dst = append(w.callHead(dst, it), `,"input":`...)
		if begun {
			dst = append(dst, `""`...)
		} else {
			dst = jsonscan.AppendQuote(dst, it.input.text)
		}
	default:
		dst = append(dst, `,"type":"function_call"`...)
		dst = append(w.callHead(dst, it), `,"arguments":`...)
		if begun {
			dst = append(dst, `""`...)
		} else {
			dst = jsonscan.AppendQuote(dst, w.s.Calls[it.call].Arguments[:it.sent])
		}
	}
	return append(append(append(dst, `,"status":"`...), status...), `"}`...)
}

// callHead appends the members that name a call. One must have an id for its output to refer to; where the engine gave
// none, one is made.
func (w *outputWriter) callHead(dst []byte, it *outputItem) []byte {
	call := &w.s.Calls[it.call]
	id := call.ID
	if id == "" {
		id = "call_" + w.a.ID + "_" + strconv.Itoa(it.call)
	}
	tool := w.r.responses.names.back(call.Name)
	dst = jsonscan.AppendQuote(append(dst, `,"call_id":`...), id)
	dst = jsonscan.AppendQuote(append(dst, `,"name":`...), tool.name)
	if tool.namespace != "" {
		dst = jsonscan.AppendQuote(append(dst, `,"namespace":`...), tool.namespace)
	}
	return dst
}

func (w *outputWriter) parts(dst []byte, it *outputItem, none bool) []byte {
	if none {
		return dst
	}
	for i, p := range it.parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.part(dst, it.kind, p)
	}
	return dst
}

// part appends a content part.
func (w *outputWriter) part(dst []byte, kind outputKind, p stretch) []byte {
	text := p.text(kind, w.s)
	switch {
	case kind == reasoningOutput:
		dst = append(dst, `{"type":"reasoning_text","text":`...)
	case p.refusal:
		dst = append(dst, `{"type":"refusal","refusal":`...)
	default:
		dst = append(dst, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	}
	return append(jsonscan.AppendQuote(dst, text), '}')
}
