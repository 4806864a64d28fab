package dialect

import "captureproxy/internal/record"

// NewGoogleStream returns an answer as :streamGenerateContent sends it: with sse as events (alt=sse), else as one JSON
// array, element by element. Each is a response of its own with what is new. A call goes out whole, once the next one or the end
// shows that nothing is added to it: a model may write on behind what looks like the end of its arguments.
//
// Reasoning goes out as thought parts. Its signature, which holds it all, ends the thoughts and stands on the next other
// part as well, because some harnesses keep that one only.
func NewGoogleStream(r *Request, a Answer, sse bool) Stream {
	return &googleStream{googleWriter: googleWriter{r, a}, sse: sse}
}

type googleStream struct {
	googleWriter
	sse   bool
	begun bool // of an array

	reasoning, text, refusal int // how many bytes went out
	calls                    int
	signed                   int // how much of the reasoning the last signature holds
}

func (w *googleStream) Advance(dst []byte, s *Said) []byte {
	return w.advance(dst, s, false)
}

func (w *googleStream) End(dst []byte, s *Said) (rest, terminal []byte) {
	dst = w.advance(dst, s, true)
	var signature []byte
	if w.signed < len(s.Reasoning) { // nothing else followed
		signature = w.sign(s)
	}
	terminal = w.open(nil)
	terminal = append(terminal, `{"candidates":[{"content":{"role":"model","parts":[`...)
	if signature != nil && !w.r.google.hideThoughts {
		terminal = appendThought(terminal, nil, signature)
	} else {
		terminal = appendTextPart(terminal, nil, signature)
	}
	terminal = append(terminal, `]},"finishReason":"`...)
	terminal = append(append(terminal, finishReason(s)...), `","index":0}]`...)
	terminal = w.tail(terminal, &s.Usage)
	return dst, w.last(terminal)
}

func (w *googleStream) Fail(dst []byte, status int, text string) []byte {
	return w.last(append(w.open(dst), ErrorBody(record.Google, status, "", text)...))
}

// open begins an element, close ends it.
func (w *googleStream) open(dst []byte) []byte {
	switch {
	case w.sse:
		return append(dst, "data: "...)
	case w.begun:
		return append(dst, ",\n"...)
	}
	w.begun = true
	return append(dst, '[')
}

func (w *googleStream) close(dst []byte) []byte {
	if w.sse {
		return append(dst, "\n\n"...)
	}
	return dst
}

// last ends the last element, and with it the array.
func (w *googleStream) last(dst []byte) []byte {
	if w.sse {
		return append(dst, "\n\n"...)
	}
	return append(dst, "]\n"...)
}

// advance writes what is new; final says that nothing will follow.
func (w *googleStream) advance(dst []byte, s *Said, final bool) []byte {
	if end := sayable(s.Reasoning, final); end > w.reasoning {
		if !w.r.google.hideThoughts {
			dst = w.chunk(dst, func(dst []byte) []byte { return appendThought(dst, s.Reasoning[w.reasoning:end], nil) })
		}
		w.reasoning = end
	}
	for _, field := range [...]struct {
		said []byte
		sent *int
	}{{s.Text, &w.text}, {s.Refusal, &w.refusal}} {
		if end := sayable(field.said, final); end > *field.sent {
			dst = w.spoken(dst, s, func(dst, signature []byte) []byte {
				return appendTextPart(dst, field.said[*field.sent:end], signature)
			})
			*field.sent = end
		}
	}
	for w.calls < len(s.Calls) && (final || w.calls+1 < len(s.Calls) && isObject(s.Calls[w.calls].Arguments)) {
		dst = w.spoken(dst, s, func(dst, signature []byte) []byte { return w.callPart(dst, s, w.calls, signature) })
		w.calls++
	}
	return dst
}

// spoken writes a part that is no thought. What was thought since the last signature is signed first.
func (w *googleStream) spoken(dst []byte, s *Said, part func(dst, signature []byte) []byte) []byte {
	var signature []byte
	if w.signed < w.reasoning {
		signature = w.sign(s)
		if !w.r.google.hideThoughts {
			dst = w.chunk(dst, func(dst []byte) []byte { return appendThought(dst, nil, signature) })
		}
	}
	return w.chunk(dst, func(dst []byte) []byte { return part(dst, signature) })
}

// sign returns the signature of the reasoning that went out.
func (w *googleStream) sign(s *Said) []byte {
	w.signed = w.reasoning
	return googleSignature(s.Reasoning[:w.reasoning])
}

// chunk writes an element with one part.
func (w *googleStream) chunk(dst []byte, part func([]byte) []byte) []byte {
	dst = append(w.open(dst), `{"candidates":[{"content":{"role":"model","parts":[`...)
	dst = append(part(dst), `]},"index":0}]`...)
	return w.close(w.tail(dst, nil))
}
