package fakeengine

import "strconv"

// hostedStyle is where hosted chat endpoints differ from one another.
type hostedStyle struct {
	reasoning string // the field that thoughts come in, "" for a model that hides them
	rows      rowStyle
	callID    string // with which the ids of calls begin
}

// rowStyle says what a hosted endpoint gives beside the text.
type rowStyle uint8

const (
	noRows        rowStyle = iota
	contentRows            // OpenAI: one for every token of visible text
	fireworksRows          // one for every id, and the ids in the choice
	togetherRows           // columns of ids, tokens and logprobs
)

// hosted writes chat answers in the style of OpenAI.
type hosted struct {
	*answer
	style hostedStyle
}

func hostedForm(style hostedStyle) chatForm {
	return chatForm{
		prefix: "chatcmpl-",
		parse:  parseLenient,
		check:  checkMessages,
		prompt: promptOf,
		room:   roomHosted,
		whole:  func(a *answer, dst []byte) []byte { return hosted{a, style}.appendWhole(dst) },
		stream: func(a *answer) chunks { return hostedChunks{hosted{a, style}} },
	}
}

func roomHosted(e *Engine, req *Request, prompt int) (int, *apiError) {
	return roomClamped(e, req, prompt, func() *apiError {
		return &apiError{
			Status: 400, Type: "invalid_request_error", Param: "messages", Code: "context_length_exceeded",
			Message: "This model's maximum context length is " + strconv.Itoa(e.opts.MaxModelLen) + " tokens. However, your messages resulted in " +
				strconv.Itoa(prompt) + " tokens. Please reduce the length of the messages.",
		}
	})
}

func (a hosted) appendWhole(dst []byte) []byte {
	dst = a.appendHead(dst, "chat.completion")
	for i, g := range a.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		content, reasoning, calls := g.parts(func(dst []byte, s span) []byte {
			s.id = s.callID(a.style.callID)
			return g.appendWholeCall(dst, s)
		})
		dst = appendInt(dst, `{"index":`, g.index)
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		if len(content) == 0 && calls != nil {
			dst = append(dst, "null"...)
		} else {
			dst = appendString(dst, content)
		}
		if len(reasoning) > 0 && a.style.reasoning != "" {
			dst = appendString(append(dst, `,"`+a.style.reasoning+`":`...), reasoning)
		}
		if calls != nil {
			dst = append(append(append(dst, `,"tool_calls":[`...), calls...), ']')
		}
		dst = append(dst, `,"refusal":null,"annotations":[]},"logprobs":`...)
		dst = a.appendHostedRows(dst, g, 0, len(g.ids))
		dst = appendString(append(dst, `,"finish_reason":`...), a.finishReason(g))
		if a.style.rows == fireworksRows && a.req.returnIDs {
			dst = a.appendTokenIDs(append(dst, `,"token_ids":`...), g, 0, len(g.ids))
			dst = a.appendPromptIDs(append(dst, `,"prompt_token_ids":`...), a.prompt)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `],"usage":`...)
	return append(a.appendCounts(dst), `,"service_tier":"default","system_fingerprint":null}`...)
}

func (a hosted) appendCounts(dst []byte) []byte {
	completion, reasoning := a.totals()
	return a.appendUsage(dst, len(a.prompt), completion, `"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":`+strconv.Itoa(reasoning)+`,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}`)
}

