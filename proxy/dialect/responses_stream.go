package dialect

import (
	"net/http"
	"strconv"

	"captureproxy/internal/jsonscan"
)

// NewResponsesStream returns an answer as the events of the Responses API. Items follow each other, one open at a time: what
// comes beside a call that is not complete is held back until it is.
func NewResponsesStream(r *Request, a Answer) Stream {
	return &responsesStream{responseWriter: responseWriter{outputWriter{r, a, &Said{}}}}
}

type responsesStream struct {
	responseWriter
	started  bool
	sequence int64

	items []outputItem // the last one is open, if open says so
	open  bool
	sent  [refusalField + 1]int // how many bytes of each text went out
	calls int                   // calls begun

	judged   int // length of the open call's arguments when they were last judged
	complete bool
}

type outputField int

const (
	noField outputField = iota
	reasoningField
	textField
	refusalField
	callField
)

// event is how the events of a text begin.
func (f outputField) event() string {
	switch f {
	case reasoningField:
		return "response.reasoning_text"
	case textField:
		return "response.output_text"
	}
	return "response.refusal"
}

func (w *responsesStream) Advance(dst []byte, s *Said) []byte {
	return w.advance(dst, s, false)
}

func (w *responsesStream) End(dst []byte, s *Said) (rest, terminal []byte) {
	dst = w.advance(dst, s, true)
	o := outcomeOf(s)
	dst = w.closeItem(dst, o.itemStatus(len(w.items)-1, len(w.items)))
	terminal = w.event(nil, "response."+o.status)
	terminal = append(terminal, `,"response":`...)
	terminal = w.response(terminal, o, w.items)
	return dst, append(terminal, "}\n\n"...)
}

func (w *responsesStream) Fail(dst []byte, status int, text string) []byte {
	code := "server_error"
	if status == http.StatusTooManyRequests {
		code = "rate_limit_exceeded"
	} else if status < http.StatusInternalServerError {
		code = "invalid_prompt"
	}
	dst = w.event(dst, "error")
	dst = jsonscan.AppendQuote(append(dst, `,"code":`...), code)
	dst = jsonscan.AppendQuote(append(dst, `,"message":`...), text)
	dst = append(dst, ",\"param\":null}\n\n"...)
	dst = append(w.event(dst, "response.failed"), `,"response":`...)
	dst = w.response(dst, outcome{status: "failed", code: code, text: text}, w.items)
	return append(dst, "}\n\n"...)
}

// event appends an event up to what follows its sequence number.
func (w *responsesStream) event(dst []byte, kind string) []byte {
	dst = append(append(dst, "event: "...), kind...)
	dst = append(append(dst, "\ndata: {\"type\":\""...), kind...)
	dst = strconv.AppendInt(append(dst, `","sequence_number":`...), w.sequence, 10)
	w.sequence++
	return dst
}

// itemEvent is event for one that concerns the open item.
func (w *responsesStream) itemEvent(dst []byte, kind string) []byte {
	place := len(w.items) - 1
	dst = append(w.event(dst, kind), `,"item_id":`...)
	dst = w.itemID(dst, place, &w.items[place])
	return strconv.AppendInt(append(dst, `,"output_index":`...), int64(place), 10)
}

// partEvent is itemEvent for one that concerns the open item's last content part.
func (w *responsesStream) partEvent(dst []byte, kind string) []byte {
	dst = w.itemEvent(dst, kind)
	last := len(w.last().parts) - 1
	return strconv.AppendInt(append(dst, `,"content_index":`...), int64(last), 10)
}

func (w *responsesStream) last() *outputItem { return &w.items[len(w.items)-1] }

// advance writes what is new; final says that nothing will follow.
func (w *responsesStream) advance(dst []byte, s *Said, final bool) []byte {
	w.s = s
	if !w.started {
		w.started = true
		for _, kind := range []string{"response.created", "response.in_progress"} {
			dst = append(w.event(dst, kind), `,"response":`...)
			dst = append(w.response(dst, outcome{status: "in_progress"}, nil), "}\n\n"...)
		}
	}
	for {
		dst = w.delta(dst, final)
		next := w.next(final)
		if next == noField || !final && w.waits() {
			return dst
		}
		dst = w.begin(dst, next)
	}
}

// waits says whether the open item is a call whose arguments are not complete.
func (w *responsesStream) waits() bool {
	if !w.open || w.last().kind != callOutput {
		return false
	}
	arguments := w.s.Calls[w.last().call].Arguments
	if len(arguments) != w.judged {
		cur := jsonscan.New(arguments)
		w.judged, w.complete = len(arguments), cur.Peek() == '{' && validJSON(arguments)
	}
	return !w.complete
}

// current is the field that the open item, or its open part, tells.
func (w *responsesStream) current() outputField {
	if !w.open {
		return noField
	}
	switch it := w.last(); {
	case it.kind == reasoningOutput:
		return reasoningField
	case it.kind == callOutput:
		return callField
	case it.parts[len(it.parts)-1].refusal:
		return refusalField
	}
	return textField
}

func (w *responsesStream) said(f outputField) []byte {
	switch f {
	case reasoningField:
		return w.s.Reasoning
	case textField:
		return w.s.Text
	}
	return w.s.Refusal
}

