package fakeengine

import (
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"
)

// responses answers POST /v1/responses.
func (e *Engine) responses(c *call) {
	req, bad := e.parseResponses(c.r, c.body)
	if bad != nil {
		c.fail(bad)
		return
	}
	e.answerNative(c, req, nativeCall{
		prefix: "resp_",
		room: func(e *Engine, req *Request, prompt int) (int, *apiError) {
			return roomClamped(e, req, prompt, func() *apiError {
				return openaiRefusal("input", "context_length_exceeded", "Your input exceeds the context window of this model. Please adjust your input and try again.")
			})
		},
		whole: func(a *answer) []byte {
			r := newResponseEvents(e, a)
			return r.appendResponse(nil, r.status(), r.output(), true)
		},
		stream: func(a *answer) native { return newResponseEvents(e, a) },
	})
}

// responseEvents writes answers of Responses.
type responseEvents struct {
	*answer
	asked     gjson.Result // the request
	encrypted bool         // reasoning comes with its encrypted content
	summary   bool         // and with a summary
	sequence  int
}

func newResponseEvents(e *Engine, a *answer) *responseEvents {
	asked := gjson.ParseBytes(a.req.Body)
	r := &responseEvents{answer: a, asked: asked, summary: asked.Get("reasoning.summary").String() != ""}
	for _, include := range asked.Get("include").Array() {
		r.encrypted = r.encrypted || include.String() == "reasoning.encrypted_content"
	}
	if r.stored() {
		e.responsesKept.keep(a.id, r.kept())
	}
	return r
}

func (a *responseEvents) stored() bool { return a.asked.Get("store").Type != gjson.False }

// kept is what a later request may refer to.
func (a *responseEvents) kept() keptResponse {
	out := chatMessage{role: "assistant"}
	kept := keptResponse{}
	for _, b := range a.choices[0].blocks() {
		switch b.kind {
		case kindReasoning:
			out.reasoning = string(b.text)
			kept.thoughtID, kept.thought = a.itemID(b), out.reasoning
		case kindContent:
			out.content += string(b.text)
		case kindCall:
			out.calls = append(out.calls, ToolCall{b.name, string(b.text)})
		}
	}
	later := &Request{Messages: append([]Message(nil), a.req.Messages...)}
	later.add(out)
	kept.messages = later.Messages
	return kept
}

// The ids of calls say whether a thought went before them, as OpenAI knows it of its own.
const thoughtCallPrefix = "fc_T"

func (a *responseEvents) itemID(b block) string {
	suffix := a.id[len("resp_"):] + strconv.Itoa(b.index)
	switch {
	case b.kind == kindReasoning:
		return "rs_" + suffix
	case b.kind == kindContent:
		return "msg_" + suffix
	case a.choices[0].reasoning > 0:
		return thoughtCallPrefix + suffix
	}
	return "fc_" + suffix
}

func (a *responseEvents) status() string {
	if a.choices[0].finish == "length" || a.fault.Kind == FaultContentFilter {
		return "incomplete"
	}
	return "completed"
}

// output are the items as they end up.
func (a *responseEvents) output() []byte {
	dst := []byte{'['}
	for i, b := range a.choices[0].blocks() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = a.appendItem(dst, b, true)
	}
	return append(dst, ']')
}

// appendItem appends an item, finished or as it opens.
func (a *responseEvents) appendItem(dst []byte, b block, done bool) []byte {
	status := "in_progress"
	if done {
		status = "completed"
		if !b.whole {
			status = "incomplete"
		}
	} else {
		b.text = nil
	}
	dst = appendString(append(dst, `{"id":`...), a.itemID(b))
	switch b.kind {
	case kindReasoning:
		dst = append(dst, `,"type":"reasoning"`...)
		if a.encrypted {
			dst = append(dst, `,"encrypted_content":`...)
			if done {
				dst = appendString(dst, seal(responsesPurpose, string(b.text)))
			} else {
				dst = append(dst, `""`...)
			}
		}
		if !a.summary || !done {
			return append(dst, `,"summary":[]}`...)
		}
		return append(a.appendSummary(append(dst, `,"summary":[`...), b.text), "]}"...)
	case kindContent:
		dst = append(dst, `,"type":"message","status":"`+status+`","content":[`...)
		if done {
			dst = a.appendTextPart(dst, b.text)
		}
		return append(dst, `],"role":"assistant"}`...)
	}
	dst = append(dst, `,"type":"function_call","status":"`+status+`","arguments":`...)
	dst = appendString(dst, b.text)
	dst = appendString(append(dst, `,"call_id":`...), "call_"+b.id)
	return append(appendString(append(dst, `,"name":`...), b.name), '}')
}

func (a *responseEvents) appendSummary(dst, text []byte) []byte {
	return append(appendString(append(dst, `{"type":"summary_text","text":`...), text), '}')
}

func (a *responseEvents) appendTextPart(dst, text []byte) []byte {
	return append(appendString(append(dst, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...), text), '}')
}

