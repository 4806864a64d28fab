package fakeengine

import "strconv"

// sglangAnswer writes chat answers.
type sglangAnswer struct {
	*answer
	old bool
}

func (a sglangAnswer) appendWhole(dst []byte) []byte {
	dst = a.appendHead(dst, "chat.completion")
	for i, g := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, `{"index":`, g.index)
		content, reasoning, calls := g.parts(g.appendWholeCall)
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		if len(content) == 0 && calls != nil {
			dst = append(dst, "null"...)
		} else {
			dst = appendString(dst, content)
		}
		dst = appendStringOrNull(append(dst, `,"reasoning_content":`...), string(reasoning))
		dst = append(dst, `,"tool_calls":`...)
		if calls == nil {
			dst = append(dst, "null"...)
		} else {
			dst = append(append(append(dst, '['), calls...), ']')
		}
		dst = append(dst, `},"logprobs":`...)
		dst = a.appendRows(dst, g, 0, len(g.ids))
		dst = a.appendEnd(append(dst, ','), g)
		if a.req.flag("return_prompt_token_ids") || a.req.returnIDs {
			dst = append(dst, `,"prompt_token_ids":`...)
			dst = a.appendPrompt(dst)
		}
		if a.req.returnIDs {
			dst = append(dst, `,"response_token_ids":`...)
			dst = a.appendTokenIDs(dst, g, 0, len(g.ids))
		}
		if a.req.flag("return_meta_info") {
			dst = a.appendMetaInfo(append(dst, `,"meta_info":`...), g)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `],"usage":`...)
	dst = a.appendCounts(dst)
	dst = append(dst, `,"metadata":{"weight_version":"`+weightVersion+`"}`...)
	if ext := a.appendExt(nil); ext != nil {
		dst = append(append(dst, ','), ext...)
	}
	return append(dst, '}')
}

func (a sglangAnswer) appendPrompt(dst []byte) []byte {
	if a.fault.Kind == FaultMissingPromptIDs {
		return append(dst, "null"...)
	}
	return appendIDs(dst, a.prompt)
}

func (a sglangAnswer) appendCounts(dst []byte) []byte {
	completion, reasoning := a.totals()
	return a.appendUsage(dst, len(a.prompt), completion, `"prompt_tokens_details":null,"reasoning_tokens":`+strconv.Itoa(reasoning))
}

// appendEnd appends the finish reason and what made it: the id that ended the answer, or the stop string.
func (a sglangAnswer) appendEnd(dst []byte, g *generation) []byte {
	dst = append(dst, `"finish_reason":`...)
	dst = appendString(dst, a.finishReason(g))
	dst = append(dst, `,"matched_stop":`...)
	if g.stopReason == "" && g.ids[len(g.ids)-1] == idEnd {
		return strconv.AppendInt(dst, int64(idEnd), 10)
	}
	return appendStringOrNull(dst, g.stopReason)
}

// appendMetaInfo appends what the older versions give instead of ids: rows of logprob, id and text, where logprobs were
// asked for.
func (a sglangAnswer) appendMetaInfo(dst []byte, g *generation) []byte {
	dst = appendString(append(dst, `{"id":`...), a.id)
	dst = append(dst, `,"finish_reason":{"type":`...)
	dst = appendString(dst, g.finish)
	dst = appendInt(dst, `},"prompt_tokens":`, len(a.prompt))
	dst = append(dst, `,"weight_version":"`+weightVersion+`","total_retractions":0`...)
	dst = appendInt(dst, `,"completion_tokens":`, len(g.ids))
	dst = append(dst, `,"cached_tokens":0,"e2e_latency":0.01`...)
	if a.req.logprobs && a.fault.Kind != FaultMissingLogprobs && a.fault.Kind != FaultMissingIDs {
		n := len(g.ids)
		if a.fault.Kind == FaultShortLogprobs || a.fault.Kind == FaultShortIDs {
			n--
		}
		dst = append(dst, `,"output_token_logprobs":[`...)
		for i := range n {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = a.fault.appendLogprob(append(dst, '['), a.sampler.at(i, g.variant).sampled(), i == len(g.ids)-1)
			dst = appendInt(dst, ",", int(g.ids[i]))
			dst = append(dst, ",null]"...)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendExt appends the member sglext, or nothing where it was not asked for or is not known yet.
func (a sglangAnswer) appendExt(dst []byte) []byte {
	in, out := a.req.flag("return_input_ids_in_sglext"), a.req.flag("return_output_ids_in_sglext")
	if a.old || !in && !out {
		return dst
	}
	dst = append(dst, `"sglext":{`...)
	if in {
		dst = a.appendPrompt(append(dst, `"input_ids":`...))
	}
	if out {
		if in {
			dst = append(dst, ',')
		}
		dst = append(dst, `"output_ids":`...)
		if a.fault.Kind == FaultMissingIDs {
			return append(dst, "null}"...)
		}
		dst = append(dst, '[')
		for i, g := range a.choices {
			if i > 0 {
				dst = append(dst, ',')
			}
			n := len(g.ids)
			if a.fault.Kind == FaultShortIDs {
				n--
			}
			dst = appendIDs(dst, g.ids[:n])
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}
