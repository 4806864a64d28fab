package fakeengine

import (
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// The llama.cpp server gives every sampled id of a whole answer in __verbose, and logprob rows only for what became text
// (WIRE 3). Its prompts are the tokens of the rendered text, so that the special tokens' spellings in a message become
// those tokens, and whoever renders and tokenises by its routes gets the same ids.

func llamaWire() *wire {
	return &wire{
		server:      "llama.cpp",
		mode:        Raw,
		routes:      llamaRoutes,
		auth:        llamaAuth,
		missing:     llamaMissing,
		spell:       spellLlama,
		reasoning:   "reasoning_content",
		bestFirst:   true,
		stopsDone:   true,
		chunkTokens: 1,
		chat: chatForm{
			prefix: "chatcmpl-",
			parse:  parseLlama,
			check:  checkLlama,
			prompt: llamaPrompt,
			room:   roomLlama,
			whole:  func(a *answer, dst []byte) []byte { return llamaAnswer{a}.appendWhole(dst) },
			stream: func(a *answer) chunks { return llamaChunks{llamaAnswer{a}} },
		},
	}
}

func llamaRoutes(path string) (route, bool) {
	switch path {
	case "/v1/chat/completions", "/chat/completions":
		return route{http.MethodPost, (*Engine).chat}, true
	case "/v1/models", "/models":
		return route{http.MethodGet, (*Engine).llamaModels}, true
	case "/apply-template":
		return route{http.MethodPost, (*Engine).llamaTemplate}, true
	case "/tokenize":
		return route{http.MethodPost, (*Engine).llamaTokenize}, true
	case "/detokenize":
		return route{http.MethodPost, (*Engine).llamaDetokenize}, true
	case "/health", "/v1/health":
		return route{http.MethodGet, func(_ *Engine, c *call) { c.llama(`{"status":"ok"}`) }}, true
	case "/props":
		return route{http.MethodGet, (*Engine).llamaProps}, true
	}
	return route{}, false
}

func llamaAuth(e *Engine, r *http.Request) *apiError {
	switch r.URL.Path {
	case "/health", "/v1/health", "/v1/models", "/models": // public, as there
		return nil
	}
	if e.opts.Key == "" || r.Header.Get("Authorization") == "Bearer "+e.opts.Key {
		return nil
	}
	return &apiError{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "Invalid API Key"}
}

func llamaMissing(_ *http.Request, _ int) *apiError {
	return &apiError{Status: http.StatusNotFound, Type: "not_found_error", Message: "File Not Found"}
}

func spellLlama(dst []byte, bad *apiError, _ bool) []byte {
	dst = appendInt(dst, `{"error":{"code":`, bad.Status)
	dst = appendString(append(dst, `,"message":`...), bad.Message)
	dst = appendString(append(dst, `,"type":`...), bad.Type)
	return append(append(dst, bad.More...), "}}"...)
}

func llamaRefusal(message string) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: message}
}

func parseLlama(r *http.Request, body []byte) (*Request, *apiError) {
	req, bad := parseLenient(r, body)
	if bad != nil {
		return nil, llamaRefusal(bad.Message)
	}
	if req.logprobs && !req.Has("top_logprobs") {
		req.topLogprobs = maxTopLogprobs
	}
	return req, nil
}

func checkLlama(_ *Engine, req *Request) *apiError {
	switch {
	case !req.Has("messages"):
		return llamaRefusal("'messages' is required")
	case req.Has("top_logprobs") && !req.logprobs:
		return llamaRefusal("top_logprobs requires logprobs to be set to true")
	case req.logprobs && req.Stream && req.toolsRaw != "":
		return llamaRefusal("logprobs is not supported with tools + stream")
	}
	return nil
}

// llamaPrompt tokenises the rendered text.
func llamaPrompt(v *vocab, req *Request) []int32 { return v.parse(v.decode(v.prompt(req, true))) }

