package fakeengine

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
)

// anthropicWire is Anthropic's API: Messages, with thoughts that must come back as they were, and a chat endpoint that
// ignores what it does not know.
func anthropicWire() *wire {
	return &wire{
		owner:  "anthropic",
		mode:   Raw,
		routes: anthropicRoutes,
		auth:   anthropicAuth,
		missing: func(*http.Request, int) *apiError {
			return &apiError{Status: http.StatusNotFound, Message: "Not Found"}
		},
		spell:       spellAnthropic,
		compat:      func(path string) bool { return path == "/v1/chat/completions" },
		chunkTokens: 2,
		chat:        hostedForm(hostedStyle{callID: toolUsePrefix}),
	}
}

func anthropicRoutes(path string) (route, bool) {
	switch path {
	case "/v1/messages":
		return route{http.MethodPost, (*Engine).messages}, true
	case "/v1/messages/count_tokens":
		return route{http.MethodPost, (*Engine).countMessages}, true
	case "/v1/chat/completions":
		return route{http.MethodPost, (*Engine).chat}, true
	case "/v1/models":
		return route{http.MethodGet, (*Engine).anthropicModels}, true
	}
	if strings.HasPrefix(path, "/v1/models/") {
		return route{http.MethodGet, (*Engine).anthropicModel}, true
	}
	return route{}, false
}

// anthropicAuth wants its own two headers; only the chat endpoint takes a bearer.
func anthropicAuth(e *Engine, r *http.Request) *apiError {
	refused := func(text string) *apiError { return &apiError{Status: http.StatusUnauthorized, Message: text} }
	if r.URL.Path == "/v1/chat/completions" {
		if got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); e.opts.Key != "" && (!ok || got != e.opts.Key) {
			return refused("Invalid bearer token")
		}
		return nil
	}
	switch key := r.Header.Get("X-Api-Key"); {
	case key == "":
		return refused("x-api-key header is required")
	case e.opts.Key != "" && key != e.opts.Key:
		return refused("invalid x-api-key")
	case r.Header.Get("Anthropic-Version") == "":
		return anthropicRefusal("anthropic-version: header is required")
	}
	return nil
}

func anthropicRefusal(format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// spellAnthropic names errors by their status.
func spellAnthropic(dst []byte, bad *apiError, _ bool) []byte {
	kind, message := "api_error", bad.Message
	switch bad.Status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
	case http.StatusForbidden:
		kind = "permission_error"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		kind = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case 529:
		kind, message = "overloaded_error", "Overloaded"
	}
	dst = append(dst, `{"type":"error","error":{"type":"`+kind+`","message":`...)
	dst = append(appendString(dst, message), `},"request_id":"req_`...)
	return append(appendHex(dst, rand.Uint64()), `"}`...)
}

func appendAnthropicModel(dst []byte, name string) []byte {
	dst = appendString(append(dst, `{"type":"model","id":`...), name)
	dst = appendString(append(dst, `,"display_name":`...), name)
	return append(dst, `,"created_at":"2026-01-01T00:00:00Z"}`...)
}

func (e *Engine) anthropicModels(c *call) {
	dst := appendAnthropicModel([]byte(`{"data":[`), e.opts.Model)
	dst = appendString(append(dst, `],"has_more":false,"first_id":`...), e.opts.Model)
	c.json(http.StatusOK, append(appendString(append(dst, `,"last_id":`...), e.opts.Model), '}'))
}

func (e *Engine) anthropicModel(c *call) {
	c.json(http.StatusOK, appendAnthropicModel(nil, strings.TrimPrefix(c.r.URL.Path, "/v1/models/")))
}

