package dialect

import (
	"bytes"
	"encoding/base64"
	"strconv"

	"captureproxy/internal/jsonscan"
)

// GoogleWhole writes a whole answer with one candidate for each of what was said.
func GoogleWhole(r *Request, a Answer, s *Said, more ...*Said) []byte {
	w := &googleWriter{r: r, a: a}
	b := []byte(`{"candidates":[`)
	usage := s.Usage
	b = w.whole(b, 0, s)
	for i, other := range more {
		b = w.whole(append(b, ','), i+1, other)
		if other.Usage.Known {
			usage = other.Usage
		}
	}
	return w.tail(append(b, ']'), &usage)
}

// GoogleCount answers :countTokens.
func GoogleCount(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"totalTokens":`), tokens, 10), '}')
}

// googleWriter writes candidates.
type googleWriter struct {
	r *Request
	a Answer
}

// whole appends a finished candidate.
func (w *googleWriter) whole(dst []byte, index int, s *Said) []byte {
	dst = append(dst, `{"content":{"role":"model","parts":[`...)
	first := len(dst)
	comma := func() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
	}
	var signature []byte
	if len(s.Reasoning) > 0 {
		signature = googleSignature(s.Reasoning)
		if !w.r.google.hideThoughts {
			dst = appendThought(dst, s.Reasoning, signature)
		}
	}
	for _, text := range [][]byte{s.Text, s.Refusal} {
		if len(text) > 0 {
			comma()
			dst = appendTextPart(dst, text, signature)
			signature = nil
		}
	}
	for i := range s.Calls {
		comma()
		dst = w.callPart(dst, s, i, signature)
		signature = nil
	}
	if len(dst) == first {
		dst = appendTextPart(dst, nil, signature)
	}
	dst = append(dst, `]},"finishReason":`...)
	dst = jsonscan.AppendQuote(dst, finishReason(s))
	return append(strconv.AppendInt(append(dst, `,"index":`...), int64(index), 10), '}')
}

// tail appends what follows the candidates; usage is nil in the middle of a stream.
func (w *googleWriter) tail(dst []byte, usage *SaidUsage) []byte {
	if usage != nil {
		dst = appendGoogleUsage(append(dst, `,"usageMetadata":`...), *usage)
	}
	dst = jsonscan.AppendQuote(append(dst, `,"modelVersion":`...), w.r.Model)
	dst = jsonscan.AppendQuote(append(dst, `,"responseId":`...), w.a.ID)
	return append(dst, '}')
}

// googleSignature is the signature for a reasoning. The dialect's signatures are bytes, so they travel in base64.
func googleSignature(reasoning []byte) []byte {
	return base64.StdEncoding.AppendEncode(nil, []byte(Seal(reasoning)))
}

func appendThought(dst, text, signature []byte) []byte {
	dst = jsonscan.AppendQuote(append(dst, `{"text":`...), text)
	dst = append(dst, `,"thought":true`...)
	return append(appendSignature(dst, signature), '}')
}

func appendTextPart(dst, text, signature []byte) []byte {
	dst = jsonscan.AppendQuote(append(dst, `{"text":`...), text)
	return append(appendSignature(dst, signature), '}')
}

func appendSignature(dst, signature []byte) []byte {
	if signature == nil {
		return dst
	}
	dst = append(append(dst, `,"thoughtSignature":"`...), signature...)
	return append(dst, '"')
}

// callPart appends a whole call. One must have an id for its response to refer to; where the engine gave none, one is made.
func (w *googleWriter) callPart(dst []byte, s *Said, i int, signature []byte) []byte {
	call := &s.Calls[i]
	id := call.ID
	if id == "" {
		id = "call_" + w.a.ID + "_" + strconv.Itoa(i)
	}
	dst = jsonscan.AppendQuote(append(dst, `{"functionCall":{"id":`...), id)
	dst = jsonscan.AppendQuote(append(dst, `,"name":`...), call.Name)
	dst = appendArgs(append(dst, `,"args":`...), call.Arguments)
	return append(appendSignature(append(dst, '}'), signature), '}')
}

// appendArgs writes arguments as an object, their bytes as they are but for line breaks between tokens, which an event's
// line cannot hold. What is no object is wrapped in one (see unparsedArguments); nothing at all is an empty object.
func appendArgs(dst, arguments []byte) []byte {
	switch {
	case len(bytes.TrimSpace(arguments)) == 0:
		return append(dst, "{}"...)
	case isObject(arguments):
		return appendLine(dst, bytes.ToValidUTF8(arguments, []byte("\ufffd")))
	}
	dst = append(dst, `{"`+unparsedArguments+`":`...)
	return append(jsonscan.AppendQuote(dst, arguments), '}')
}

// isObject says whether a text is one whole JSON object.
func isObject(text []byte) bool {
	cur := jsonscan.New(text)
	return cur.Peek() == '{' && validJSON(text)
}

// googleArguments is the argument text that args stand for: their bytes as they came, or what appendArgs wrapped.
func googleArguments(args []byte) []byte {
	if isNull(args) {
		return []byte("{}")
	}
	doc, err := jsonscan.ParseDoc(args)
	if err != nil || len(doc.Members) != 1 || doc.Members[0].Key != unparsedArguments {
		return args
	}
	cur := jsonscan.New(doc.Members[0].Raw(args))
	if text, ok := cur.AppendString(nil); ok && !isObject(text) {
		return text
	}
	return args
}

// finishReason translates a finish reason.
func finishReason(s *Said) string {
	switch s.Finish {
	case "length":
		return "MAX_TOKENS"
	case "content_filter":
		return "SAFETY"
	case "abort", "error", "repetition":
		return "OTHER"
	}
	return "STOP"
}

// appendGoogleUsage writes the counts. Candidates are counted without thoughts here.
func appendGoogleUsage(dst []byte, u SaidUsage) []byte {
	for _, f := range []struct {
		key string
		n   int64
	}{
		{`{"promptTokenCount":`, u.Prompt},
		{`,"candidatesTokenCount":`, max(u.Completion-u.Thinking, 0)},
		{`,"thoughtsTokenCount":`, u.Thinking},
		{`,"cachedContentTokenCount":`, u.Cached},
		{`,"totalTokenCount":`, u.Prompt + u.Completion},
		{`,"promptTokensDetails":[{"modality":"TEXT","tokenCount":`, u.Prompt},
	} {
		dst = strconv.AppendInt(append(dst, f.key...), f.n, 10)
	}
	return append(dst, "}]}"...)
}
