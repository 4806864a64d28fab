package graph

import "encoding/json"

// interner gives messages small numbers: two messages get the same one exactly when they are the same message. A
// conversation is then a sequence of numbers, and linked as token ids are. What came in the same bytes before is not
// parsed again.
type interner struct {
	ids      map[string]int32 // by identity
	requests map[string]seen  // by raw bytes
	replies  map[string]seen
}

type seen struct {
	id      int32
	leads   bool
	callIDs []string
}

func newInterner() *interner {
	return &interner{ids: map[string]int32{}, requests: map[string]seen{}, replies: map[string]seen{}}
}

// conversation returns the numbers of a request's messages without the system text at their start.
func (n *interner) conversation(messages []json.RawMessage) []int32 {
	rest := messages[n.leading(messages):]
	ids := make([]int32, len(rest))
	for i, raw := range rest {
		ids[i] = n.message(raw).id
	}
	return ids
}

// leading counts the system and developer messages at the start.
func (n *interner) leading(messages []json.RawMessage) int {
	for i, raw := range messages {
		if !n.message(raw).leads {
			return i
		}
	}
	return len(messages)
}

func (n *interner) message(raw json.RawMessage) seen { return n.look(n.requests, raw, "") }

// reply returns the number of an answer; engines may leave its role out.
func (n *interner) reply(raw json.RawMessage) int32 { return n.look(n.replies, raw, "assistant").id }

func (n *interner) look(cache map[string]seen, raw json.RawMessage, role string) seen {
	if s, ok := cache[string(raw)]; ok {
		return s
	}
	m := parseMessage(raw, role)
	s := seen{id: n.number(m.identity()), leads: m.leads()}
	for _, c := range m.calls {
		if c.id != "" {
			s.callIDs = append(s.callIDs, c.id)
		}
	}
	cache[string(raw)] = s
	return s
}

func (n *interner) number(identity string) int32 {
	id, ok := n.ids[identity]
	if !ok {
		id = int32(len(n.ids))
		n.ids[identity] = id
	}
	return id
}
