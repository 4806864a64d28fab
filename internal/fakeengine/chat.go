package fakeengine

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// chat answers POST /v1/chat/completions.
func (e *Engine) chat(c *call) {
	form := &e.wire.chat
	req, bad := form.parse(c.r, c.body)
	if bad == nil {
		bad = form.check(e, req)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	if !e.beginFault(c, req) {
		return
	}
	prompt, bad := e.forcedPrompt(req)
	if bad != nil {
		c.fail(bad)
		return
	}
	if prompt == nil {
		prompt = form.prompt(c.vocab, req)
	}
	room, bad := form.room(e, req, len(prompt))
	if bad != nil {
		c.fail(bad)
		return
	}
	if form.late != nil {
		if late := form.late(e, req); late != nil {
			c.failLate(late, req.Stream)
			return
		}
	}
	a := e.sampled(c, req, form.prefix, prompt, room)
	if req.Stream && c.fault.Kind != FaultJSONAnswer {
		e.stream(a, form.stream(a))
		return
	}
	if !e.wait(c, e.opts.FirstToken+time.Duration(a.longest())*e.opts.PerToken) {
		return
	}
	c.whole(form.whole(a, make([]byte, 0, 1024+160*a.longest()*req.N+8*len(prompt))))
}

// sampled samples the choices of an answer and remembers them.
func (e *Engine) sampled(c *call, req *Request, prefix string, prompt []int32, room int) *answer {
	a := e.answer(c, req, prefix, prompt)
	for i := range req.N {
		g := &generation{index: i, variant: e.variant(req, i)}
		g.named = req.toolChoice.Get("function").Exists()
		c.vocab.generate(g, e.opts.Odd.sampled(e.script(req, g.variant)))
		e.opts.Odd.misfile(g)
		g.cut(room, req.stop, req.includeStop)
		a.choices = append(a.choices, g)
	}
	e.remember(a, nil)
	return a
}

// answer starts an answer to a request.
func (e *Engine) answer(c *call, req *Request, prefix string, prompt []int32) *answer {
	a := &answer{
		call: c, req: req, created: time.Now().Unix(), model: e.opts.Model, prompt: prompt, forced: req.forced != nil,
		id: answerID(prefix, c, rand.Uint64()), labels: e.opts.TokenLabels, sampler: e.sampler(c.vocab, req, prompt),
	}
	if req.labels != nil {
		a.labels = *req.labels
	}
	return a
}

// variant tells the samples of one prompt apart; greedy sampling has but one.
func (e *Engine) variant(req *Request, choice int) uint64 {
	switch {
	case req.Temperature == 0:
		return 0
	case req.Seed != nil:
		return mix(uint64(*req.Seed)) + uint64(choice)
	}
	return e.samples.Add(1)
}

// longest is the length of the longest choice in ids.
func (a *answer) longest() int {
	n := 0
	for _, g := range a.choices {
		n = max(n, len(g.ids))
	}
	return n
}

// remember keeps what was truly sampled.
func (e *Engine) remember(a *answer, prompts [][]int32) {
	t := truth{Truth: Truth{Prompt: a.prompt, Prompts: prompts, Sampled: make([][]int32, len(a.choices))}, sampler: a.sampler}
	for i, g := range a.choices {
		t.Sampled[i] = g.ids
		t.variants = append(t.variants, g.variant)
	}
	e.journal.setTruth(a.id, t)
}

// failLate refuses a request that the API let through and the engine did not: a stream has said 200 by then.
func (c *call) failLate(bad *apiError, stream bool) {
	if !stream {
		c.fail(bad)
		return
	}
	c.setHeader("Content-Type", "text/event-stream; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	body := c.spell([]byte("data: "), bad, true)
	if _, err := c.w.Write(append(body, "\n\ndata: [DONE]\n\n"...)); err != nil {
		c.gone = true
	}
}

// appendChat appends a whole answer.
func (a *answer) appendChat(dst []byte) []byte {
	dst = a.appendHead(dst, "chat.completion")
	for i, g := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, `{"index":`, g.index)
		dst = append(dst, `,"message":`...)
		dst = a.appendMessage(dst, g)
		dst = append(dst, `,"logprobs":`...)
		dst = a.appendRows(dst, g, 0, len(g.ids))
		dst = append(dst, ',')
		dst = a.appendFinish(dst, g)
		dst = append(dst, `,"token_ids":`...)
		dst = a.appendTokenIDs(dst, g, 0, len(g.ids))
		dst = append(dst, `,"routed_experts":null}`...)
	}
	completion, reasoning := a.totals()
	dst = append(dst, `],"service_tier":null,`+fingerprint+`,"usage":`...)
	dst = a.appendUsage(dst, len(a.prompt), completion,
		`"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0,"multimodal_tokens":null},`+reasoningDetails(reasoning))
	dst = append(dst, `,"prompt_logprobs":null,"prompt_token_ids":`...)
	dst = a.appendPromptIDs(dst, a.prompt)
	dst = append(dst, `,"prompt_text":`...)
	dst = a.appendPromptText(dst)
	return append(dst, `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`...)
}

