package fakeengine

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// openaiWire is OpenAI's API. Its newer models refuse what they do not sample by; with logprobs it is an older one, which
// takes the usual parameters and still no foreign ones.
func openaiWire(logprobs bool) *wire {
	style := hostedStyle{callID: "call_"}
	if logprobs {
		style.rows = contentRows
	}
	form := hostedForm(style)
	form.check = func(e *Engine, req *Request) *apiError { return checkOpenAI(e, req, logprobs) }
	return &wire{
		owner:       "openai",
		mode:        Raw,
		routes:      openaiRoutes,
		auth:        openaiAuth,
		missing:     openaiMissing,
		spell:       spellOpenAI,
		bestFirst:   true,
		chunkTokens: 1,
		chat:        form,
	}
}

func openaiRoutes(path string) (route, bool) {
	switch path {
	case "/v1/chat/completions":
		return route{http.MethodPost, (*Engine).chat}, true
	case "/v1/models":
		return route{http.MethodGet, (*Engine).hostedModels}, true
	}
	return responsesRoute(path)
}

func openaiAuth(e *Engine, r *http.Request) *apiError {
	if e.opts.Key == "" {
		return nil
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok:
		return &apiError{Status: http.StatusUnauthorized, Type: "invalid_request_error",
			Message: "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
	case got != e.opts.Key:
		return &apiError{Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: "invalid_api_key",
			Message: "Incorrect API key provided: ****. You can find your API key at https://platform.openai.com/account/api-keys."}
	}
	return nil
}

func openaiMissing(r *http.Request, status int) *apiError {
	return &apiError{Status: status, Type: "invalid_request_error", Message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path)}
}

// spellOpenAI writes an error indented, as OpenAI does, or flat as an event of a stream.
func spellOpenAI(dst []byte, bad *apiError, event bool) []byte {
	kind, code := bad.Type, bad.Code
	switch {
	case kind != "" && !strings.HasSuffix(kind, "Error"):
	case bad.Status == http.StatusTooManyRequests:
		kind, code = "requests", "rate_limit_exceeded"
	case bad.Status >= 500:
		kind = "server_error"
	default:
		kind = "invalid_request_error"
	}
	outer, inner, colon := "\n  ", "\n    ", ": "
	if event {
		outer, inner, colon = "", "", ":"
	}
	dst = append(dst, "{"+outer+`"error"`+colon+"{"+inner+`"message"`+colon...)
	dst = appendString(dst, bad.Message)
	dst = appendString(append(dst, ","+inner+`"type"`+colon...), kind)
	dst = appendStringOrNull(append(dst, ","+inner+`"param"`+colon...), bad.Param)
	dst = appendStringOrNull(append(dst, ","+inner+`"code"`+colon...), code)
	return append(dst, outer+"}"+outer[:min(1, len(outer))]+"}"...)
}

func (e *Engine) hostedModels(c *call) {
	dst := appendString([]byte(`{"object":"list","data":[{"id":`), e.opts.Model)
	c.json(http.StatusOK, append(dst, `,"object":"model","created":1767225600,"owned_by":"`+e.wire.owner+`"}]}`...))
}

// openaiChatParams are the parameters that chat knows.
func openaiChatParams() []string {
	return []string{
		"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "messages",
		"metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
		"prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
		"stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
	}
}

func openaiRefusal(param, code, message string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Code: code, Message: message}
}

func unsupportedParam(param string) *apiError {
	return openaiRefusal(param, "unsupported_parameter", "Unsupported parameter: '"+param+"' is not supported with this model.")
}

// unknownParam has two wordings: the older one names the parameter in its prose only.
func unknownParam(param string) *apiError {
	switch param {
	case "top_k", "min_p", "repetition_penalty":
		return openaiRefusal("", "", "Unrecognized request argument supplied: "+param)
	}
	return openaiRefusal(param, "unknown_parameter", "Unknown parameter: '"+param+"'.")
}

