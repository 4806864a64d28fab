package dialect

import (
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// AnthropicPing is the dialect's own keepalive. It may stand between any two events.
const AnthropicPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// NewAnthropicStream returns an answer as the events of the Messages API. Content blocks follow each other, one open at a
// time. A call that is not the last one said is held back until the one before it is complete.
func NewAnthropicStream(r *Request, a Answer) Stream {
	return &anthropicStream{r: r, a: a}
}

type anthropicStream struct {
	r       *Request
	a       Answer
	started bool

	open  blockKind // of the block that is open
	index int       // its index, or the next block's

	// How many bytes went out: of the three texts, and of the arguments of the last call that was begun.
	reasoning, text, refusal, arguments int
	calls                               int // calls begun
	thought                             int // offset in the reasoning at which the open thinking block begins

	judged   int  // length of the open call's arguments when they were last judged
	complete bool // what was found: they are a whole object
}

type blockKind int

const (
	noBlock blockKind = iota
	thinkingBlock
	textBlock
	refusalBlock
	callBlock
)

func (w *anthropicStream) Advance(dst []byte, s *Said) []byte {
	return w.advance(dst, s, false)
}

func (w *anthropicStream) End(dst []byte, s *Said) (rest, terminal []byte) {
	dst = w.advance(dst, s, true)
	dst = w.closeBlock(dst, s)
	dst = append(dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	dst = appendStop(dst, s)
	dst = append(dst, `},"usage":`...)
	dst = append(appendAnthropicUsage(dst, s), "}\n\n"...)
	return dst, []byte("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
}

func (w *anthropicStream) Fail(dst []byte, status int, text string) []byte {
	dst = append(dst, "event: error\ndata: "...)
	dst = append(dst, ErrorBody(record.AnthropicMessages, status, "", text)...)
	return append(dst, "\n\n"...)
}

// advance writes what is new; last says that nothing will follow.
func (w *anthropicStream) advance(dst []byte, s *Said, last bool) []byte {
	if !w.started {
		w.started = true
		dst = append(dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
		dst = appendMessageHead(dst, w.r, w.a)
		dst = append(dst, `],"stop_reason":null,"stop_sequence":null,"usage":`...)
		dst = append(appendAnthropicUsage(dst, s), "}}\n\n"...)
	}
	dst = w.delta(dst, s, last)
	for {
		next := w.next(s, last)
		if next == noBlock || !last && w.open == callBlock && !w.callComplete(s) {
			return dst
		}
		dst = w.closeBlock(dst, s)
		dst = w.openBlock(dst, s, next)
		dst = w.delta(dst, s, last)
	}
}

// next is the block that has something to say beside the open one.
func (w *anthropicStream) next(s *Said, last bool) blockKind {
	for _, kind := range [...]blockKind{thinkingBlock, textBlock, refusalBlock} {
		said, sent := w.field(s, kind)
		if kind != w.open && sayable(said, last) > *sent {
			return kind
		}
	}
	if w.calls < len(s.Calls) {
		return callBlock
	}
	return noBlock
}

// field is what a kind of block tells, and how much of it went out.
func (w *anthropicStream) field(s *Said, kind blockKind) (said []byte, sent *int) {
	switch kind {
	case thinkingBlock:
		return s.Reasoning, &w.reasoning
	case textBlock:
		return s.Text, &w.text
	case refusalBlock:
		return s.Refusal, &w.refusal
	}
	return s.Calls[w.calls-1].Arguments, &w.arguments
}

// sayable is how much of a text can go out: no half characters while the rest may come.
func sayable(text []byte, last bool) int {
	if last {
		return len(text)
	}
	return wholeChars(text)
}

// callComplete says whether the open call's arguments are whole: an object behind which nothing but space can come.
func (w *anthropicStream) callComplete(s *Said) bool {
	arguments := s.Calls[w.calls-1].Arguments
	if len(arguments) != w.judged {
		cur := jsonscan.New(arguments)
		w.judged, w.complete = len(arguments), cur.Peek() == '{' && validJSON(arguments)
	}
	return w.complete
}

func (w *anthropicStream) openBlock(dst []byte, s *Said, kind blockKind) []byte {
	w.open = kind
	dst = w.blockEvent(dst, "content_block_start")
	dst = append(dst, `,"content_block":{"type":"`...)
	switch kind {
	case thinkingBlock:
		w.thought = w.reasoning
		dst = append(dst, `thinking","thinking":"","signature":""`...)
	case callBlock:
		w.calls++
		w.arguments, w.judged, w.complete = 0, 0, false
		dst = append(dst, `tool_use",`...)
		dst = append(appendCallHead(dst, w.a, s, w.calls-1), "{}"...)
	default:
		dst = append(dst, `text","text":""`...)
	}
	return append(dst, "}}\n\n"...)
}

func (w *anthropicStream) delta(dst []byte, s *Said, last bool) []byte {
	if w.open == noBlock {
		return dst
	}
	said, sent := w.field(s, w.open)
	end := sayable(said, last)
	if end <= *sent {
		return dst
	}
	kind := `text_delta","text":`
	switch w.open {
	case thinkingBlock:
		kind = `thinking_delta","thinking":`
	case callBlock:
		kind = `input_json_delta","partial_json":`
	}
	dst = w.appendDelta(dst, kind, said[*sent:end])
	*sent = end
	return dst
}

// closeBlock closes the open block, if any. A thinking block's signature carries what the block told.
func (w *anthropicStream) closeBlock(dst []byte, s *Said) []byte {
	if w.open == noBlock {
		return dst
	}
	if w.open == thinkingBlock {
		dst = w.appendDelta(dst, `signature_delta","signature":`, []byte(Seal(s.Reasoning[w.thought:w.reasoning])))
	}
	dst = w.blockEvent(dst, "content_block_stop")
	w.open = noBlock
	w.index++
	return append(dst, "}\n\n"...)
}

func (w *anthropicStream) appendDelta(dst []byte, kind string, text []byte) []byte {
	dst = w.blockEvent(dst, "content_block_delta")
	dst = append(append(dst, `,"delta":{"type":"`...), kind...)
	return append(jsonscan.AppendQuote(dst, text), "}}\n\n"...)
}

// blockEvent writes an event up to what follows the block's index.
func (w *anthropicStream) blockEvent(dst []byte, event string) []byte {
	dst = append(append(dst, "event: "...), event...)
	dst = append(append(dst, "\ndata: {\"type\":\""...), event...)
	dst = append(dst, `","index":`...)
	return strconv.AppendInt(dst, int64(w.index), 10)
}
