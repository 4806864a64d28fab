package fakeengine

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// maxN bounds the samples of one call, whose number costs its sender nothing.
const maxN = 16384

// Request is a chat or completions call, parsed.
type Request struct {
	Path   string
	Header http.Header
	Body   []byte

	Model    string
	Stream   bool
	Messages []Message

	Temperature float64 // 1 when absent, as in vLLM without a generation config
	Seed        *int64
	N           int
	MaxTokens   int // 0 when absent

	toolsRaw   string // the manifest's JSON, "" for none
	toolChoice gjson.Result
	noThinking bool

	stop        []string
	includeStop bool

	logprobs    bool
	topLogprobs int
	returnIDs   bool
	returnText  bool
	labels      *bool
	noReasoning bool
	hasOptions  bool // stream_options is there and not {}
	usage       bool
	everyUsage  bool
	interval    int

	prompt gjson.Result // completions
	forced []int32      // kv_transfer_params.prompt_token_ids

	present map[string]bool // parameters that are there and not null
}

// Has reports whether the body has a parameter that is not null.
func (r *Request) Has(param string) bool { return r.present[param] }

// Tools lists the functions of the manifest.
func (r *Request) Tools() []Tool {
	var tools []Tool
	gjson.Parse(r.toolsRaw).ForEach(func(_, t gjson.Result) bool {
		if fn := t.Get("function"); fn.IsObject() {
			tools = append(tools, Tool{Name: fn.Get("name").String(), schema: fn.Get("parameters")})
		}
		return true
	})
	return tools
}

// Tool is one function of a manifest.
type Tool struct {
	Name   string
	schema gjson.Result
}

// LastUser returns the text of the last user message, "" for none.
func (r *Request) LastUser() string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if r.Messages[i].Role() == "user" {
			return r.Messages[i].Text()
		}
	}
	return ""
}

// parseRequest reads a body and refuses what vLLM refuses before it looks at the model.
func parseRequest(r *http.Request, body []byte) (*Request, *apiError) {
	if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		return nil, validation("", "Unsupported Media Type: Only 'application/json' is allowed")
	}
	if len(body) == 0 {
		return nil, validation("body", "{'type': 'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'}")
	}
	if !gjson.ValidBytes(body) {
		loc := fmt.Sprintf("body.%d", len(body))
		return nil, validation(loc, "{'type': 'json_invalid', 'loc': '"+loc+
			"', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}")
	}
	top := gjson.ParseBytes(body)
	if !top.IsObject() {
		return nil, validation("body", "{'type': 'model_attributes_type', 'loc': 'body', "+
			"'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': '<list>'}")
	}
	req := &Request{
		Path: r.URL.Path, Header: r.Header, Body: body,
		Temperature: 1, N: 1, present: make(map[string]bool, 16),
	}
	var bad *apiError
	top.ForEach(func(key, v gjson.Result) bool {
		if v.Type != gjson.Null {
			req.present[key.String()] = true
			bad = req.set(key.String(), v)
		}
		return bad == nil
	})
	if bad != nil {
		return nil, bad
	}
	return req, nil
}

// set takes over one parameter. Unknown ones are ignored, as in vLLM.
func (r *Request) set(key string, v gjson.Result) *apiError {
	switch key {
	case "temperature", "top_p", "n", "max_tokens", "max_completion_tokens", "seed", "top_logprobs", "stream_interval", "prompt_logprobs":
		if v.Type != gjson.Number {
			return validation("body."+key, fmt.Sprintf("{'type': 'float_parsing', 'loc': 'body.%s', 'msg': "+
				"'Input should be a valid number, unable to parse string as a number', 'input': '%s'}", key, v.String()))
		}
	}
	switch key {
	case "model":
		r.Model = v.String()
	case "stream":
		r.Stream = v.Bool()
	case "messages":
		v.ForEach(func(_, m gjson.Result) bool {
			r.Messages = append(r.Messages, Message{raw: m})
			return true
		})
		return checkArguments(r.Messages)
	case "temperature":
		r.Temperature = v.Float()
		if r.Temperature < 0 {
			return outOfRange("temperature", fmt.Sprintf("temperature must be non-negative, got %s.", pyFloat(v)), pyFloat(v))
		}
	case "top_p":
		if p := v.Float(); p <= 0 || p > 1 {
			return outOfRange("top_p", fmt.Sprintf("top_p must be in (0, 1], got %s.", pyFloat(v)), pyFloat(v))
		}
	case "seed":
		seed := v.Int()
		r.Seed = &seed
	case "n":
		if r.N = int(v.Int()); r.N < 1 {
			return badRequest("", fmt.Sprintf("n must be at least 1, got %d.", r.N))
		}
		if r.N > maxN {
			return badRequest("", fmt.Sprintf("n must be at most %d, got %d.", maxN, r.N))
		}
	case "max_tokens", "max_completion_tokens":
		if r.MaxTokens != 0 && key == "max_tokens" { // max_completion_tokens wins
			return nil
		}
		if r.MaxTokens = int(v.Int()); r.MaxTokens < 1 {
			return outOfRange("max_tokens", fmt.Sprintf("max_tokens must be at least 1, got %d.", r.MaxTokens), v.Raw)
		}
	case "tools":
		if len(v.Array()) == 0 {
			return badRequest("tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely. (parameter=tools)")
		}
		r.toolsRaw = v.Raw
	case "tool_choice":
		r.toolChoice = v
	case "chat_template_kwargs":
		r.noThinking = v.Get("enable_thinking").Type == gjson.False
	case "stop":
		if v.Type == gjson.String {
			r.stop = []string{v.String()}
			return nil
		}
		for _, s := range v.Array() {
			r.stop = append(r.stop, s.String())
		}
	case "include_stop_str_in_output":
		r.includeStop = v.Bool()
	case "logprobs": // a flag on chat, a count on completions
		r.logprobs = v.Type != gjson.False
		if v.Type == gjson.Number {
			r.topLogprobs = int(v.Int())
		}
	case "top_logprobs":
		r.topLogprobs = int(v.Int())
	case "return_token_ids":
		r.returnIDs = v.Bool()
	case "return_prompt_text":
		r.returnText = v.Bool()
	case "return_tokens_as_token_ids":
		b := v.Bool()
		r.labels = &b
	case "include_reasoning":
		r.noReasoning = v.Type == gjson.False
	case "stream_options":
		r.hasOptions = len(v.Map()) > 0
		r.usage = v.Get("include_usage").Bool()
		r.everyUsage = r.usage && v.Get("continuous_usage_stats").Bool()
	case "stream_interval":
		r.interval = int(v.Int())
	case "prompt":
		r.prompt = v
	case "kv_transfer_params":
		return r.setForced(v.Get("prompt_token_ids"))
	}
	return nil
}