// next is the field that has something to say beside the current one.
func (w *responsesStream) next(final bool) outputField {
	for _, f := range [...]outputField{reasoningField, textField, refusalField} {
		if f != w.current() && sayable(w.said(f), final) > w.sent[f] {
			return f
		}
	}
	if w.calls < len(w.s.Calls) {
		return callField
	}
	return noField
}

// begin opens the item, or the part of the open message, for a field.
func (w *responsesStream) begin(dst []byte, f outputField) []byte {
	inMessage := f == textField || f == refusalField
	if !(w.open && inMessage && w.last().kind == messageOutput) {
		dst = w.closeItem(dst, "completed")
		dst = w.openItem(dst, f)
	} else {
		dst = w.closePart(dst)
	}
	if f == callField {
		return dst
	}
	it := w.last()
	it.parts = append(it.parts, stretch{refusal: f == refusalField, from: w.sent[f], to: w.sent[f]})
	dst = append(w.partEvent(dst, "response.content_part.added"), `,"part":`...)
	dst = w.part(dst, it.kind, it.parts[len(it.parts)-1])
	return append(dst, "}\n\n"...)
}

func (w *responsesStream) openItem(dst []byte, f outputField) []byte {
	it := outputItem{kind: messageOutput}
	switch f {
	case reasoningField:
		it.kind = reasoningOutput
	case callField:
		it.kind, it.call = callOutput, w.calls
		if w.r.responses.names.back(w.s.Calls[w.calls].Name).custom {
			it.input = &customInput{}
		}
		w.calls++
		w.judged, w.complete = 0, false
	}
	w.items, w.open = append(w.items, it), true
	return w.wholeItem(dst, "response.output_item.added", "in_progress")
}

func (w *responsesStream) wholeItem(dst []byte, kind, status string) []byte {
	place := len(w.items) - 1
	dst = strconv.AppendInt(append(w.event(dst, kind), `,"output_index":`...), int64(place), 10)
	dst = w.item(append(dst, `,"item":`...), place, &w.items[place], status)
	return append(dst, "}\n\n"...)
}

// delta writes what is new in the open item.
func (w *responsesStream) delta(dst []byte, final bool) []byte {
	switch f := w.current(); f {
	case noField:
		return dst
	case callField:
		return w.callDelta(dst, final)
	default:
		said := w.said(f)
		end := sayable(said, final)
		if end <= w.sent[f] {
			return dst
		}
		dst = append(w.partEvent(dst, f.event()+".delta"), `,"delta":`...)
		dst = jsonscan.AppendQuote(dst, said[w.sent[f]:end])
		if f == textField {
			dst = append(dst, `,"logprobs":[]`...)
		}
		w.sent[f] = end
		it := w.last()
		it.parts[len(it.parts)-1].to = end
		return append(dst, "}\n\n"...)
	}
}

// callDelta writes what is new in the open call. Of a custom tool's call that is what is new in its input.
func (w *responsesStream) callDelta(dst []byte, final bool) []byte {
	it := w.last()
	text := w.s.Calls[it.call].Arguments
	if it.input != nil {
		if final {
			it.input.end(text)
		} else {
			it.input.grow(text)
		}
		text = it.input.text
	}
	end := sayable(text, final)
	if end <= it.sent {
		return dst
	}
	dst = append(w.itemEvent(dst, it.event()+".delta"), `,"delta":`...)
	dst = jsonscan.AppendQuote(dst, text[it.sent:end])
	it.sent = end
	return append(dst, "}\n\n"...)
}

// event is how the events of a call begin.
func (it *outputItem) event() string {
	if it.input != nil {
		return "response.custom_tool_call_input"
	}
	return "response.function_call_arguments"
}

// closeItem closes the open item, if any.
func (w *responsesStream) closeItem(dst []byte, status string) []byte {
	if !w.open {
		return dst
	}
	it := w.last()
	switch {
	case it.kind != callOutput:
		dst = w.closePart(dst)
	case it.input != nil:
		dst = w.callDelta(dst, true)
		dst = append(w.itemEvent(dst, it.event()+".done"), `,"input":`...)
		dst = append(jsonscan.AppendQuote(dst, it.input.text), "}\n\n"...)
	default:
		dst = w.callDelta(dst, true)
		call := &w.s.Calls[it.call]
		dst = append(w.itemEvent(dst, it.event()+".done"), `,"name":`...)
		dst = jsonscan.AppendQuote(dst, w.r.responses.names.back(call.Name).name)
		dst = jsonscan.AppendQuote(append(dst, `,"arguments":`...), call.Arguments[:it.sent])
		dst = append(dst, "}\n\n"...)
	}
	dst = w.wholeItem(dst, "response.output_item.done", status)
	w.open = false
	return dst
}

// closePart closes the open item's last content part.
func (w *responsesStream) closePart(dst []byte) []byte {
	it := w.last()
	p := it.parts[len(it.parts)-1]
	f := w.current()
	dst = w.partEvent(dst, f.event()+".done")
	switch f {
	case refusalField:
		dst = append(dst, `,"refusal":`...)
	case textField:
		dst = append(dst, `,"logprobs":[],"text":`...)
	default:
		dst = append(dst, `,"text":`...)
	}
	dst = append(jsonscan.AppendQuote(dst, p.text(it.kind, w.s)), "}\n\n"...)
	dst = append(w.partEvent(dst, "response.content_part.done"), `,"part":`...)
	return append(w.part(dst, it.kind, p), "}\n\n"...)
}