// messages answers POST /v1/messages.
func (e *Engine) messages(c *call) {
	req, bad := parseMessages(c.r, c.body)
	if bad == nil && !req.Has("max_tokens") {
		bad = anthropicRefusal("max_tokens: Field required")
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	c.setHeader("Request-Id", "req_"+string(appendHex(nil, rand.Uint64())))
	e.answerNative(c, req, nativeCall{
		prefix: "msg_01",
		room: func(e *Engine, req *Request, prompt int) (int, *apiError) {
			return roomClamped(e, req, prompt, func() *apiError {
				return anthropicRefusal("prompt is too long: %d tokens > %d maximum", prompt, e.opts.MaxModelLen)
			})
		},
		whole:  func(a *answer) []byte { return anthropicEvents{a}.appendWhole(nil) },
		stream: func(a *answer) native { return anthropicEvents{a} },
	})
}

func (e *Engine) countMessages(c *call) {
	req, bad := parseMessages(c.r, c.body)
	if bad != nil {
		c.fail(bad)
		return
	}
	c.json(http.StatusOK, append(appendInt(nil, `{"input_tokens":`, len(promptOf(c.vocab, req))), '}'))
}

// The ids of tool uses say whether a thought went before them, so that a dropped one is noticed.
const (
	toolUsePrefix     = "toolu_01"
	thoughtUsePrefix  = "toolu_01T"
	thinkingPurpose   = "thinking"
	redactedPurpose   = "redacted"
	thinkingIsNotText = "Expected `thinking` or `redacted_thinking`, but found `%s`. When `thinking` is enabled, a final `assistant` message must start with a " +
		"thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. " +
		"To avoid this requirement, disable `thinking`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
)

// anthropicEvents writes the answers of Messages.
type anthropicEvents struct{ *answer }

func (a anthropicEvents) useID(b block) string {
	if a.choices[0].reasoning > 0 {
		return thoughtUsePrefix + b.id
	}
	return toolUsePrefix + b.id
}

func (a anthropicEvents) appendWhole(dst []byte) []byte {
	g := a.choices[0]
	dst = append(a.appendMessageHead(dst), `,"content":[`...)
	for i, b := range g.blocks() {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch b.kind {
		case kindReasoning:
			dst = appendString(append(dst, `{"type":"thinking","thinking":`...), b.text)
			dst = appendString(append(dst, `,"signature":`...), seal(thinkingPurpose, string(b.text)))
		case kindContent:
			dst = appendString(append(dst, `{"type":"text","text":`...), b.text)
		case kindCall:
			dst = appendString(append(dst, `{"type":"tool_use","id":`...), a.useID(b))
			dst = appendString(append(dst, `,"name":`...), b.name)
			dst = append(dst, `,"input":`...)
			if b.whole {
				dst = append(dst, b.text...)
			} else {
				dst = append(dst, "{}"...)
			}
		}
		dst = append(dst, '}')
	}
	dst = a.appendStop(append(dst, `],`...))
	return append(a.appendMessageUsage(append(dst, `,"usage":`...), len(g.ids)), '}')
}

func (a anthropicEvents) appendMessageHead(dst []byte) []byte {
	dst = appendString(append(dst, `{"model":`...), a.req.Model)
	dst = appendString(append(dst, `,"id":`...), a.id)
	return append(dst, `,"type":"message","role":"assistant"`...)
}

func (a anthropicEvents) appendStop(dst []byte) []byte {
	g := a.choices[0]
	reason := "end_turn"
	switch {
	case a.fault.Kind == FaultContentFilter:
		reason = "refusal"
	case g.stopReason != "":
		reason = "stop_sequence"
	case g.finish == "length":
		reason = "max_tokens"
	case g.hasCalls:
		reason = "tool_use"
	}
	return appendStringOrNull(append(dst, `"stop_reason":"`+reason+`","stop_sequence":`...), g.stopReason)
}

func (a anthropicEvents) appendMessageUsage(dst []byte, output int) []byte {
	if a.fault.Kind == FaultWrongUsage {
		output++
	}
	dst = appendInt(dst, `{"input_tokens":`, len(a.prompt))
	dst = append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0}`...)
	return append(appendInt(dst, `,"output_tokens":`, output), `,"service_tier":"standard"}`...)
}

func (a anthropicEvents) open(dst []byte) []byte {
	data := append(a.appendMessageHead([]byte(`{"type":"message_start","message":`)), `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	return frame(dst, "message_start", append(a.appendMessageUsage(data, 1), "}}"...))
}

// event appends an event about a block; body is what follows its index.
func (a anthropicEvents) event(dst []byte, name string, b block, body []byte) []byte {
	data := appendInt([]byte(`{"type":"`+name+`"`), `,"index":`, b.index)
	return frame(dst, name, append(append(data, body...), '}'))
}

func (a anthropicEvents) begin(dst []byte, b block) []byte {
	body := []byte(`,"content_block":`)
	switch b.kind {
	case kindReasoning:
		body = append(body, `{"type":"thinking","thinking":"","signature":""}`...)
	case kindContent:
		body = append(body, `{"type":"text","text":""}`...)
	case kindCall:
		body = appendString(append(body, `{"type":"tool_use","id":`...), a.useID(b))
		body = append(appendString(append(body, `,"name":`...), b.name), `,"input":{}}`...)
	}
	dst = a.event(dst, "content_block_start", b, body)
	if b.index == 0 {
		dst = frame(dst, "ping", []byte(`{"type": "ping"}`))
	}
	if b.kind == kindCall {
		dst = a.delta(dst, b, nil)
	}
	return dst
}

func (a anthropicEvents) delta(dst []byte, b block, text []byte) []byte {
	body := []byte(`,"delta":{"type":"`)
	switch b.kind {
	case kindReasoning:
		body = append(body, `thinking_delta","thinking":`...)
	case kindContent:
		body = append(body, `text_delta","text":`...)
	case kindCall:
		body = append(body, `input_json_delta","partial_json":`...)
	}
	return a.event(dst, "content_block_delta", b, append(appendString(body, text), '}'))
}

func (a anthropicEvents) end(dst []byte, b block) []byte {
	if b.kind == kindReasoning {
		body := []byte(`,"delta":{"type":"signature_delta","signature":`)
		dst = a.event(dst, "content_block_delta", b, append(appendString(body, seal(thinkingPurpose, string(b.text))), '}'))
	}
	return a.event(dst, "content_block_stop", b, nil)
}

func (a anthropicEvents) close(dst []byte) []byte {
	data := append(a.appendStop([]byte(`{"type":"message_delta","delta":{`)), `},"usage":`...)
	dst = frame(dst, "message_delta", append(a.appendMessageUsage(data, len(a.choices[0].ids)), '}'))
	return frame(dst, "message_stop", []byte(`{"type":"message_stop"}`))
}

// fail is how an overloaded model ends a stream.
func (a anthropicEvents) fail(dst []byte, _ *apiError) []byte {
	return frame(dst, "error", spellAnthropic(nil, &apiError{Status: 529}, true))
}

// messagePath names a place in the request as Anthropic's refusals do.
func messagePath(message, part int) string {
	return "messages." + strconv.Itoa(message) + ".content." + strconv.Itoa(part)
}