// checkOpenAI refuses one thing at a time, in the order of the body.
func checkOpenAI(e *Engine, req *Request, logprobs bool) *apiError {
	if req.Model != e.opts.Model {
		return &apiError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found",
			Message: "The model `" + req.Model + "` does not exist or you do not have access to it."}
	}
	known := openaiChatParams()
	var bad *apiError
	gjson.ParseBytes(req.Body).ForEach(func(key, v gjson.Result) bool {
		name := key.String()
		if !slices.Contains(known, name) {
			bad = unknownParam(name)
		} else if bad = e.refuseEither(req, name, v); bad == nil && !logprobs {
			bad = refuseNewer(name, v)
		}
		return bad == nil
	})
	if bad != nil {
		return bad
	}
	if len(req.Messages) == 0 {
		return openaiRefusal("messages", "empty_array", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	}
	return nil
}

// refuseEither is what every model of OpenAI's refuses.
func (e *Engine) refuseEither(req *Request, name string, v gjson.Result) *apiError {
	switch {
	case name == "max_tokens" && req.Has("max_tokens") && req.Has("max_completion_tokens"):
		return openaiRefusal("max_tokens", "invalid_parameter_combination", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case name == "tools" && v.IsArray() && len(v.Array()) == 0:
		return openaiRefusal("tools", "empty_array", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	case name == "parallel_tool_calls" && v.Type != gjson.Null && req.toolsRaw == "":
		return openaiRefusal("parallel_tool_calls", "", "'parallel_tool_calls' is only allowed when 'tools' are specified.")
	case name == "stream_options" && v.Type != gjson.Null && !req.Stream:
		return openaiRefusal("stream_options", "", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case name == "top_logprobs" && v.Type != gjson.Null && !req.logprobs:
		return openaiRefusal("top_logprobs", "", "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.")
	case name == "tools" && req.toolsRaw != "" && e.opts.ToolsNeedNoReasoning && gjson.GetBytes(req.Body, "reasoning_effort").String() != "none":
		return openaiRefusal("reasoning_effort", "", "Function tools with reasoning_effort are not supported for "+e.opts.Model+
			" in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.")
	}
	return nil
}

// refuseNewer is what the newer models refuse on top.
func refuseNewer(name string, v gjson.Result) *apiError {
	if v.Type == gjson.Null {
		return nil
	}
	switch name {
	case "max_tokens":
		return openaiRefusal("max_tokens", "unsupported_parameter",
			"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
	case "temperature":
		if v.Num != 1 {
			return openaiRefusal("temperature", "unsupported_value", "Unsupported value: 'temperature' does not support "+v.Raw+
				" with this model. Only the default (1) value is supported.")
		}
	case "top_p":
		if v.Num != 1 {
			return unsupportedParam(name)
		}
	case "presence_penalty", "frequency_penalty":
		if v.Num != 0 {
			return unsupportedParam(name)
		}
	case "logprobs":
		if v.Bool() {
			return unsupportedParam(name)
		}
	case "top_logprobs", "logit_bias", "stop":
		return unsupportedParam(name)
	}
	return nil
}

// fireworksWire is Fireworks: raw logprobs, with the sampled distribution's beside them.
func fireworksWire() *wire {
	w := openaiWire(true)
	form := hostedForm(hostedStyle{callID: "call_", reasoning: "reasoning_content", rows: fireworksRows})
	form.parse = func(r *http.Request, body []byte) (*Request, *apiError) {
		req, bad := parseLenient(r, body)
		if bad == nil {
			req.returnIDs = req.flag("return_token_ids")
		}
		return req, bad
	}
	w.owner, w.chat, w.chunkTokens = "fireworks", form, 0
	w.routes = openaiChatRoutes
	return w
}

// togetherWire is Together: ids of the sample beside the logprobs, none of the prompt.
func togetherWire() *wire {
	w := openaiWire(true)
	w.owner, w.chat, w.chunkTokens = "together", hostedForm(hostedStyle{callID: "call_", reasoning: "reasoning", rows: togetherRows}), 0
	w.routes = openaiChatRoutes
	return w
}

// openaiChatRoutes are those of a hosted API that has nothing but chat.
func openaiChatRoutes(path string) (route, bool) {
	if path == "/v1/responses" {
		return route{}, false
	}
	return openaiRoutes(path)
}
