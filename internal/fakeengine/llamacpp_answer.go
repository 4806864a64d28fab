package fakeengine

import "strconv"

// llamaAnswer writes chat answers.
type llamaAnswer struct{ *answer }

// llamaTimings sits on every answer; nobody should read anything into it.
const llamaTimings = `"timings":{"cache_n":0,"prompt_n":1,"prompt_ms":1.5,"prompt_per_token_ms":1.5,"prompt_per_second":666.6,` +
	`"predicted_n":1,"predicted_ms":1.5,"predicted_per_token_ms":1.5,"predicted_per_second":666.6}`

func (a llamaAnswer) appendWhole(dst []byte) []byte {
	dst = append(dst, `{"choices":[`...)
	for i, g := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"finish_reason":`...), a.finishReason(g))
		dst = appendInt(dst, `,"index":`, g.index)
		content, reasoning, calls := g.parts(g.appendLlamaCall)
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		dst = appendString(dst, content)
		if len(reasoning) > 0 {
			dst = appendString(append(dst, `,"reasoning_content":`...), reasoning)
		}
		if calls != nil {
			dst = append(append(append(dst, `,"tool_calls":[`...), calls...), ']')
		}
		dst = append(dst, '}')
		if a.showsRows() {
			dst = append(dst, `,"logprobs":{"content":`...)
			dst = append(a.appendLlamaRows(dst, g, 0, len(g.ids), true), '}')
		}
		dst = append(dst, '}')
	}
	dst = a.appendLlamaHead(append(dst, ']'), "chat.completion", true)
	dst = appendString(append(dst, `,"id":`...), a.id)
	if a.req.flag("verbose") {
		dst = append(dst, `,"__verbose":`...)
		dst = a.appendVerbose(dst, a.choices[0], a.req.flag("return_tokens"))
	}
	return append(dst, `,`+llamaTimings+`}`...)
}

// showsRows says whether logprob rows are given: none for zero alternatives.
func (a llamaAnswer) showsRows() bool {
	return a.req.logprobs && a.req.topLogprobs > 0 && a.fault.Kind != FaultMissingLogprobs
}

func (g *generation) appendLlamaCall(dst []byte, s span) []byte {
	dst = appendString(append(dst, `{"type":"function","function":{"name":`...), s.name)
	dst = appendString(append(dst, `,"arguments":`...), g.text[s.argsFrom:s.argsTo])
	return append(appendString(append(dst, `},"id":`...), s.id), '}')
}

// appendLlamaHead appends what follows the choices. A whole answer has its usage there, of one choice.
func (a llamaAnswer) appendLlamaHead(dst []byte, object string, usage bool) []byte {
	dst = append(dst, `,"created":`...)
	dst = strconv.AppendInt(dst, a.created, 10)
	if !usage {
		dst = appendString(append(dst, `,"id":`...), a.id)
	}
	dst = appendString(append(dst, `,"model":`...), a.model)
	dst = append(dst, `,"system_fingerprint":"b0-unknown","object":"`+object+`"`...)
	if usage {
		dst = a.appendLlamaUsage(append(dst, `,"usage":`...))
	}
	return dst
}

func (a llamaAnswer) appendLlamaUsage(dst []byte) []byte {
	completion := len(a.choices[0].ids)
	switch a.fault.Kind {
	case FaultNoUsage:
		return append(dst, "null"...)
	case FaultWrongUsage:
		completion++
	}
	dst = appendInt(dst, `{"completion_tokens":`, completion)
	dst = appendInt(dst, `,"prompt_tokens":`, len(a.prompt))
	dst = appendInt(dst, `,"total_tokens":`, len(a.prompt)+completion)
	return append(dst, `,"prompt_tokens_details":{"cached_tokens":0}}`...)
}

// rowed says whether an id has a row: where it ends a character that is shown, or the answer.
func (g *generation) rowed(i int) bool {
	return g.ids[i] == idEnd || g.ends[i] > g.limitAt(i) && g.ends[i] <= g.limit
}

// appendLlamaRows appends the rows of the ids [from, to); a stream leaves out that of the end.
func (a llamaAnswer) appendLlamaRows(dst []byte, g *generation, from, to int, end bool) []byte {
	if a.fault.Kind == FaultShortLogprobs && to == len(g.ids) && to > from {
		to--
	}
	dst = append(dst, '[')
	empty := true
	for i := from; i < to; i++ {
		if !g.rowed(i) || !end && g.ids[i] == idEnd {
			continue
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = a.appendLlamaCell(dst, int(g.ids[i]), g.llamaText(i))
		dst = a.fault.appendLogprob(dst, a.sampler.at(i, g.variant).sampled(), i == len(g.ids)-1)
		dst = append(dst, `,"top_logprobs":[`...)
		n := 0
		a.best(g, i, a.req.topLogprobs, func(id int32, text []byte, logprob float64) {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			if id == idEnd {
				text = nil
			}
			dst = a.appendLlamaCell(dst, int(id), text)
			dst = append(appendLogprob(dst, logprob), '}')
		})
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

func (a llamaAnswer) appendLlamaCell(dst []byte, id int, text []byte) []byte {
	dst = appendInt(dst, `{"id":`, id)
	dst = appendString(append(dst, `,"token":`...), text)
	dst = appendByteValues(append(dst, `,"bytes":`...), text)
	return append(dst, `,"logprob":`...)
}

// llamaText is the text of an id's row; the end has none.
func (g *generation) llamaText(i int) []byte {
	if g.ids[i] == idEnd {
		return nil
	}
	return g.row(i)
}

// appendVerbose appends what a choice really was. Streams have it without the ids.
func (a llamaAnswer) appendVerbose(dst []byte, g *generation, ids bool) []byte {
	dst = append(dst, `{"index":0,"content":`...)
	if ids || !a.req.Stream {
		dst = appendString(dst, g.text[:g.limit])
	} else {
		dst = append(dst, `""`...)
	}
	dst = append(dst, `,"tokens":`...)
	sampled := g.ids
	switch {
	case !ids || a.fault.Kind == FaultMissingIDs:
		sampled = nil
	case a.fault.Kind == FaultShortIDs:
		sampled = sampled[:len(sampled)-1]
	}
	dst = appendIDs(dst, sampled)
	dst = appendString(append(dst, `,"id_slot":0,"stop":true,"model":`...), a.model)
	dst = appendInt(dst, `,"tokens_predicted":`, len(g.ids))
	dst = appendInt(dst, `,"tokens_evaluated":`, len(a.prompt))
	dst = append(dst, `,"generation_settings":`+llamaSettings+`,"prompt":`...)
	dst = appendString(dst, a.vocab.decode(a.prompt))
	dst = append(dst, `,"has_new_line":false,"truncated":false,"stop_type":"`...)
	switch {
	case g.stopReason != "":
		dst = append(dst, `word`...)
	case g.finish == "length":
		dst = append(dst, `limit`...)
	default:
		dst = append(dst, `eos`...)
	}
	dst = appendString(append(dst, `","stopping_word":`...), g.stopReason)
	dst = appendInt(dst, `,"tokens_cached":`, len(a.prompt)+len(g.ids)-1)
	dst = append(dst, `,`+llamaTimings...)
	if a.showsRows() && !a.req.Stream {
		dst = append(dst, `,"completion_probabilities":`...)
		dst = a.appendLlamaRows(dst, g, 0, len(g.ids), true)
	}
	return append(dst, '}')
}

// llamaChunks writes the events of a chat stream: rows come with text only.
type llamaChunks struct{ llamaAnswer }

func (a llamaChunks) first(dst []byte, g *generation) []byte {
	return append(a.appendEvent(dst, g, "null", `{"role":"assistant","content":null}`, nil), '}')
}

func (a llamaChunks) appendEvent(dst []byte, g *generation, finish, delta string, rows []byte) []byte {
	dst = append(dst, `{"choices":[{"finish_reason":`+finish...)
	dst = appendInt(dst, `,"index":`, g.index)
	dst = append(dst, `,"delta":`+delta...)
	if rows != nil {
		dst = append(append(append(dst, `,"logprobs":{"content":`...), rows...), '}')
	}
	return a.appendLlamaHead(append(dst, "}]"...), "chat.completion.chunk", false)
}

func (a llamaChunks) chunk(dst []byte, g *generation, from, to int) []byte {
	delta := a.appendDelta(nil, g, g.shown(from), g.shown(to))
	if delta == nil {
		return dst
	}
	var rows []byte
	if a.showsRows() {
		rows = a.appendLlamaRows(nil, g, from, to, false)
	}
	return append(a.appendEvent(dst, g, "null", string(delta), rows), '}')
}

func (a llamaChunks) appendDelta(dst []byte, g *generation, from, to int) []byte {
	for _, s := range g.spans {
		if s.from >= to || from >= s.to {
			continue
		}
		text := g.text[max(from, s.from):min(to, s.to)]
		switch s.kind {
		case kindContent:
			return append(appendString(append(dst, `{"content":`...), text), '}')
		case kindReasoning:
			return append(appendString(append(dst, `{"reasoning_content":`...), text), '}')
		case kindCall:
			named, args := s.shows(from, to)
			if !named && !args {
				continue
			}
			dst = appendInt(append(dst, `{"tool_calls":[`...), `{"index":`, s.index)
			if named {
				dst = append(appendString(append(dst, `,"id":`...), s.id), `,"type":"function","function":{"name":`...)
				dst = append(appendString(dst, s.name), ',')
			} else {
				dst = append(dst, `,"function":{`...)
			}
			text = nil
			if args {
				text = g.text[max(from, s.argsFrom):min(to, s.argsTo)]
			}
			return append(appendString(append(dst, `"arguments":`...), text), "}}]}"...)
		}
	}
	return dst
}

// tail appends the finish of every choice. The last one has the timings, unless a usage chunk follows.
func (a llamaChunks) tail(dst []byte) []byte {
	for i, g := range a.choices {
		dst = a.appendEvent(append(dst, "data: "...), g, strconv.Quote(a.finishReason(g)), "{}", nil)
		if a.req.flag("verbose") {
			dst = a.appendVerbose(append(dst, `,"__verbose":`...), g, false)
		}
		if !a.req.usage && i == len(a.choices)-1 {
			dst = append(dst, `,`+llamaTimings...)
		}
		dst = append(dst, "}\n\n"...)
	}
	return dst
}

func (a llamaChunks) usage(dst []byte) []byte {
	dst = a.appendLlamaHead(append(dst, `{"choices":[]`...), "chat.completion.chunk", false)
	dst = a.appendLlamaUsage(append(dst, `,"usage":`...))
	return append(dst, `,`+llamaTimings+`}`...)
}

// llamaSettings is what __verbose says of the sampler; its defaults.
const llamaSettings = `{"seed":4294967295,"temperature":1.0,"dynatemp_range":0.0,"dynatemp_exponent":1.0,"top_k":40,"top_p":0.949999988079071,` +
	`"min_p":0.05000000074505806,"top_n_sigma":-1.0,"xtc_probability":0.0,"xtc_threshold":0.10000000149011612,"typical_p":1.0,` +
	`"repeat_last_n":64,"repeat_penalty":1.0,"presence_penalty":0.0,"frequency_penalty":0.0,"dry_multiplier":0.0,"dry_base":1.75,` +
	`"dry_allowed_length":2,"dry_penalty_last_n":64,"dry_sequence_breakers":["\n",":","\"","*"],"mirostat":0,"mirostat_tau":5.0,` +
	`"mirostat_eta":0.10000000149011612,"adaptive_target":-1.0,"adaptive_decay":0.8999999761581421,"stop":[],"max_tokens":-1,"n_predict":-1,` +
	`"n_keep":0,"n_discard":0,"ignore_eos":false,"stream":false,"logit_bias":[],"n_probs":1,"min_keep":0,"grammar":"","grammar_lazy":false,` +
	`"grammar_triggers":[],"preserved_tokens":[],"chat_format":"peg-native","reasoning_format":"deepseek","reasoning_in_content":false,` +
	`"generation_prompt":"<|im_start|>assistant\n","samplers":["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc",` +
	`"temperature"],"speculative.types":"none","timings_per_token":false,"post_sampling_probs":false,"backend_sampling":false,"lora":[]}`
