package fakeengine

import (
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"
)

// SGLang gives token ids under names that differ by version and by streaming (WIRE 2). What it does not know it ignores.

// wholeOnly are the parameters that it refuses in a stream.
var wholeOnly = [...]string{"return_token_ids", "return_prompt_token_ids", "return_meta_info"}

func sglangWire(old bool) *wire {
	return &wire{
		server:      "uvicorn",
		owner:       "sglang",
		mode:        Processed,
		routes:      sglangRoutes,
		auth:        sglangAuth,
		spell:       spellFlat,
		lateHeaders: true,
		reasoning:   "reasoning_content",
		bestFirst:   true,
		textIDs:     !old,
		anyModel:    true,
		chat: chatForm{
			parse:  func(r *http.Request, body []byte) (*Request, *apiError) { return parseSGLang(r, body, old) },
			check:  checkSGLang,
			prompt: promptOf,
			room:   roomSGLang,
			whole:  func(a *answer, dst []byte) []byte { return sglangAnswer{a, old}.appendWhole(dst) },
			stream: func(a *answer) chunks { return sglangChunks{sglangAnswer{a, old}} },
		},
	}
}

func sglangRoutes(path string) (route, bool) {
	switch path {
	case "/model_info", "/get_model_info":
		return route{http.MethodGet, (*Engine).sglangInfo}, true
	case "/tokenize":
		return route{http.MethodPost, (*Engine).sglangTokenize}, true
	case "/detokenize":
		return route{http.MethodPost, (*Engine).sglangDetokenize}, true
	case "/version": // vLLM's
		return route{}, false
	}
	return routeOf(path)
}

func sglangAuth(e *Engine, r *http.Request) *apiError {
	if e.opts.Key == "" || r.URL.Path == "/health" || r.Header.Get("Authorization") == "Bearer "+e.opts.Key {
		return nil
	}
	return &apiError{Status: http.StatusUnauthorized, Message: "Unauthorized"}
}

// spellFlat writes an error as SGLang and older vLLM do: flat as an answer, nested as an event of a stream.
func spellFlat(dst []byte, bad *apiError, event bool) []byte {
	if bad.Status == http.StatusUnauthorized {
		return append(appendString(append(dst, `{"error":`...), bad.Message), '}')
	}
	if event {
		dst = append(dst, `{"error": `...)
	}
	dst = append(dst, `{"object":"error","message":`...)
	dst = appendString(dst, bad.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, bad.Type)
	dst = append(dst, `,"param":`...)
	dst = appendStringOrNull(dst, bad.Param)
	dst = appendInt(dst, `,"code":`, bad.Status)
	dst = append(dst, '}')
	if event {
		dst = append(dst, '}')
	}
	return dst
}

func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

func parseSGLang(r *http.Request, body []byte, old bool) (*Request, *apiError) {
	req, bad := parseLenient(r, body)
	if bad != nil {
		return nil, bad
	}
	req.returnIDs = !old && req.flag("return_token_ids")
	if req.Stream { // the late chunk is another matter
		req.returnIDs = false
	}
	if ids := gjson.GetBytes(body, "input_ids"); !old && ids.IsArray() {
		forced, ok := idArray(ids)
		if !ok || len(forced) == 0 {
			return nil, badRequest("", "The input_ids "+ids.Raw+" contains values greater than the vocab size or less than 0.")
		}
		req.forced = forced
	}
	return req, nil
}

func checkSGLang(_ *Engine, req *Request) *apiError {
	if len(req.Messages) == 0 {
		return badRequest("", "Messages cannot be empty.")
	}
	for _, m := range req.Messages {
		switch m.Role() {
		case "system", "user", "assistant", "tool", "function", "developer":
		default:
			return badRequest("", "1 validation errors:\n  {'type': 'literal_error', 'loc': ('body', 'messages', 0, 'role'), 'msg': \"Input should be 'system', 'user', 'assistant' or 'tool'\"}")
		}
		for _, call := range m.raw.Get("tool_calls").Array() {
			if args := call.Get("function.arguments").String(); !gjson.Valid(args) || !gjson.Parse(args).IsObject() {
				return badRequest("", "Assistant message tool call arguments must be a JSON object.")
			}
		}
	}
	if req.Stream {
		for _, name := range wholeOnly {
			if req.flag(name) {
				return badRequest("", name+" is not supported with stream=True")
			}
		}
	}
	return nil
}

// roomSGLang refuses what does not fit instead of clamping it.
func roomSGLang(e *Engine, req *Request, prompt int) (int, *apiError) {
	window := e.opts.MaxModelLen
	switch {
	case prompt >= window:
		return 0, badRequest("", fmt.Sprintf("The input (%d tokens) is longer than the model's context length (%d tokens).", prompt, window))
	case prompt+req.MaxTokens > window:
		return 0, badRequest("", fmt.Sprintf("Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d "+
			"tokens: %d tokens from the input messages and %d tokens for the completion. Please reduce the number of tokens in the input messages "+
			"or the completion to fit within the limit.", window, prompt+req.MaxTokens, prompt, req.MaxTokens))
	case req.MaxTokens > 0:
		return req.MaxTokens, nil
	}
	return window - prompt, nil
}

// weightVersion is what the engine says of its weights.
const weightVersion = "default"

func (e *Engine) sglangInfo(c *call) {
	dst := appendString([]byte(`{"model_path":`), e.opts.Model)
	dst = appendString(append(dst, `,"tokenizer_path":`...), e.opts.Model)
	dst = append(dst, `,"is_generation":true,"preferred_sampling_params":null,"weight_version":"`+weightVersion+`"}`...)
	c.json(http.StatusOK, dst)
}

func (e *Engine) sglangTokenize(c *call) {
	req, bad := parseLenient(c.r, c.body)
	if bad != nil {
		c.fail(bad)
		return
	}
	var ids []int32
	switch {
	case len(req.Messages) > 0:
		ids = promptOf(c.vocab, req)
	case req.prompt.Type == gjson.String:
		ids = c.vocab.parse(req.prompt.String())
	default:
		c.fail(badRequest("", "Either prompt or messages must be given."))
		return
	}
	dst := appendIDs([]byte(`{"tokens":`), ids)
	dst = appendInt(dst, `,"count":`, len(ids))
	dst = appendInt(dst, `,"max_model_len":`, e.opts.MaxModelLen)
	c.json(http.StatusOK, append(dst, '}'))
}

// sglangDetokenize leaves special tokens out unless it is told otherwise.
func (e *Engine) sglangDetokenize(c *call) {
	ids, ok := idArray(gjson.GetBytes(c.body, "tokens"))
	if !ok {
		c.fail(badRequest("", "tokens must be a list of token ids"))
		return
	}
	if gjson.GetBytes(c.body, "skip_special_tokens").Type != gjson.False {
		kept := ids[:0]
		for _, id := range ids {
			if id < idStart {
				kept = append(kept, id)
			}
		}
		ids = kept
	}
	c.json(http.StatusOK, append(appendString([]byte(`{"text":`), c.vocab.decode(ids)), '}'))
}
