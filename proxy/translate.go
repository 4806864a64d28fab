package proxy

import (
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// translation carries an answer in the chat format over into the harness's dialect.
type translation struct {
	answer dialect.Answer
	stream dialect.Stream
	said   dialect.Said
}

// translate prepares the way back for a request that was translated.
func (c *call) translate() {
	if !c.req.Translated() {
		return
	}
	c.way = c.newTranslation()
}

// newTranslation is a way into the harness's dialect, where that is not one of OpenAI's two older ones.
func (c *call) newTranslation() *translation {
	way := &translation{answer: dialect.Answer{ID: c.rec.RequestID, Created: c.rec.Timing.Received.Unix()}}
	if !c.req.Stream {
		return way
	}
	switch c.rec.Dialect {
	case record.AnthropicMessages:
		way.stream = dialect.NewAnthropicStream(c.req, way.answer)
	case record.OpenAIResponses:
		way.stream = dialect.NewResponsesStream(c.req, way.answer)
	case record.Google:
		way.stream = dialect.NewGoogleStream(c.req, way.answer, !c.route.array)
	}
	return way
}

// wholeOf writes what was said as one answer of the dialect. Only Google's has room for further choices.
func (c *call) wholeOf(way *translation, s *dialect.Said, more ...*dialect.Said) []byte {
	switch c.rec.Dialect {
	case record.AnthropicMessages:
		return dialect.AnthropicWhole(c.req, way.answer, s)
	case record.OpenAIResponses:
		return dialect.ResponsesWhole(c.req, way.answer, s)
	}
	return dialect.GoogleWhole(c.req, way.answer, s, more...)
}

// collected is the whole answer in the harness's dialect.
func (c *call) collected() []byte {
	var more []*dialect.Said
	for i := 1; i < len(c.answer.Choices); i++ {
		said := &dialect.Said{}
		c.update(said, c.answer.Choices[i])
		more = append(more, said)
	}
	return c.wholeOf(c.way, c.soFar(), more...)
}

// soFar brings what was said up to date with what was read.
func (c *call) soFar() *dialect.Said {
	if len(c.answer.Choices) > 0 {
		c.update(&c.way.said, c.answer.Choices[0])
	}
	return &c.way.said
}

// update brings what one choice said up to date.
func (c *call) update(s *dialect.Said, choice *engine.Choice) {
	s.Text, s.Reasoning, s.Refusal = choice.Text(), choice.Reasoning(), choice.Refusal()
	n := 0
	choice.Calls(func(id, name string, arguments []byte) {
		if name == "" { // its name is still to come
			return
		}
		if id == "" { // the dialects pair calls and results by id
			id = "call_" + c.rec.RequestID + "_" + strconv.Itoa(choice.Index) + "_" + strconv.Itoa(n)
		}
		if n == len(s.Calls) {
			s.Calls = append(s.Calls, dialect.SaidCall{ID: id, Name: name})
		}
		s.Calls[n].Arguments = arguments
		n++
	})
	s.Finish = finishReason(choice.Finish, n > 0)
	if stop := jsonscan.New(choice.StopReason); stop.Peek() == '"' {
		s.Stop, _ = stop.String()
	}
	s.Usage = usageOf(c.answer.Usage)
}

// usageOf reads the counts that the dialects tell apart.
func usageOf(u record.Usage) dialect.SaidUsage {
	if u.Prompt == nil || u.Completion == nil {
		return dialect.SaidUsage{}
	}
	out := dialect.SaidUsage{Known: true, Prompt: *u.Prompt, Completion: *u.Completion}
	cur := jsonscan.New(u.Raw)
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "prompt_tokens_details":
			out.Cached = detail(&cur, "cached_tokens")
		case "completion_tokens_details":
			out.Thinking = detail(&cur, "reasoning_tokens")
		}
	}
	return out
}

func detail(cur *jsonscan.Cursor, name string) (n int64) {
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == name {
			n, _ = cur.Int()
		}
	}
	return n
}

// contentType is that of a translated stream.
func (c *call) contentType() string {
	if c.route.array {
		return "application/json"
	}
	return "text/event-stream; charset=utf-8"
}
