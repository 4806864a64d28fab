package fakeengine

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// answer is a call that is being answered: what its choices share.
type answer struct {
	*call
	req     *Request
	id      string
	created int64
	model   string
	prompt  []int32
	forced  bool
	choices []*generation
	sampler sampler
	labels  bool // spell tokens as token_id:N
}

// hidden says that ids and logprobs are withheld: vLLM's parsers lose track of them without reasoning.
func (a *answer) hidden() bool { return a.req.noReasoning }

func (a *answer) showsIDs() bool { return a.req.returnIDs && !a.hidden() }

func (a *answer) showsLogprobs() bool { return a.req.logprobs && !a.hidden() }

// appendTokenIDs appends the ids [from, to) of a choice, or null.
func (a *answer) appendTokenIDs(dst []byte, g *generation, from, to int) []byte {
	if !a.showsIDs() || a.fault.Kind == FaultMissingIDs {
		return append(dst, "null"...)
	}
	if a.fault.Kind == FaultShortIDs && to == len(g.ids) && to > from {
		to--
	}
	return appendIDs(dst, g.ids[from:to])
}

// appendPromptIDs appends the ids of a prompt, or null. They are shown whatever the parsers do.
func (a *answer) appendPromptIDs(dst []byte, prompt []int32) []byte {
	if !a.req.returnIDs || a.fault.Kind == FaultMissingPromptIDs {
		return append(dst, "null"...)
	}
	return appendIDs(dst, prompt)
}

// appendRows appends the logprobs object of the ids [from, to) of a choice, or null.
func (a *answer) appendRows(dst []byte, g *generation, from, to int) []byte {
	if !a.showsLogprobs() || a.fault.Kind == FaultMissingLogprobs {
		return append(dst, "null"...)
	}
	if a.fault.Kind == FaultShortLogprobs && to == len(g.ids) && to > from {
		to--
	}
	dst = append(dst, `{"content":[`...)
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = a.appendRow(dst, g, i)
	}
	return append(dst, "]}"...)
}

func (a *answer) appendRow(dst []byte, g *generation, i int) []byte {
	id, text, p := g.ids[i], g.row(i), a.sampler.at(i, g.variant)
	label := id
	if a.fault.Kind == FaultWrongLabel && i == len(g.ids)-1 {
		label++
	}
	dst = append(dst, `{"token":`...)
	dst = a.appendToken(dst, label, text)
	dst = append(dst, `,"logprob":`...)
	dst = a.fault.appendLogprob(dst, p.sampled(), i == len(g.ids)-1)
	dst = append(dst, `,"bytes":`...)
	dst = appendByteValues(dst, text)
	dst = append(dst, `,"top_logprobs":[`...)
	if k := a.req.topLogprobs; k > 0 && a.wire.bestFirst {
		n := 0
		a.best(g, i, k, func(alt int32, spelled []byte, logprob float64) {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = a.appendTop(dst, alt, spelled, logprob)
		})
	} else if k > 0 {
		dst = a.appendTop(dst, id, text, p.sampled())
		a.sampler.alternatives(p, id, k, func(alt int32, logprob float64) {
			dst = append(dst, ',')
			dst = a.appendTop(dst, alt, a.loneText(alt), logprob)
		})
	}
	return append(dst, "]}"...)
}

// best calls f with the k best tokens at the place of id i, best first.
func (a *answer) best(g *generation, i, k int, f func(id int32, text []byte, logprob float64)) {
	id, p, n := g.ids[i], a.sampler.at(i, g.variant), 0
	each := func(alt int32, text []byte, logprob float64) {
		if n++; n <= k {
			f(alt, text, logprob)
		}
	}
	if !p.second {
		each(id, g.row(i), p.sampled())
	}
	a.sampler.alternatives(p, id, k+1, func(alt int32, logprob float64) {
		each(alt, a.loneText(alt), logprob)
		if p.second && n == 1 {
			each(id, g.row(i), p.sampled())
		}
	})
}

// appendTop appends one entry of top_logprobs. Its bytes are those of the token as spelled, token_id:N included; that is
// vLLM's doing.
func (a *answer) appendTop(dst []byte, id int32, text []byte, logprob float64) []byte {
	if a.labels {
		text = strconv.AppendInt([]byte("token_id:"), int64(id), 10)
	}
	dst = append(dst, `{"token":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, logprob)
	dst = append(dst, `,"bytes":`...)
	dst = appendByteValues(dst, text)
	return append(dst, '}')
}

func (a *answer) appendToken(dst []byte, id int32, text []byte) []byte {
	if a.labels {
		dst = append(dst, `"token_id:`...)
		dst = strconv.AppendInt(dst, int64(id), 10)
		return append(dst, '"')
	}
	return appendString(dst, text)
}

// loneText is the text of a token that nothing surrounds: "" where it is no whole character.
func (a *answer) loneText(id int32) []byte {
	s, _ := a.vocab.token(id) // alternatives are drawn from the vocabulary
	if !utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// appendUsage appends the counts. Whole answers, streams and completions differ in the details they give.
func (a *answer) appendUsage(dst []byte, prompt, completion int, details string) []byte {
	switch a.fault.Kind {
	case FaultNoUsage:
		return append(dst, "null"...)
	case FaultWrongUsage:
		completion++
	}
	dst = appendInt(dst, `{"prompt_tokens":`, prompt)
	dst = appendInt(dst, `,"total_tokens":`, prompt+completion)
	dst = appendInt(dst, `,"completion_tokens":`, completion)
	if details != "" {
		dst = append(dst, ',')
		dst = append(dst, details...)
	}
	return append(dst, '}')
}

// totals counts the ids of all choices.
func (a *answer) totals() (completion, reasoning int) {
	for _, g := range a.choices {
		completion += len(g.ids)
		reasoning += g.reasoning
	}
	return completion, reasoning
}

func reasoningDetails(reasoning int) string {
	return `"completion_tokens_details":{"reasoning_tokens":` + strconv.Itoa(reasoning) + `}`
}

// finishReason is the reason as a fault would have it.
func (a *answer) finishReason(g *generation) string {
	switch a.fault.Kind {
	case FaultAbort:
		return "abort"
	case FaultContentFilter:
		return "content_filter"
	}
	return g.finish
}

// appendFinish appends finish_reason and stop_reason.
func (a *answer) appendFinish(dst []byte, g *generation) []byte {
	dst = append(dst, `"finish_reason":`...)
	dst = appendString(dst, a.finishReason(g))
	dst = append(dst, `,"stop_reason":`...)
	if g.stopReason == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, g.stopReason)
}

// appendHead appends the members with which every answer and chunk begins.
func (a *answer) appendHead(dst []byte, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, a.id)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, a.model)
	return append(dst, `,"choices":[`...)
}

// promptText is the prompt spelled out, where it was asked for and rendered from messages.
func (a *answer) appendPromptText(dst []byte) []byte {
	if !a.req.returnText || a.forced {
		return append(dst, "null"...)
	}
	return appendString(dst, a.vocab.decode(a.prompt))
}

// fingerprint names the build, as vLLM does.
const fingerprint = `"system_fingerprint":"vllm-0.32.0-4c2268e4"`

// answerID takes over the caller's request id.
func answerID(prefix string, c *call, random uint64) string {
	if id := c.r.Header.Get("X-Request-Id"); id != "" && !strings.ContainsAny(id, "\"\\\r\n") {
		return prefix + id
	}
	return string(appendHex([]byte(prefix), random))
}
