package graph

import (
	"bytes"
	"encoding/json"
)

// interner gives messages small numbers: two messages get the same one exactly when they are the same message. A
// conversation is then a sequence of numbers, and linked as token ids are. What came in the same bytes before is not
// parsed again, and what the previous request had at the same place is not even looked up: conversations grow at
// their end.
type interner struct {
	ids      map[string]int32 // by identity
	known    []seen
	requests map[string]int32 // raw bytes → index of known
	replies  map[string]int32

	last     []json.RawMessage
	lastKeys []int32 // indexes of known
}

type seen struct {
	id      int32
	leads   bool
	callIDs []string
}

func newInterner() *interner {
	return &interner{ids: map[string]int32{}, requests: map[string]int32{}, replies: map[string]int32{}}
}

// conversation returns the numbers of a request's messages, parted behind the system text at their start.
func (n *interner) conversation(messages []json.RawMessage) (system, rest []int32) {
	n.read(messages)
	ids := make([]int32, len(messages))
	lead := len(messages)
	for i, k := range n.lastKeys {
		ids[i] = n.known[k].id
		if lead == len(messages) && !n.known[k].leads {
			lead = i
		}
	}
	return ids[:lead], ids[lead:]
}

// read makes messages the last request that was read.
func (n *interner) read(messages []json.RawMessage) {
	keys := n.lastKeys[:min(len(n.lastKeys), len(messages))]
	for i, raw := range messages {
		switch {
		case i < len(keys) && bytes.Equal(raw, n.last[i]):
		case i < len(keys):
			keys[i] = n.look(n.requests, raw, "")
		default:
			keys = append(keys, n.look(n.requests, raw, ""))
		}
	}
	n.last, n.lastKeys = messages, keys
}

// reply returns an answer; engines may leave its role out.
func (n *interner) reply(raw json.RawMessage) seen {
	return n.known[n.look(n.replies, raw, "assistant")]
}

func (n *interner) look(cache map[string]int32, raw json.RawMessage, role string) int32 {
	if k, ok := cache[string(raw)]; ok {
		return k
	}
	m := parseMessage(raw, role)
	s := seen{id: n.number(m.identity()), leads: m.leads()}
	for _, c := range m.calls {
		if c.id != "" {
			s.callIDs = append(s.callIDs, c.id)
		}
	}
	k := int32(len(n.known))
	n.known = append(n.known, s)
	cache[string(raw)] = k
	return k
}

func (n *interner) number(identity string) int32 {
	id, ok := n.ids[identity]
	if !ok {
		id = int32(len(n.ids))
		n.ids[identity] = id
	}
	return id
}