func (r *Request) setForced(v gjson.Result) *apiError {
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	ids, ok := idArray(v)
	if !ok || len(ids) == 0 {
		return badRequest("kv_transfer_params.prompt_token_ids",
			"kv_transfer_params.prompt_token_ids must be a non-empty list of token ids (parameter=kv_transfer_params.prompt_token_ids)")
	}
	r.forced = ids
	return nil
}

// idArray reads an array of token ids of the vocabulary.
func idArray(v gjson.Result) ([]int32, bool) {
	ids, ok := []int32{}, v.IsArray()
	v.ForEach(func(_, e gjson.Result) bool {
		n := e.Int()
		ok = ok && e.Type == gjson.Number && float64(n) == e.Num && n >= 0 && n < int64(idLimit)
		ids = append(ids, int32(n))
		return ok
	})
	return ids, ok
}

// checkArguments refuses tool calls whose arguments are not a string, in vLLM's words.
func checkArguments(messages []Message) *apiError {
	for _, m := range messages {
		for i, tc := range m.raw.Get("tool_calls").Array() {
			if tc.Get("function.arguments").IsObject() {
				loc := fmt.Sprintf("body.%d.ChatCompletionMessageFunctionToolCallParam.function", i)
				return validation(loc, "{'type': 'string_type', 'loc': '"+loc+"', 'msg': 'Input should be a valid string', 'input': '<dict of 1 items>'}")
			}
		}
	}
	return nil
}

// check refuses what vLLM refuses once it knows the whole request.
func (e *Engine) check(req *Request, chat bool) *apiError {
	switch {
	case chat && !req.Has("messages"):
		return validation("body.messages", fmt.Sprintf(
			"{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of %d items>'}", len(req.present)))
	case req.Model != "" && req.Model != e.opts.Model:
		return &apiError{Status: http.StatusNotFound, Type: "NotFoundError", Param: "model",
			Message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", req.Model, e.opts.Model)}
	case !req.Stream && req.hasOptions:
		return badRequest("stream_options", "Stream options can only be defined when `stream=True`. (parameter=stream_options)")
	case req.toolsRaw == "" && req.toolChoice.Exists() && req.toolChoice.String() != "none":
		return badRequest("tool_choice", "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)")
	case chat && req.topLogprobs > 0 && !req.logprobs:
		return badRequest("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)")
	case req.Stream && req.Has("prompt_logprobs") && gjson.GetBytes(req.Body, "prompt_logprobs").Int() > 0:
		return badRequest("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)")
	case chat && len(req.Messages) == 0:
		return badRequest("", "Cannot apply chat template to an empty conversation. Provide at least one message.")
	case req.N > 1 && req.Temperature == 0:
		return badRequest("", fmt.Sprintf("n must be 1 when using greedy sampling, got %d.", req.N))
	case req.MaxTokens > e.opts.MaxModelLen:
		return outOfRange("max_tokens", fmt.Sprintf("max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.",
			req.MaxTokens, e.opts.MaxModelLen), fmt.Sprint(req.MaxTokens))
	}
	return nil
}

// checkLate refuses what vLLM's engine refuses: in a stream it has said 200 by then.
func (e *Engine) checkLate(req *Request) *apiError {
	if req.topLogprobs > maxTopLogprobs {
		return outOfRange("logprobs", fmt.Sprintf("Requested sample logprobs of %d, which is greater than max allowed: %d",
			req.topLogprobs, maxTopLogprobs), fmt.Sprint(req.topLogprobs))
	}
	return nil
}

// room returns how many tokens may be sampled after a prompt; a cap beyond the context is clamped silently.
func (e *Engine) room(req *Request, prompt int) (int, *apiError) {
	left := e.opts.MaxModelLen - prompt
	if left < 1 {
		return 0, outOfRange("input_tokens", fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens "+
			"and your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt "+
			"or the number of requested output tokens.", e.opts.MaxModelLen, max(1, req.MaxTokens), prompt, prompt+max(1, req.MaxTokens)), fmt.Sprint(prompt))
	}
	if req.MaxTokens > 0 {
		left = min(left, req.MaxTokens)
	}
	return left, nil
}

// pyFloat spells a number as Python prints a float.
func pyFloat(v gjson.Result) string {
	if s := v.Raw; strings.ContainsAny(s, ".eE") {
		return s
	}
	return v.Raw + ".0"
}
