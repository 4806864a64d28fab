package fakeengine

import (
	"net/http"

	"github.com/tidwall/gjson"
)

// parseLenient reads a chat request as most servers do: what every server knows of it is taken over, everything else is
// let through and up to the wire.
func parseLenient(r *http.Request, body []byte) (*Request, *apiError) {
	top := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || !top.IsObject() {
		return nil, badRequest("", "The request body is no JSON object.")
	}
	req := &Request{
		Path: r.URL.Path, Header: r.Header, Body: body,
		Temperature: 1, N: 1, present: make(map[string]bool, 16),
	}
	var bad *apiError
	top.ForEach(func(key, v gjson.Result) bool {
		if v.Type == gjson.Null {
			return true
		}
		name := key.String()
		req.present[name] = true
		switch name {
		case "max_tokens", "max_completion_tokens": // 0 still gives a token, less than that is no bound
			if n := v.Int(); v.Type == gjson.Number && n > 0 {
				bad = req.set(name, v)
			} else if n == 0 {
				req.MaxTokens = 1
			}
		case "model", "stream", "messages", "temperature", "top_p", "seed", "n",
			"tool_choice", "chat_template_kwargs", "stop", "logprobs", "top_logprobs", "stream_options", "prompt":
			bad = req.set(name, v)
		case "tools":
			if len(v.Array()) > 0 {
				req.toolsRaw = v.Raw
			}
		}
		return bad == nil
	})
	if bad != nil {
		return nil, bad
	}
	return req, nil
}

// flag reads a boolean parameter that only some wires know.
func (r *Request) flag(name string) bool { return gjson.GetBytes(r.Body, name).Bool() }

// checkMessages refuses a chat call without messages.
func checkMessages(_ *Engine, req *Request) *apiError {
	if len(req.Messages) == 0 {
		return badRequest("messages", "Messages cannot be empty.")
	}
	return nil
}

// roomClamped is how many tokens may be sampled where a server clamps the cap; over is its refusal of a longer prompt.
func roomClamped(e *Engine, req *Request, prompt int, over func() *apiError) (int, *apiError) {
	left := e.opts.MaxModelLen - prompt
	if left < 1 {
		return 0, over()
	}
	if req.MaxTokens > 0 {
		left = min(left, req.MaxTokens)
	}
	return left, nil
}
