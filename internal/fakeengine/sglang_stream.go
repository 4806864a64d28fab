package fakeengine

import "strconv"

// sglangChunks writes the events of a chat stream. Every delta names reasoning_content, the finish comes by itself, and
// the ids come late and all at once.
type sglangChunks struct{ sglangAnswer }

func (a sglangChunks) first(dst []byte, g *generation) []byte {
	dst = a.open(dst, g)
	dst = append(dst, `{"role":"assistant","content":"","reasoning_content":null}`...)
	return a.close(dst, `,"logprobs":null,"finish_reason":null,"matched_stop":null`)
}

func (a sglangChunks) open(dst []byte, g *generation) []byte {
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = appendInt(dst, `{"index":`, g.index)
	return append(dst, `,"delta":`...)
}

func (a sglangChunks) close(dst []byte, members string) []byte {
	return append(append(dst, members...), `}],"usage":null}`...)
}

// chunk gives a step that shows nothing an empty delta for the sake of its rows; older versions drop such rows.
func (a sglangChunks) chunk(dst []byte, g *generation, from, to int) []byte {
	start := len(dst)
	dst = a.open(dst, g)
	delta := len(dst)
	dst = a.appendDelta(dst, g, g.shown(from), g.shown(to))
	if len(dst) == delta {
		if a.old || !a.req.logprobs {
			return dst[:start]
		}
		dst = append(dst, `{"reasoning_content":null}`...)
	}
	dst = append(dst, `,"logprobs":`...)
	dst = a.appendRows(dst, g, from, to)
	return a.close(dst, `,"finish_reason":null,"matched_stop":null`)
}

func (a sglangChunks) appendDelta(dst []byte, g *generation, from, to int) []byte {
	for _, s := range g.spans {
		if s.from >= to || from >= s.to {
			continue
		}
		text := g.text[max(from, s.from):min(to, s.to)]
		switch s.kind {
		case kindContent:
			dst = append(dst, `{"content":`...)
			dst = append(appendString(dst, text), `,"reasoning_content":null}`...)
			return dst
		case kindReasoning:
			return append(appendString(append(dst, `{"reasoning_content":`...), text), '}')
		case kindCall:
			named, args := s.shows(from, to)
			if !named && !args {
				continue
			}
			dst = append(dst, `{"reasoning_content":null,"tool_calls":[{"id":`...)
			name := ""
			if named {
				name = s.name
				dst = appendString(dst, s.id)
			} else {
				dst = append(dst, "null"...)
			}
			dst = appendInt(dst, `,"index":`, s.index)
			dst = appendStringOrNull(append(dst, `,"type":"function","function":{"name":`...), name)
			dst = append(dst, `,"arguments":`...)
			if args {
				dst = appendString(dst, g.text[max(from, s.argsFrom):min(to, s.argsTo)])
			} else {
				dst = append(dst, `""`...)
			}
			return append(dst, `}}]}`...)
		}
	}
	return dst
}

// tail appends the finish of every choice and the ids.
func (a sglangChunks) tail(dst []byte) []byte {
	for _, g := range a.choices {
		dst = append(dst, "data: "...)
		dst = a.open(dst, g)
		dst = append(dst, `{"reasoning_content":null},"logprobs":null,`...)
		dst = a.close(a.appendEnd(dst, g), "")
		dst = append(dst, "\n\n"...)
	}
	ext := a.appendExt(nil)
	if ext == nil {
		return dst
	}
	if framed, err := strconv.ParseBool(a.r.Header.Get("X-Sglext-Ids-Framed")); err == nil && framed {
		dst = append(dst, "event: sglext_ids\n"...)
	}
	dst = append(dst, "data: "...)
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = append(append(dst, "],"...), ext...)
	return append(dst, "}\n\n"...)
}

func (a sglangChunks) usage(dst []byte) []byte {
	dst = a.appendHead(dst, "chat.completion.chunk")
	dst = append(dst, `],"usage":`...)
	return append(a.appendCounts(dst), '}')
}