func roomLlama(e *Engine, req *Request, prompt int) (int, *apiError) {
	return roomClamped(e, req, prompt, func() *apiError {
		return &apiError{
			Status: http.StatusBadRequest, Type: "exceed_context_size_error",
			Message: fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", prompt, e.opts.MaxModelLen),
			More:    fmt.Sprintf(`,"n_prompt_tokens":%d,"n_ctx":%d`, prompt, e.opts.MaxModelLen),
		}
	})
}

// llama answers with a small body.
func (c *call) llama(body string) { c.json(http.StatusOK, []byte(body)) }

func (e *Engine) llamaModels(c *call) {
	name := string(appendString(nil, e.opts.Model))
	c.llama(fmt.Sprintf(`{"models":[{"name":%s,"model":%s,"modified_at":"","size":"","digest":"","type":"model","description":"","tags":[""],`+
		`"capabilities":["completion"],"parameters":"","details":{"parent_model":"","format":"gguf","family":"","families":[""],`+
		`"parameter_size":"","quantization_level":""}}],"object":"list","data":[{"id":%s,"aliases":[%s],"tags":[],"object":"model",`+
		`"architecture":{"input_modalities":["text"],"output_modalities":["text"]},"created":1796067203,"owned_by":"llamacpp",`+
		`"meta":{"vocab_type":2,"n_vocab":%d,"n_ctx":%d,"n_ctx_train":%d,"n_embd":576,"n_params":134515008,"size":96576768,"ftype":"Q4_1"}}]}`,
		name, name, name, name, VocabSize, e.opts.MaxModelLen, e.opts.MaxModelLen))
}

func (e *Engine) llamaProps(c *call) {
	c.llama(fmt.Sprintf(`{"default_generation_settings":{"n_ctx":%d},"total_slots":1,"model_path":%s,"bos_token":"","eos_token":"<|im_end|>","build_info":"b0-unknown"}`,
		e.opts.MaxModelLen, appendString(nil, e.opts.Model)))
}

func (e *Engine) llamaTemplate(c *call) {
	req, bad := parseLlama(c.r, c.body)
	if bad == nil && !req.Has("messages") {
		bad = llamaRefusal("'messages' is required")
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	c.json(http.StatusOK, append(appendString([]byte(`{"prompt":`), c.vocab.decode(c.vocab.prompt(req, true))), '}'))
}

// llamaTokenize has no beginning-of-text token to add; parse_special holds unless it is refused.
func (e *Engine) llamaTokenize(c *call) {
	if !gjson.ValidBytes(c.body) {
		c.fail(llamaRefusal("the body is no JSON"))
		return
	}
	content := gjson.GetBytes(c.body, "content").String()
	var ids []int32
	if gjson.GetBytes(c.body, "parse_special").Type == gjson.False {
		ids = c.vocab.encode(content)
	} else {
		ids = c.vocab.parse(content)
	}
	if !gjson.GetBytes(c.body, "with_pieces").Bool() {
		c.json(http.StatusOK, append(appendIDs([]byte(`{"tokens":`), ids), '}'))
		return
	}
	dst := []byte(`{"tokens":[`)
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, `{"id":`, int(id))
		dst = append(dst, `,"piece":`...)
		if piece, _ := c.vocab.token(id); utf8.ValidString(piece) { // encode gives ids of the vocabulary only
			dst = appendString(dst, piece)
		} else {
			dst = appendByteValues(dst, piece)
		}
		dst = append(dst, '}')
	}
	c.json(http.StatusOK, append(dst, "]}"...))
}

func (e *Engine) llamaDetokenize(c *call) {
	ids, ok := idArray(gjson.GetBytes(c.body, "tokens"))
	if !ok {
		c.fail(llamaRefusal("tokens must be an array of token ids"))
		return
	}
	c.json(http.StatusOK, append(appendString([]byte(`{"content":`), c.vocab.decode(ids)), '}'))
}
