package fakeengine

import (
	"time"

	"github.com/tidwall/gjson"
)

// completions answers POST /v1/completions. The prompt is text, in which the template's special tokens may be spelled
// out, an array of ids, or an array of either.
func (e *Engine) completions(c *call) {
	req, bad := parseRequest(c.r, c.body)
	if bad == nil {
		req.returnIDs = req.returnIDs && e.wire.textIDs
		if e.wire.anyModel {
			req.Model = ""
		}
		bad = e.check(req, false)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	if !e.beginFault(c, req) {
		return
	}
	prompts, bad := c.vocab.prompts(req.prompt)
	if bad == nil {
		bad = e.checkLate(req)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	a := e.answer(c, req, "cmpl-", prompts[0])
	perChoice := make([][]int32, 0, len(prompts)*req.N)
	for _, prompt := range prompts {
		room, bad := e.room(req, len(prompt))
		if bad != nil {
			c.fail(bad)
			return
		}
		for range req.N {
			g := &generation{index: len(a.choices), variant: e.variant(req, len(a.choices))}
			c.vocab.generate(g, e.completion(req, g.variant))
			g.cut(room, req.stop, req.includeStop)
			a.choices = append(a.choices, g)
			perChoice = append(perChoice, prompt)
		}
	}
	e.remember(a, perChoice)
	text := textAnswers{a, perChoice}
	if req.Stream && c.fault.Kind != FaultJSONAnswer {
		e.stream(a, text)
		return
	}
	if !e.wait(c, e.opts.FirstToken+time.Duration(a.longest())*e.opts.PerToken) {
		return
	}
	c.whole(text.appendWhole(nil))
}

// completion is what the engine says to a bare prompt.
func (e *Engine) completion(req *Request, variant uint64) Reply {
	if e.opts.Script != nil {
		return Reply{Content: e.opts.Script(req, variant).Content}
	}
	return Reply{Content: textAnswer(req, variant)}
}

func (v *vocab) prompts(p gjson.Result) ([][]int32, *apiError) {
	if p.Type == gjson.String {
		return [][]int32{v.parse(p.String())}, nil
	}
	parts := p.Array()
	if len(parts) == 0 {
		return nil, badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	}
	if parts[0].Type == gjson.Number {
		ids, ok := idArray(p)
		if !ok {
			return nil, badRequest("prompt", "Token id is out of vocabulary (parameter=prompt)")
		}
		return [][]int32{ids}, nil
	}
	var out [][]int32
	for _, part := range parts {
		one, bad := v.prompts(part)
		if bad != nil {
			return nil, bad
		}
		out = append(out, one...)
	}
	return out, nil
}

// textAnswers writes completions answers, whole and streamed.
type textAnswers struct {
	*answer
	prompts [][]int32 // by choice
}

func (a textAnswers) appendWhole(dst []byte) []byte {
	dst = a.appendHead(dst, "text_completion")
	for i, g := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = a.appendText(dst, g, 0, len(g.ids))
		dst = append(dst, ',')
		dst = a.appendFinish(dst, g)
		dst = append(dst, `,"token_ids":`...)
		dst = a.appendTokenIDs(dst, g, 0, len(g.ids))
		dst = append(dst, `,"prompt_logprobs":null,"prompt_token_ids":`...)
		dst = a.appendPromptIDs(dst, a.prompts[i])
		dst = append(dst, `,"routed_experts":null}`...)
	}
	dst = append(dst, `],"service_tier":null,`+fingerprint+`,"usage":`...)
	dst = a.appendCounts(dst)
	return append(dst, `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
}

// appendText appends the beginning of a choice: its index, text and logprobs.
func (a textAnswers) appendText(dst []byte, g *generation, from, to int) []byte {
	dst = appendInt(dst, `{"index":`, g.index)
	dst = append(dst, `,"text":`...)
	dst = appendString(dst, g.text[g.shown(from):g.shown(to)])
	dst = append(dst, `,"logprobs":`...)
	return a.appendColumns(dst, g, from, to)
}

func (a textAnswers) first(dst []byte, _ *generation) []byte { return dst }

// chunk follows vLLM's source, not a recording: every field is there, the prompt's ids on a choice's first chunk.
func (a textAnswers) chunk(dst []byte, g *generation, from, to int) []byte {
	dst = a.appendHead(dst, "text_completion")
	dst = a.appendText(dst, g, from, to)
	dst = append(dst, ',')
	if to == len(g.ids) {
		dst = a.appendFinish(dst, g)
	} else {
		dst = append(dst, `"finish_reason":null,"stop_reason":null`...)
	}
	dst = append(dst, `,"prompt_token_ids":`...)
	if from == 0 {
		dst = a.appendPromptIDs(dst, a.prompts[g.index])
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"token_ids":`...)
	dst = a.appendTokenIDs(dst, g, from, to)
	return append(dst, `}],"usage":null}`...)
}

func (a textAnswers) usage(dst []byte) []byte {
	dst = a.appendHead(dst, "text_completion")
	dst = append(dst, `],"usage":`...)
	return append(a.appendCounts(dst), '}')
}

func (a textAnswers) appendCounts(dst []byte) []byte {
	completion, _ := a.totals()
	prompt := 0
	for i := 0; i < len(a.prompts); i += a.req.N { // the choices of one prompt count it once
		prompt += len(a.prompts[i])
	}
	return a.appendUsage(dst, prompt, completion,
		`"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null`)
}

// appendColumns appends the logprobs of the ids [from, to) as completions spells them: one list per column.
func (a textAnswers) appendColumns(dst []byte, g *generation, from, to int) []byte {
	if !a.req.logprobs || a.fault.Kind == FaultMissingLogprobs {
		return append(dst, "null"...)
	}
	if a.fault.Kind == FaultShortLogprobs && to == len(g.ids) && to > from {
		to--
	}
	column := func(key string, cell func(i int)) {
		dst = append(dst, key...)
		for i := from; i < to; i++ {
			if i > from {
				dst = append(dst, ',')
			}
			cell(i)
		}
		dst = append(dst, ']')
	}
	column(`{"text_offset":[`, func(i int) { dst = appendInt(dst, "", g.limitAt(i)) })
	column(`,"token_logprobs":[`, func(i int) {
		dst = a.fault.appendLogprob(dst, a.sampler.at(i, g.variant).sampled(), i == len(g.ids)-1)
	})
	column(`,"tokens":[`, func(i int) {
		label := g.ids[i]
		if a.fault.Kind == FaultWrongLabel && i == len(g.ids)-1 {
			label++
		}
		dst = a.appendToken(dst, label, g.row(i))
	})
	column(`,"top_logprobs":[`, func(i int) {
		p := a.sampler.at(i, g.variant)
		dst = append(dst, '{')
		dst = a.appendToken(dst, g.ids[i], g.row(i))
		dst = append(dst, ':')
		dst = appendLogprob(dst, p.sampled())
		a.sampler.alternatives(p, g.ids[i], a.req.topLogprobs, func(id int32, logprob float64) {
			dst = append(dst, ',')
			dst = a.appendToken(dst, id, a.loneText(id))
			dst = append(dst, ':')
			dst = appendLogprob(dst, logprob)
		})
		dst = append(dst, '}')
	})
	return append(dst, '}')
}
