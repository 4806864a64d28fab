package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestReadRefusal reads what engines and hosted APIs really answer.
func TestReadRefusal(t *testing.T) {
	const none = "-"
	all := "return_token_ids logprobs top_logprobs max_tokens temperature top_p stream_options stream_options.include_usage parallel_tool_calls model messages tools stream"
	for _, c := range []struct {
		name   string
		status int
		body   string
		has    string // fields of the body, all by default
		want   string // param, param=value or param>name; - for no edit; ! for one that changes behaviour
	}{
		{"OpenAI renames the cap", 400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, "", "max_tokens>max_completion_tokens"},
		{"OpenAI renames, the other is there", 400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens"}}`, "max_tokens max_completion_tokens", "max_tokens"},
		{"OpenAI's temperature", 400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`, "", "temperature!"},
		{"the same without param", 400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":null}}`, "", "temperature!"},
		{"OpenAI's unknown parameter", 400, `{"error":{"message":"Unknown parameter: 'return_token_ids'.","type":"invalid_request_error","param":"return_token_ids","code":"unknown_parameter"}}`, "", "return_token_ids"},
		{"OpenAI's older spelling", 400, `{"error":{"message":"Unrecognized request argument supplied: return_token_ids","type":"invalid_request_error","param":null,"code":null}}`, "", "return_token_ids"},
		{"several at once: one edit", 400, `{"error":{"message":"Unrecognized request arguments supplied: min_p, return_token_ids, top_p","param":null}}`, "", "return_token_ids"},
		{"OpenAI's reasoning models", 400, `{"error":{"message":"Unsupported parameter: 'logprobs' is not supported with this model.","param":"logprobs","code":"unsupported_parameter"}}`, "", "logprobs"},
		{"logprobs forbidden", 403, `{"error":{"message":"You are not allowed to request logprobs from this model","type":"invalid_request_error","param":null,"code":null}}`, "", "logprobs"},
		{"logprobs forbidden, not sent", 403, `{"error":{"message":"You are not allowed to request logprobs from this model"}}`, "max_tokens", none},
		{"a credential's 403", 403, `{"error":{"message":"Unsupported parameter: 'temperature'","param":"temperature"}}`, "", none},
		{"OpenAI wants no reasoning beside tools", 400, `{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.","param":"reasoning_effort"}}`, "", `reasoning_effort="none"!`},
		{"the same, older", 400, `{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use /v1/responses instead.","type":"invalid_request_error","param":"reasoning_effort","code":null}}`, "reasoning_effort tools", "reasoning_effort!"},
		{"an effort that a router does not know", 400, `{"error":{"message":"Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: 'minimal', 'low', 'medium', and 'high'.","type":"invalid_request_error"}}`, "reasoning_effort", "reasoning_effort!"},
		{"a known pair", 400, `{"error":{"message":"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.","param":null}}`, "max_tokens max_completion_tokens", "max_tokens"},
		{"the pair of functions", 400, `{"error":{"message":"Setting 'tools' and 'functions' at the same time is not supported."}}`, "functions tools", "functions"},
		{"the pair of choices", 400, `{"error":{"message":"Setting 'function_call' and 'tool_choice' at the same time is not supported."}}`, "function_call tool_choice", "function_call"},
		{"an unknown pair", 400, `{"error":{"message":"Setting 'temperature' and 'top_p' at the same time is not supported."}}`, "", none},
		{"Anthropic's pair", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"`temperature` and `top_p` cannot both be specified for this model. Please use only one.\"}}", "", none},
		{"Anthropic deprecates", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"`temperature` is deprecated for this model.\"}}", "", "temperature!"},
		{"Anthropic's thinking", 400, "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"`temperature` may only be set to 1 when thinking is enabled.\"}}", "", "temperature=1!"},
		{"Anthropic's extra input", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"return_token_ids: Extra inputs are not permitted"}}`, "", "return_token_ids"},
		{"not in what they are about", 400, `{"error":{"message":"messages.65.content.1.tool_use.text: Extra inputs are not permitted"}}`, "", none},
		{"OpenRouter wraps", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"Unsupported parameter: 'logprobs' is not supported with this model.\",\"param\":\"logprobs\"}}","provider_name":"OpenAI"}}}`, "", "logprobs"},
		{"Azure", 400, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}`, "", "stream_options"},
		{"Fireworks", 400, `{"error":{"object":"error","type":"invalid_request_error","message":"Extra inputs are not permitted, field: 'stream_options', value: {'include_usage': True}"}}`, "", "stream_options"},
		{"Together finds a value too large", 400, `{"error":{"message":"5 is greater than the maximum of 1 - 'logprobs'","type":"invalid_request_error","param":"logprobs","code":null}}`, "", none},
		{"Google's compatibility layer", 400, `[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"min_p\": Cannot find field.\nInvalid JSON payload received. Unknown name \"return_token_ids\": Cannot find field.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"x"}]}]}}]`, "", "return_token_ids"},
		{"Google quotes nothing", 400, `{"error":{"code":400,"message":"Logprobs is not enabled for models/gemini-2.5-pro","status":"INVALID_ARGUMENT"}}`, "", none},
		{"vLLM's stream options", 400, "{\"error\":{\"message\":\"Stream options can only be defined when `stream=True`.\",\"type\":\"BadRequestError\",\"param\":\"stream_options\",\"code\":400}}", "", "stream_options"},
		{"vLLM's too many tokens", 400, `{"error":{"message":"max_tokens=99999 cannot be greater than max_model_len=4096.","type":"BadRequestError","param":"max_tokens","code":400}}`, "", none},
		{"a plugin of vLLM's", 400, `{"error":{"message":"Gaudi doesn't support logprobs. Please remove 'logprobs'/'top_logprobs' from your request to receive a response.","type":"BadRequestError","param":null,"code":400}}`, "", "logprobs"},
		{"older vLLM's validator as text", 400, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'return_token_ids'), 'msg': 'Extra inputs are not permitted', 'input': True}]","type":"BadRequestError","param":null,"code":400}`, "", "return_token_ids"},
		{"a validator's 422", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]}`, "", "stream_options.include_usage"},
		{"the same inside a message", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","parallel_tool_calls"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error"}`, "", "parallel_tool_calls"},
		{"a missing field", 422, `{"detail":[{"type":"missing","loc":["body","max_tokens"],"msg":"Field required"}]}`, "", none},
		{"SGLang quotes nothing", 400, `{"object":"error","message":"token ids cannot be combined with streaming here","type":"BadRequest","code":400}`, "", none},
		{"a property that is unsupported", 400, `{"error":{"message":"property 'parallel_tool_calls' is unsupported","type":"invalid_request_error"}}`, "", "parallel_tool_calls"},
		{"a gateway's list", 400, `{"error":{"message":"UnsupportedParamsError: groq does not support parameters: ['logprobs'], for model=x"}}`, "", "logprobs"},
		{"param wins over prose", 400, `{"error":{"message":"Unsupported parameter: 'temperature'.","param":"top_p"}}`, "", "top_p!"},
		{"param that was not sent", 400, `{"error":{"message":"Unsupported parameter: 'temperature'.","param":"seed"}}`, "", none},
		{"param with a quarrel over its value", 400, `{"error":{"message":"Invalid 'max_tokens': integer below minimum value.","param":"max_tokens","code":"integer_below_min_value"}}`, "", none},
		{"prose without quotes", 400, `{"error":{"message":"temperature is not supported by this model"}}`, "", none},
		{"a quoted value is no field", 400, `{"error":{"message":"Unsupported value: 'high' is not supported"}}`, "", none},
		{"the model", 400, `{"error":{"message":"Unsupported parameter: 'model'","param":"model"}}`, "", none},
		{"the messages", 400, `{"error":{"message":"Unsupported value: 'messages[0].role' does not support 'system' with this model.","param":"messages[0].role","code":"unsupported_value"}}`, all + " messages[0].role", none},
		{"the tools", 400, "{\"error\":{\"message\":\"`tools` is not supported by this model\"}}", "", none},
		{"the stream", 400, `{"error":{"message":"Unsupported value: 'stream' does not support true with this model.","param":"stream"}}`, "", none},
		{"nothing becomes a tool", 400, `{"error":{"message":"Unsupported parameter: 'functions'. Use 'tools' instead.","param":"functions"}}`, "functions", none},
		{"plain text", 400, `Unknown parameter: 'top_p'`, "", "top_p!"},
		{"an error that is a string", 400, `{"error":"Unsupported parameter: 'top_p'"}`, "", "top_p!"},
		{"another status", 500, `{"error":{"message":"Unsupported parameter: 'top_p'","param":"top_p"}}`, "", none},
		{"no text at all", 400, ``, "", none},
	} {
		fields := c.has
		if fields == "" {
			fields = all
		}
		f, ok := ReadRefusal(c.status, []byte(c.body), func(p string) bool { return slices.Contains(strings.Fields(fields), p) })
		got := none
		if ok {
			got = f.Param
			if f.To != "" {
				got += "=" + f.To
			}
			if f.Rename != "" {
				got += ">" + f.Rename
			}
			if f.Behaviour {
				got += "!"
			}
			if f.Why == "" {
				t.Errorf("%s: the edit does not say why", c.name)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzReadRefusal: whatever an engine answers, what the call is about stays, and what is set is JSON.
func FuzzReadRefusal(f *testing.F) {
	f.Add(`{"error":{"message":"set reasoning_effort to 'none'","param":"reasoning_effort"}}`)
	f.Add(`[{"error":{"message":"Unknown name \"model\": Cannot find field."}}]`)
	f.Add(`{"detail":[{"loc":["body","tools"],"msg":"Extra inputs are not permitted"}]}`)
	f.Add(`Setting 'functions' and 'tools' at the same time`)
	f.Add(`{"error":{"metadata":{"raw":"{}"}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		fix, ok := ReadRefusal(400, []byte(body), func(string) bool { return true })
		if !ok {
			return
		}
		for _, name := range []string{fix.Param, fix.Rename} {
			if slices.Contains(untouchable, root(name)) {
				t.Errorf("%q touches %q", body, name)
			}
		}
		if fix.Param == "" || fix.To != "" && !json.Valid([]byte(fix.To)) || fix.To != "" && fix.Rename != "" {
			t.Errorf("%q: %+v", body, fix)
		}
	})
}
