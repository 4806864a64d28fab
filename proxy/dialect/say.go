package dialect

import (
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Say writes a whole answer of the proxy's own: one short assistant message that ends with a stop reason. created is in
// Unix seconds.
func Say(r *Request, id, text string, created int64) []byte {
	b := sayHead(r, id, created, false)
	if r.Dialect == record.OpenAICompletions {
		b = append(b, `{"index":0,"text":`...)
		b = jsonscan.AppendQuote(b, text)
	} else {
		b = append(b, `{"index":0,"message":{"role":"assistant","content":`...)
		b = jsonscan.AppendQuote(b, text)
		b = append(b, `,"refusal":null}`...)
	}
	b = append(b, `,"logprobs":null,"finish_reason":"stop"}],"usage":`...)
	b = append(b, noUsage...)
	return append(b, '}')
}

// noUsage has the detail objects because some harnesses crash without them.
const noUsage = `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`

// SayStream is Say as the dialect's event stream.
func SayStream(r *Request, id, text string, created int64) []byte {
	var b []byte
	event := func(choice string) {
		b = append(b, "data: "...)
		b = append(b, sayHead(r, id, created, true)...)
		b = append(b, choice...)
		b = append(b, ']')
		if r.Asks.Usage {
			b = append(b, `,"usage":null`...)
		}
		b = append(b, "}\n\n"...)
	}
	quoted := string(jsonscan.AppendQuote(nil, text))
	if r.Dialect == record.OpenAICompletions {
		event(`{"index":0,"text":` + quoted + `,"logprobs":null,"finish_reason":null}`)
		event(`{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}`)
	} else {
		event(`{"index":0,"delta":{"role":"assistant","content":` + quoted + `},"logprobs":null,"finish_reason":null}`)
		event(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`)
	}
	if r.Asks.Usage {
		b = append(b, "data: "...)
		b = append(b, sayHead(r, id, created, true)...)
		b = append(b, `],"usage":`...)
		b = append(b, noUsage...)
		b = append(b, "}\n\n"...)
	}
	return append(b, "data: [DONE]\n\n"...)
}

// sayHead writes an answer up to its first choice.
func sayHead(r *Request, id string, created int64, stream bool) []byte {
	object := "chat.completion"
	if stream {
		object = "chat.completion.chunk"
	}
	prefix := "chatcmpl-"
	if r.Dialect == record.OpenAICompletions {
		object, prefix = "text_completion", "cmpl-"
	}
	b := append([]byte(`{"id":"`), prefix...)
	b = append(b, id...)
	b = append(b, `","object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, created, 10)
	b = append(b, `,"model":`...)
	b = jsonscan.AppendQuote(b, r.Model)
	return append(b, `,"choices":[`...)
}
