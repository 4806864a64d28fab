package fakeengine

import "strconv"

// chatChunks writes the events of a chat stream.
type chatChunks struct{ *answer }

func (a chatChunks) first(dst []byte, g *generation) []byte {
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = appendInt(dst, `{"index":`, g.index)
	dst = append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	dst = a.appendRunningUsage(dst, 0, 0)
	dst = append(dst, `,"prompt_token_ids":`...)
	dst = a.appendPromptIDs(dst, a.prompt)
	dst = append(dst, `,"prompt_text":`...)
	return append(a.appendPromptText(dst), '}')
}

func (a chatChunks) chunk(dst []byte, g *generation, from, to int) []byte {
	last := to == len(g.ids)
	start := len(dst)
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = appendInt(dst, `{"index":`, g.index)
	dst = append(dst, `,"delta":`...)
	delta := len(dst)
	dst = a.appendDelta(dst, g, g.shown(from), g.shown(to))
	if string(dst[delta:]) == "{}" && !last && (!a.showsIDs() || a.wire.losesHeld) {
		return dst[:start] // held back by a parser; sent without text only for its ids
	}
	dst = append(dst, `,"logprobs":`...)
	dst = a.appendRows(dst, g, from, to)
	dst = append(dst, ',')
	if last {
		dst = a.appendFinish(dst, g)
	} else {
		dst = append(dst, `"finish_reason":null`...)
	}
	dst = append(dst, `,"token_ids":`...)
	dst = a.appendTokenIDs(dst, g, from, to)
	dst = append(dst, "}]"...)
	dst = a.appendRunningUsage(dst, to, min(g.reasoning, max(0, to-1)))
	if last && !a.req.usage {
		dst = append(dst, ","+fingerprint...)
	}
	return append(dst, '}')
}

func (a chatChunks) usage(dst []byte) []byte {
	completion, reasoning := a.totals()
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = append(dst, `],"usage":`...)
	dst = a.appendUsage(dst, len(a.prompt), completion,
		`"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0},`+reasoningDetails(reasoning))
	return append(dst, ","+fingerprint+"}"...)
}

// appendRunningUsage appends the counts so far, where continuous_usage_stats asks for them.
func (a chatChunks) appendRunningUsage(dst []byte, completion, reasoning int) []byte {
	if !a.req.everyUsage || a.fault.Kind == FaultNoUsage {
		return dst
	}
	dst = append(dst, `,"usage":`...)
	return a.appendUsage(dst, len(a.prompt), completion, reasoningDetails(reasoning))
}

// appendDelta appends what the text [from, to) shows.
func (a chatChunks) appendDelta(dst []byte, g *generation, from, to int) []byte {
	start := len(dst)
	content, calls := -1, 0
	member := func(text string) {
		if len(dst) == start {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, text...)
	}
	for i, s := range g.spans {
		if s.kind == kindContent && s.from < to && from < s.to {
			member(`"content":`)
			dst = appendString(dst, g.text[max(from, s.from):min(to, s.to)])
			content = i
		}
	}
	if content < 0 && g.callsIn(from, to) {
		member(`"content":null`)
	}
	for _, s := range g.spans {
		if s.kind == kindReasoning && s.from < to && from < s.to && !a.req.noReasoning {
			member(`"` + a.wire.reasoning + `":`)
			dst = appendString(dst, g.text[max(from, s.from):min(to, s.to)])
		}
	}
	if a.req.noReasoning && len(dst) > start {
		member(`"` + a.wire.reasoning + `":null`)
	}
	for _, s := range g.spans {
		named, args := s.shows(from, to)
		if !named && !args {
			continue
		}
		if calls == 0 {
			member(`"tool_calls":[`)
		} else {
			dst = append(dst, ',')
		}
		calls++
		dst = s.appendCall(dst, g.text, from, to)
	}
	if calls > 0 {
		dst = append(dst, ']')
	}
	if len(dst) == start {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// shows says what of a call the text [from, to) makes known: its name, some of its arguments.
func (s span) shows(from, to int) (name, args bool) {
	if s.kind != kindCall {
		return false, false
	}
	return from < s.nameEnd && s.nameEnd <= to, from < s.argsTo && s.argsFrom < to
}

func (g *generation) callsIn(from, to int) bool {
	for _, s := range g.spans {
		if name, args := s.shows(from, to); name || args {
			return true
		}
	}
	return false
}

func (s span) appendCall(dst, text []byte, from, to int) []byte {
	name, args := s.shows(from, to)
	dst = append(dst, '{')
	if name {
		dst = append(dst, `"id":"`...)
		dst = append(dst, s.id...)
		dst = append(dst, `","type":"function",`...)
	}
	dst = append(dst, `"index":`...)
	dst = strconv.AppendInt(dst, int64(s.index), 10)
	dst = append(dst, `,"function":{`...)
	if name {
		dst = append(dst, `"name":`...)
		dst = appendString(dst, s.name)
	}
	if args {
		if name {
			dst = append(dst, ',')
		}
		dst = append(dst, `"arguments":`...)
		dst = appendString(dst, text[max(from, s.argsFrom):min(to, s.argsTo)])
	}
	return append(dst, "}}"...)
}
