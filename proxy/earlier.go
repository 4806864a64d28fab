package proxy

import (
	"encoding/json"
	"slices"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
)

// past is what a call has read of its session's record, so that a chain of answers is read once: each link asks for the one
// before it, to decode its request and to list its items.
type past struct {
	read  bool
	calls []*record.Call
	items map[string][]json.RawMessage // by response id; nil where there is none
}

// earlier finds an answer of this session by the id that the harness was given, and gives the conversation up to it as
// Responses items. What is asked of is the record: nothing is kept for it in memory beyond the call.
func (c *call) earlier(responseID string) (items []json.RawMessage, ok bool) {
	if !c.past.read {
		calls, err := c.s.Log.Calls(c.ctx, c.live.ID())
		if err != nil {
			c.s.Logger.Warn("could not read all of a session for an earlier response", sessionField(c.live.ID()), errField(err))
		}
		c.past = past{read: true, calls: calls, items: map[string][]json.RawMessage{}}
	}
	items, known := c.past.items[responseID]
	if !known {
		items = c.conversation(strings.TrimPrefix(responseID, "resp_"))
		c.past.items[responseID] = items
	}
	return slices.Clip(items), items != nil
}

// conversation gives the items up to and with the answer to a request id, nil when there is none.
func (c *call) conversation(requestID string) []json.RawMessage {
	i := slices.IndexFunc(c.past.calls, func(old *record.Call) bool {
		return old.RequestID == requestID && old.Dialect == record.OpenAIResponses && old.Outcome.IsNode() && len(old.Choices) > 0
	})
	if i < 0 {
		return nil
	}
	old := c.past.calls[i]
	body, err := c.s.Log.Body(c.ctx, c.live.ID(), old.Number)
	if err != nil {
		c.s.Logger.Warn("could not read an earlier request", sessionField(c.live.ID()), callField(old.Number), errField(err))
		return nil
	}
	input, err := dialect.ResponsesInput(body, c.earlier)
	if err != nil {
		return nil
	}
	request, err := dialect.DecodeResponses(body, c.earlier)
	if err != nil {
		return nil
	}
	answer := dialect.Answer{ID: old.RequestID, Created: old.Timing.Received.Unix()}
	return slices.Concat(input, dialect.ResponsesOutput(request, answer, saidIn(&old.Choices[0])))
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
