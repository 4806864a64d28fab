package dialect

import (
	"bytes"
	"strconv"

	"captureproxy/internal/jsonscan"
)

// AnthropicWhole writes a whole answer: what was thought, signed; what was said; the calls.
func AnthropicWhole(r *Request, a Answer, s *Said) []byte {
	b := appendMessageHead(nil, r, a)
	first := len(b)
	block := func(kind string) {
		if len(b) > first {
			b = append(b, ',')
		}
		b = append(append(b, `{"type":"`...), kind...)
	}
	if len(s.Reasoning) > 0 {
		block(`thinking","thinking":`)
		b = jsonscan.AppendQuote(b, s.Reasoning)
		b = append(b, `,"signature":`...)
		b = append(jsonscan.AppendQuote(b, Seal(s.Reasoning)), '}')
	}
	for _, text := range [][]byte{s.Text, s.Refusal} {
		if len(text) > 0 {
			block(`text","text":`)
			b = append(jsonscan.AppendQuote(b, text), '}')
		}
	}
	for i := range s.Calls {
		block(`tool_use",`)
		b = appendCallHead(b, a, s, i)
		b = append(appendInput(b, s.Calls[i].Arguments), '}')
	}
	b = append(b, `],`...)
	b = appendStop(b, s)
	b = append(b, `,"usage":`...)
	return append(appendAnthropicUsage(b, s), '}')
}

// AnthropicCount answers POST /v1/messages/count_tokens.
func AnthropicCount(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}

// appendMessageHead writes a message up to its content.
func appendMessageHead(b []byte, r *Request, a Answer) []byte {
	b = append(b, `{"id":`...)
	b = jsonscan.AppendQuote(b, "msg_"+a.ID)
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = jsonscan.AppendQuote(b, r.Model)
	return append(b, `,"content":[`...)
}

// appendCallHead writes a call up to the value of its input. A call must have an id for its result to refer to; where the
// engine gave none, one is made.
func appendCallHead(b []byte, a Answer, s *Said, i int) []byte {
	id := s.Calls[i].ID
	if id == "" {
		id = "toolu_" + a.ID + "_" + strconv.Itoa(i)
	}
	b = append(b, `"id":`...)
	b = jsonscan.AppendQuote(b, id)
	b = append(b, `,"name":`...)
	b = jsonscan.AppendQuote(b, s.Calls[i].Name)
	return append(b, `,"input":`...)
}

// appendInput writes arguments as a value, their bytes as they are; no arguments are an empty object, which is what an
// Anthropic stream makes of them too.
func appendInput(b, arguments []byte) []byte {
	switch {
	case len(bytes.TrimSpace(arguments)) == 0:
		return append(b, "{}"...)
	case validJSON(arguments):
		return append(b, bytes.ToValidUTF8(arguments, []byte("\ufffd"))...)
	}
	b = append(b, `{"`+unparsedArguments+`":`...)
	return append(jsonscan.AppendQuote(b, arguments), '}')
}

// appendStop writes why the answer ended.
func appendStop(b []byte, s *Said) []byte {
	reason := stopReason(s)
	b = append(append(append(b, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if reason != "stop_sequence" {
		return append(b, "null"...)
	}
	return jsonscan.AppendQuote(b, s.Stop)
}

// stopReason translates a finish reason. Engines end a forced call with "stop": a message that holds calls asks for them
// to be run all the same. An engine that gave up in mid-answer has cut it, as the output cap does.
func stopReason(s *Said) string {
	switch s.Finish {
	case "length", "abort", "repetition":
		return "max_tokens"
	case "content_filter":
		return "refusal"
	case "tool_calls", "function_call":
		return "tool_use"
	}
	switch {
	case len(s.Refusal) > 0:
		return "refusal"
	case s.Stop != "":
		return "stop_sequence"
	case len(s.Calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

// appendAnthropicUsage writes the counts, and the objects with details, without which some harnesses crash. Cached tokens
// are not among the input tokens here. Before an engine has counted, as at the start of a stream, they are 0.
func appendAnthropicUsage(b []byte, s *Said) []byte {
	u := s.Usage
	for _, f := range []struct {
		key string
		n   int64
	}{
		{`{"input_tokens":`, max(u.Prompt-u.Cached, 0)},
		{`,"cache_creation_input_tokens":`, 0},
		{`,"cache_read_input_tokens":`, u.Cached},
		{`,"output_tokens":`, u.Completion},
		{`,"output_tokens_details":{"thinking_tokens":`, u.Thinking},
	} {
		b = strconv.AppendInt(append(b, f.key...), f.n, 10)
	}
	return append(b, `},"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}}`...)
}
