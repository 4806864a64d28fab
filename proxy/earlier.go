package proxy

import (
	"encoding/json"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
)

// earlier finds an answer of this session by the id that the harness was given, and gives the conversation up to it as
// Responses items. What is asked of is the record: nothing is kept for it in memory.
func (c *call) earlier(responseID string) (items []json.RawMessage, ok bool) {
	id := strings.TrimPrefix(responseID, "resp_")
	calls, err := c.s.Log.Calls(c.ctx, c.live.ID())
	if err != nil && len(calls) == 0 {
		c.s.Logger.Warn("could not look for an earlier response", sessionField(c.live.ID()), errField(err))
		return nil, false
	}
	for _, old := range calls {
		if old.RequestID != id || old.Dialect != record.OpenAIResponses || !old.Outcome.IsNode() || len(old.Choices) == 0 {
			continue
		}
		body, err := c.s.Log.Body(c.ctx, c.live.ID(), old.Number)
		if err != nil {
			c.s.Logger.Warn("could not read an earlier request", sessionField(c.live.ID()), callField(old.Number), errField(err))
			return nil, false
		}
		input, err := dialect.ResponsesInput(body, c.earlier)
		if err != nil {
			return nil, false
		}
		request, err := dialect.DecodeResponses(body, c.earlier)
		if err != nil {
			return nil, false
		}
		answer := dialect.Answer{ID: old.RequestID, Created: old.Timing.Received.Unix()}
		return append(input, dialect.ResponsesOutput(request, answer, saidIn(&old.Choices[0]))...), true
	}
	return nil, false
}

// saidIn is what a recorded choice said.
func saidIn(ch *record.Choice) *dialect.Said {
	said := &dialect.Said{Finish: ch.FinishReason}
	cur := jsonscan.New(ch.Message)
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "content":
			said.Text, _ = cur.AppendString(nil)
		case "reasoning", "reasoning_content":
			said.Reasoning, _ = cur.AppendString(nil)
		case "refusal":
			said.Refusal, _ = cur.AppendString(nil)
		case "tool_calls":
			for calls := cur.Array(); calls.Next(); {
				said.Calls = append(said.Calls, saidCall(&cur))
			}
		}
	}
	return said
}

func saidCall(cur *jsonscan.Cursor) dialect.SaidCall {
	var call dialect.SaidCall
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "id":
			call.ID, _ = cur.String()
		case "function":
			for f := cur.Object(); f.Next(); {
				switch string(f.Key) {
				case "name":
					call.Name, _ = cur.String()
				case "arguments":
					call.Arguments, _ = cur.AppendString(nil)
				}
			}
		}
	}
	return call
}