// appendHostedRows appends the logprobs of the ids [from, to), or null.
func (a hosted) appendHostedRows(dst []byte, g *generation, from, to int) []byte {
	if !a.req.logprobs || a.style.rows == noRows || a.fault.Kind == FaultMissingLogprobs {
		return append(dst, "null"...)
	}
	if a.style.rows == togetherRows {
		return a.appendTogether(dst, g, from, to)
	}
	if a.fault.Kind == FaultShortLogprobs && to == len(g.ids) && to > from {
		to--
	}
	start := len(dst)
	dst = append(dst, `{"content":[`...)
	n := 0
	for i := from; i < to; i++ {
		if a.style.rows == contentRows && !g.inContent(i) {
			continue
		}
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = a.appendRow(dst, g, i)
		if a.style.rows == fireworksRows {
			dst = appendInt(dst[:len(dst)-1], `,"token_id":`, int(g.ids[i]))
			processed := a.sampler
			processed.temperature = max(a.req.Temperature, 0)
			if processed.greedy {
				processed.temperature = 1
			}
			dst = appendLogprob(append(dst, `,"sampling_logprob":`...), processed.at(i, g.variant).sampled())
			dst = append(dst, '}')
		}
	}
	if n == 0 {
		return append(dst[:start], "null"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// inContent says whether an id is a part of visible text.
func (g *generation) inContent(i int) bool {
	at := g.limitAt(i)
	for _, s := range g.spans {
		if s.kind == kindContent && s.from <= at && g.ends[i] <= s.to && g.ends[i] <= g.limit {
			return g.ids[i] != idEnd && at < s.to
		}
	}
	return false
}

// appendTogether appends the columns; the ids come whether they were asked for or not.
func (a hosted) appendTogether(dst []byte, g *generation, from, to int) []byte {
	rows, ids := to, to
	if last := to == len(g.ids) && to > from; last {
		switch a.fault.Kind {
		case FaultShortLogprobs:
			rows--
		case FaultShortIDs:
			ids--
		}
	}
	dst = append(dst, `{"token_ids":`...)
	if a.fault.Kind == FaultMissingIDs {
		dst = append(dst, "null"...)
	} else {
		dst = appendIDs(dst, g.ids[from:ids])
	}
	dst = append(dst, `,"tokens":[`...)
	for i := from; i < rows; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = a.appendToken(dst, g.ids[i], g.row(i))
	}
	dst = append(dst, `],"token_logprobs":[`...)
	for i := from; i < rows; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = a.fault.appendLogprob(dst, a.sampler.at(i, g.variant).sampled(), i == len(g.ids)-1)
	}
	dst = append(dst, `],"top_logprobs":[`...)
	for i := from; i < rows && a.req.topLogprobs > 0; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		n := 0
		dst = append(dst, '{')
		a.best(g, i, a.req.topLogprobs, func(id int32, text []byte, logprob float64) {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = append(a.appendToken(dst, id, text), ':')
			dst = appendLogprob(dst, logprob)
		})
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// callID is the call's id with another beginning.
func (s span) callID(prefix string) string { return prefix + s.id[len(callPrefix):] }

// hostedChunks writes the events of a chat stream; the finish comes by itself.
type hostedChunks struct{ hosted }

func (a hostedChunks) open(dst []byte, g *generation) []byte {
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = appendInt(dst, `{"index":`, g.index)
	return append(dst, `,"delta":`...)
}

func (a hostedChunks) close(dst []byte, members string) []byte {
	dst = append(append(dst, members...), `}],"service_tier":"default","system_fingerprint":null`...)
	if a.req.usage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, '}')
}

func (a hostedChunks) first(dst []byte, g *generation) []byte {
	dst = append(a.open(dst, g), `{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null`...)
	if a.style.rows == fireworksRows && a.req.returnIDs {
		dst = a.appendPromptIDs(append(dst, `,"prompt_token_ids":`...), a.prompt)
	}
	return a.close(dst, "")
}

func (a hostedChunks) chunk(dst []byte, g *generation, from, to int) []byte {
	start := len(dst)
	dst = a.open(dst, g)
	delta := len(dst)
	dst = a.appendDelta(dst, g, g.shown(from), g.shown(to))
	if len(dst) == delta {
		if a.style.rows < fireworksRows || !a.req.returnIDs && !a.req.logprobs {
			return dst[:start]
		}
		dst = append(dst, "{}"...)
	}
	dst = a.appendHostedRows(append(dst, `,"logprobs":`...), g, from, to)
	dst = append(dst, `,"finish_reason":null`...)
	if a.style.rows == fireworksRows && a.req.returnIDs {
		dst = a.appendTokenIDs(append(dst, `,"token_ids":`...), g, from, to)
	}
	return a.close(dst, "")
}

func (a hostedChunks) appendDelta(dst []byte, g *generation, from, to int) []byte {
	for _, s := range g.spans {
		if s.from >= to || from >= s.to {
			continue
		}
		text := g.text[max(from, s.from):min(to, s.to)]
		switch {
		case s.kind == kindContent:
			return append(appendString(append(dst, `{"content":`...), text), '}')
		case s.kind == kindReasoning && a.style.reasoning != "":
			return append(appendString(append(dst, `{"`+a.style.reasoning+`":`...), text), '}')
		case s.kind == kindCall:
			named, args := s.shows(from, to)
			if !named && !args {
				continue
			}
			dst = appendInt(append(dst, `{"tool_calls":[`...), `{"index":`, s.index)
			if named {
				dst = append(appendString(append(dst, `,"id":`...), s.callID(a.style.callID)), `,"type":"function","function":{"name":`...)
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

func (a hostedChunks) tail(dst []byte) []byte {
	for _, g := range a.choices {
		dst = a.open(append(dst, "data: "...), g)
		dst = appendString(append(dst, `{},"logprobs":null,"finish_reason":`...), a.finishReason(g))
		dst = append(a.close(dst, ""), "\n\n"...)
	}
	return dst
}

func (a hostedChunks) usage(dst []byte) []byte {
	dst = append(a.appendHead(dst, "chat.completion.chunk"), `],"service_tier":"default","system_fingerprint":null,"usage":`...)
	return append(a.appendCounts(dst), '}')
}