// appendResponse appends the response itself.
func (a *responseEvents) appendResponse(dst []byte, status string, output []byte, usage bool) []byte {
	dst = appendString(append(dst, `{"id":`...), a.id)
	dst = append(dst, `,"object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"status":"`+status+`","background":false,"error":null,"incomplete_details":`...)
	switch {
	case status != "incomplete":
		dst = append(dst, "null"...)
	case a.fault.Kind == FaultContentFilter:
		dst = append(dst, `{"reason":"content_filter"}`...)
	default:
		dst = append(dst, `{"reason":"max_output_tokens"}`...)
	}
	echo := func(name, otherwise string) {
		dst = append(dst, `,"`+name+`":`...)
		if v := a.asked.Get(name); v.Exists() {
			dst = append(dst, v.Raw...)
		} else {
			dst = append(dst, otherwise...)
		}
	}
	echo("instructions", "null")
	echo("max_output_tokens", "null")
	dst = append(dst, `,"max_tool_calls":null,"model":`...)
	dst = append(append(append(appendString(dst, a.model), `,"output":`...), output...), `,"parallel_tool_calls":true`...)
	echo("previous_response_id", "null")
	echo("prompt_cache_key", "null")
	echo("reasoning", `{"effort":null,"summary":null}`)
	dst = append(dst, `,"service_tier":"default"`...)
	echo("store", "true")
	dst = append(dst, `,"temperature":1.0,"text":{"format":{"type":"text"},"verbosity":"medium"}`...)
	echo("tool_choice", `"auto"`)
	echo("tools", "[]")
	dst = append(dst, `,"top_logprobs":0,"top_p":1.0,"truncation":"disabled","usage":`...)
	if !usage || a.fault.Kind == FaultNoUsage {
		dst = append(dst, "null"...)
	} else {
		completion, reasoning := a.totals()
		if a.fault.Kind == FaultWrongUsage {
			completion++
		}
		dst = appendInt(dst, `{"input_tokens":`, len(a.prompt))
		dst = appendInt(dst, `,"input_tokens_details":{"cached_tokens":0},"output_tokens":`, completion)
		dst = appendInt(dst, `,"output_tokens_details":{"reasoning_tokens":`, reasoning)
		dst = append(appendInt(dst, `},"total_tokens":`, len(a.prompt)+completion), '}')
	}
	echo("user", "null")
	echo("metadata", "{}")
	return append(dst, '}')
}

// event appends an event; body is what follows its type and number.
func (a *responseEvents) event(dst []byte, name string, body []byte) []byte {
	data := appendInt([]byte(`{"type":"`+name+`"`), `,"sequence_number":`, a.sequence)
	a.sequence++
	return frame(dst, name, append(append(data, body...), '}'))
}

// about begins the body of an event about an item.
func (a *responseEvents) about(b block, more string) []byte {
	body := appendString([]byte(`,"item_id":`), a.itemID(b))
	return append(appendInt(body, `,"output_index":`, b.index), more...)
}

func (a *responseEvents) open(dst []byte) []byte {
	for _, name := range []string{"response.created", "response.in_progress"} {
		dst = a.event(dst, name, a.appendResponse([]byte(`,"response":`), "in_progress", []byte("[]"), false))
	}
	return dst
}

func (a *responseEvents) begin(dst []byte, b block) []byte {
	body := append(appendInt(nil, `,"output_index":`, b.index), `,"item":`...)
	dst = a.event(dst, "response.output_item.added", a.appendItem(body, b, false))
	switch {
	case b.kind == kindContent:
		body := append(a.about(b, `,"content_index":0`), `,"part":`...)
		dst = a.event(dst, "response.content_part.added", a.appendTextPart(body, nil))
	case b.kind == kindReasoning && a.summary:
		body := append(a.about(b, `,"summary_index":0`), `,"part":`...)
		dst = a.event(dst, "response.reasoning_summary_part.added", a.appendSummary(body, nil))
	}
	return dst
}

func (a *responseEvents) delta(dst []byte, b block, text []byte) []byte {
	switch {
	case b.kind == kindContent:
		body := append(a.about(b, `,"content_index":0`), `,"logprobs":[],"delta":`...)
		return a.event(dst, "response.output_text.delta", appendString(body, text))
	case b.kind == kindCall:
		return a.event(dst, "response.function_call_arguments.delta", appendString(a.about(b, `,"delta":`), text))
	case a.summary:
		body := append(a.about(b, `,"summary_index":0`), `,"delta":`...)
		return a.event(dst, "response.reasoning_summary_text.delta", appendString(body, text))
	}
	return dst
}

func (a *responseEvents) end(dst []byte, b block) []byte {
	switch {
	case b.kind == kindContent:
		dst = a.event(dst, "response.output_text.done", appendString(append(a.about(b, `,"content_index":0`), `,"logprobs":[],"text":`...), b.text))
		dst = a.event(dst, "response.content_part.done", a.appendTextPart(append(a.about(b, `,"content_index":0`), `,"part":`...), b.text))
	case b.kind == kindCall:
		dst = a.event(dst, "response.function_call_arguments.done", appendString(append(appendString(a.about(b, `,"name":`), b.name), `,"arguments":`...), b.text))
	case a.summary:
		dst = a.event(dst, "response.reasoning_summary_text.done", appendString(append(a.about(b, `,"summary_index":0`), `,"text":`...), b.text))
		dst = a.event(dst, "response.reasoning_summary_part.done", a.appendSummary(append(a.about(b, `,"summary_index":0`), `,"part":`...), b.text))
	}
	body := append(appendInt(nil, `,"output_index":`, b.index), `,"item":`...)
	return a.event(dst, "response.output_item.done", a.appendItem(body, b, true))
}

func (a *responseEvents) close(dst []byte) []byte {
	status := a.status()
	return a.event(dst, "response."+status, a.appendResponse([]byte(`,"response":`), status, a.output(), true))
}

// fail is OpenAI's event for an error of its own.
func (a *responseEvents) fail(dst []byte, bad *apiError) []byte {
	body := appendString([]byte(`,"code":"server_error","message":`), bad.Message)
	return a.event(dst, "error", append(body, `,"param":null`...))
}

// retrieve and the like are not played: what a later call needs of an earlier response is its previous_response_id.
func responsesRoute(path string) (route, bool) {
	if path != "/v1/responses" {
		return route{}, false
	}
	return route{http.MethodPost, (*Engine).responses}, true
}
