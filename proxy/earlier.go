package proxy

import (
	"encoding/json"
	"slices"
	"strings"

	"go.uber.org/zap"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/store"
)

// past is what a call has read of its session's record, so that a chain of answers is read once and each of its links put
// together once.
type past struct {
	read  bool
	calls map[string]*record.Call // by request id: the answers that can be named
	log   *store.Past
	items map[string][]json.RawMessage // by request id: the conversation up to the answer, nil where there is none
}

// earlier finds an answer of this session by the id that the harness was given, and gives the conversation up to it as
// Responses items. What is asked of is the record: nothing is kept for it in memory beyond the call.
func (c *call) earlier(responseID string) (items []json.RawMessage, ok bool) {
	if !c.past.read {
		c.readPast()
	}
	requestID := strings.TrimPrefix(responseID, "resp_")
	items, known := c.past.items[requestID]
	if !known {
		items = c.conversation(requestID)
	}
	return slices.Clip(items), items != nil
}

func (c *call) readPast() {
	c.past = past{read: true, calls: map[string]*record.Call{}, items: map[string][]json.RawMessage{}}
	log, err := c.s.Log.Past(c.ctx, c.live.ID())
	if err != nil {
		c.log(zap.WarnLevel, "could not read all of a session for an earlier response", errField(err))
	}
	if log == nil {
		return
	}
	c.past.log = log
	for _, old := range log.Calls {
		_, taken := c.past.calls[old.RequestID]
		if !taken && old.Dialect == record.OpenAIResponses && old.Outcome.IsNode() && len(old.Choices) > 0 {
			c.past.calls[old.RequestID] = old
		}
	}
}

// conversation gives the items up to and with the answer to a request id, nil when there is none. The links before it are
// walked, not called one from the other, and every link adds its own items to those of the link before: a chain costs what it
// holds.
func (c *call) conversation(requestID string) []json.RawMessage {
	c.past.items[requestID] = nil // what refers to itself finds nothing
	type link struct {
		call *record.Call
		turn *dialect.ResponsesTurn
	}
	var links []link
	var items []json.RawMessage
	for at, more := requestID, true; more; {
		old := c.past.calls[at]
		if old == nil || len(links) == len(c.past.calls) {
			return nil
		}
		turn, err := dialect.ReadResponsesTurn(c.past.log.Body(old))
		if err != nil {
			c.log(zap.WarnLevel, "could not read an earlier request", zap.Int("earlier", old.Number), errField(err))
			return nil
		}
		links = append(links, link{old, turn})
		at = strings.TrimPrefix(turn.Previous, "resp_")
		known := c.past.items[at]
		more = turn.Previous != "" && known == nil
		items = slices.Clip(known) // another chain may have gone on behind it
	}
	for _, l := range slices.Backward(links) {
		input, err := l.turn.Input(items, c.earlier)
		if err != nil {
			return nil
		}
		answer := dialect.Answer{ID: l.call.RequestID, Created: l.call.Timing.Received.Unix()}
		items = append(input, l.turn.Output(answer, saidIn(&l.call.Choices[0]))...)
		c.past.items[l.call.RequestID] = items
	}
	return items
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
