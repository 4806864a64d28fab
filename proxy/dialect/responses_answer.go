package dialect

import (
	"strconv"

	"captureproxy/internal/jsonscan"
)

// ResponsesWhole writes a whole answer.
func ResponsesWhole(r *Request, a Answer, s *Said) []byte {
	w := responseWriter{outputWriter{r, a, s}}
	return w.response(nil, outcomeOf(s), wholeOutput(r, s))
}

// ResponsesCount answers POST /v1/responses/input_tokens.
func ResponsesCount(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), tokens, 10), '}')
}

// outcome is how a response stands or ended.
type outcome struct {
	status string // in_progress, completed, incomplete, failed
	reason string // why it is incomplete
	code   string // of an error
	text   string
}

// outcomeOf translates a finish reason. An engine that gave up in mid-answer says so in its own word.
func outcomeOf(s *Said) outcome {
	switch s.Finish {
	case "length":
		return outcome{status: "incomplete", reason: "max_output_tokens"}
	case "content_filter", "abort", "repetition":
		return outcome{status: "incomplete", reason: s.Finish}
	}
	return outcome{status: "completed"}
}

// itemStatus is the status of the item at a place: the one that was cut is the last.
func (o outcome) itemStatus(place, items int) string {
	if o.status == "completed" || place < items-1 {
		return "completed"
	}
	return "incomplete"
}

// responseWriter writes response objects.
type responseWriter struct{ outputWriter }

// responseSettings are the members of a response that repeat the request, and what stands there when it has none.
var responseSettings = [...]struct{ key, absent string }{
	{"instructions", "null"}, {"max_output_tokens", "null"}, {"max_tool_calls", "null"}, {"metadata", "{}"}, {"parallel_tool_calls", "true"},
	{"previous_response_id", "null"}, {"prompt_cache_key", "null"}, {"reasoning", `{"effort":null,"summary":null}`}, {"safety_identifier", "null"},
	{"store", "true"}, {"temperature", "1.0"}, {"text", `{"format":{"type":"text"}}`}, {"tool_choice", `"auto"`}, {"tools", "[]"},
	{"top_logprobs", "0"}, {"top_p", "1.0"}, {"truncation", `"disabled"`}, {"user", "null"},
}

// response appends a response object.
func (w *responseWriter) response(dst []byte, o outcome, items []outputItem) []byte {
	dst = jsonscan.AppendQuote(append(dst, `{"id":`...), responsePrefix+w.a.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"response","created_at":`...), w.a.Created, 10)
	dst = append(append(append(dst, `,"status":"`...), o.status...), `","background":false,"access_programs":null,"error":`...)
	if o.status == "failed" {
		dst = jsonscan.AppendQuote(append(dst, `{"code":`...), o.code)
		dst = append(jsonscan.AppendQuote(append(dst, `,"message":`...), o.text), '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"incomplete_details":`...)
	if o.reason != "" {
		dst = append(jsonscan.AppendQuote(append(dst, `{"reason":`...), o.reason), '}')
	} else {
		dst = append(dst, "null"...)
	}
	dst = jsonscan.AppendQuote(append(dst, `,"model":`...), w.r.Model)
	dst = append(dst, `,"output":[`...)
	for i := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.item(dst, i, &items[i], o.itemStatus(i, len(items)))
	}
	dst = append(dst, `],"service_tier":"default"`...)
	for _, setting := range responseSettings {
		dst = append(append(append(dst, `,"`...), setting.key...), `":`...)
		if raw := w.r.responses.body.Get(setting.key); !isNull(raw) {
			dst = appendLine(dst, raw)
		} else {
			dst = append(dst, setting.absent...)
		}
	}
	dst = append(dst, `,"usage":`...)
	if o.status == "in_progress" {
		return append(dst, "null}"...)
	}
	return append(appendResponsesUsage(dst, w.s.Usage), '}')
}

// appendResponsesUsage writes the counts with the objects of details, without which some harnesses crash.
func appendResponsesUsage(dst []byte, u SaidUsage) []byte {
	for _, f := range []struct {
		key string
		n   int64
	}{
		{`{"input_tokens":`, u.Prompt},
		{`,"input_tokens_details":{"cached_tokens":`, u.Cached},
		{`,"cache_write_tokens":`, 0},
		{`},"output_tokens":`, u.Completion},
		{`,"output_tokens_details":{"reasoning_tokens":`, u.Thinking},
		{`},"total_tokens":`, u.Prompt + u.Completion},
	} {
		dst = strconv.AppendInt(append(dst, f.key...), f.n, 10)
	}
	return append(dst, '}')
}

// appendLine appends JSON that somebody else spelled so that it can stand in the line of an event: line breaks, which are
// white space there, become blanks.
func appendLine(dst, raw []byte) []byte {
	start := len(dst)
	dst = append(dst, raw...)
	for i := start; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}
