package fakeengine

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// models answers GET /v1/models.
func (e *Engine) models(c *call) {
	created := strconv.FormatInt(time.Now().Unix(), 10)
	dst := append([]byte(nil), `{"object":"list","data":[{"id":`...)
	dst = appendString(dst, e.opts.Model)
	dst = append(dst, `,"object":"model","created":`+created+`,"owned_by":"`+e.wire.owner+`","root":`...)
	dst = appendString(dst, e.opts.Model)
	dst = appendInt(dst, `,"parent":null,"max_model_len":`, e.opts.MaxModelLen)
	dst = append(dst, `,"permission":[{"id":"modelperm-868cf4b234f9d98b","object":"model_permission","created":`+created+
		`,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,`+
		`"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}]}`...)
	c.json(http.StatusOK, dst)
}

// health answers GET /health.
func (e *Engine) health(c *call) {
	c.setHeader("Content-Length", "0")
	c.w.WriteHeader(http.StatusOK)
}

// version answers GET /version.
func (e *Engine) version(c *call) { c.json(http.StatusOK, []byte(`{"version":"`+e.wire.version+`"}`)) }

// tokenize answers POST /tokenize, for text and for messages.
func (e *Engine) tokenize(c *call) {
	req, bad := parseRequest(c.r, c.body)
	if bad == nil && req.Model != "" && req.Model != e.opts.Model {
		bad = e.check(req, false)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	var ids []int32
	switch {
	case len(req.Messages) > 0:
		for i := range req.Messages {
			req.Messages[i].strict = true
		}
		generate := gjson.GetBytes(c.body, "add_generation_prompt")
		ids = c.vocab.prompt(req, generate.Type != gjson.False)
	case req.prompt.Type == gjson.String:
		ids = c.vocab.parse(req.prompt.String())
	default:
		c.fail(validation("body.prompt", "{'type': 'missing', 'loc': 'body.prompt', 'msg': 'Field required', 'input': '<dict>'}"))
		return
	}
	dst := appendInt(nil, `{"count":`, len(ids))
	dst = appendInt(dst, `,"max_model_len":`, e.opts.MaxModelLen)
	dst = append(dst, `,"tokens":`...)
	dst = appendIDs(dst, ids)
	dst = append(dst, `,"token_strs":`...)
	if !gjson.GetBytes(c.body, "return_token_strs").Bool() {
		c.json(http.StatusOK, append(dst, "null}"...))
		return
	}
	dst = append(dst, '[')
	for i := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, c.vocab.decode(ids[i:i+1]))
	}
	c.json(http.StatusOK, append(dst, "]}"...))
}

// detokenize answers POST /detokenize.
func (e *Engine) detokenize(c *call) {
	if _, bad := parseRequest(c.r, c.body); bad != nil {
		c.fail(bad)
		return
	}
	ids, ok := idArray(gjson.GetBytes(c.body, "tokens"))
	if !ok {
		c.fail(badRequest("tokens", "tokens must be a list of token ids of the vocabulary (parameter=tokens)"))
		return
	}
	dst := appendString([]byte(`{"prompt":`), c.vocab.decode(ids))
	c.json(http.StatusOK, append(dst, '}'))
}