// parts are the fields of a whole answer's message. A call that was cut off is raw text: vLLM's parser gives up on it.
func (g *generation) parts(call func(dst []byte, s span) []byte) (content, reasoning, calls []byte) {
	for _, s := range g.spans {
		from, to := min(s.from, g.limit), min(s.to, g.limit)
		switch {
		case s.kind == kindReasoning:
			reasoning = append(reasoning, g.text[from:to]...)
		case s.kind == kindContent:
			content = append(content, g.text[from:to]...)
		case s.kind == kindCall && g.whole():
			if calls != nil {
				calls = append(calls, ',')
			}
			calls = call(calls, s)
		case s.kind == kindCall || s.kind == kindGlue && !g.whole():
			content = append(content, g.text[from:to]...)
		}
	}
	return content, reasoning, calls
}

// appendWholeCall appends a tool call of a whole answer.
func (g *generation) appendWholeCall(dst []byte, s span) []byte {
	dst = append(dst, `{"id":"`...)
	dst = append(dst, s.id...)
	dst = append(dst, `","type":"function","function":{"name":`...)
	dst = appendString(dst, s.name)
	dst = append(dst, `,"arguments":`...)
	dst = appendString(dst, g.text[s.argsFrom:s.argsTo])
	return append(dst, "}}"...)
}

// appendMessage appends the message of a whole answer.
func (a *answer) appendMessage(dst []byte, g *generation) []byte {
	content, reasoning, calls := g.parts(g.appendWholeCall)
	dst = append(dst, `{"role":"assistant","content":`...)
	if len(content) == 0 && !g.named && !a.forcedCall() {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, content)
	}
	dst = append(dst, `,"refusal":null,"annotations":null,"audio":null,"function_call":null`...)
	if calls != nil {
		dst = append(dst, `,"tool_calls":[`...)
		dst = append(dst, calls...)
		dst = append(dst, ']')
	}
	dst = append(dst, `,"`+a.wire.reasoning+`":`...)
	if len(reasoning) == 0 || a.req.noReasoning {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, reasoning)
	}
	return append(dst, '}')
}

// forcedCall says that the request forced some tool call.
func (a *answer) forcedCall() bool { return a.req.toolChoice.String() == "required" }

// whole says that no tool call was cut off.
func (g *generation) whole() bool {
	for _, s := range g.spans {
		if s.kind == kindCall && s.to > g.limit {
			return false
		}
	}
	return true
}

// whole sends a whole answer, as a fault would have it.
func (c *call) whole(body []byte) {
	switch c.fault.Kind {
	case FaultCut:
		c.setHeader("Content-Type", "application/json")
		c.setHeader("Content-Length", strconv.Itoa(len(body)))
		if _, err := c.w.Write(body[:len(body)/2]); err != nil {
			c.gone = true
			return
		}
		c.reset()
	case FaultGzip:
		c.setHeader("Content-Encoding", "gzip")
		c.json(http.StatusOK, gzipped(body))
	default:
		c.json(http.StatusOK, body)
	}
}
