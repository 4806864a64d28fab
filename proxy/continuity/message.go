package continuity

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"captureproxy/graph"
	"captureproxy/internal/jsonscan"
)

// sum is a hash that stands for what was hashed.
type sum [16]byte

func hash(b []byte) sum {
	full := sha256.Sum256(b)
	return sum(full[:16])
}

// said is a message as it is compared.
type said struct {
	key       sum // of its identity
	role      string
	media     bool
	reasoning sum // zero for none
	ids       []string
	text      sum // as spelled
	arguments sum
	moved     []moved
}

// moved is what an answer would be whose text is a thought, see graph.Moved.
type moved struct{ key, reasoning sum }

// newSaid reads a message.
func newSaid(raw json.RawMessage, role string) *said {
	m := graph.Read(withArguments(raw), role)
	s := &said{key: hash([]byte(m.Identity)), role: m.Role, media: m.Media, ids: m.CallIDs, text: hash([]byte(m.Text)), arguments: hash([]byte(m.Arguments))}
	if m.Reasoning != "" {
		s.reasoning = hash([]byte(m.Reasoning))
	}
	for _, v := range m.Moved {
		s.moved = append(s.moved, moved{hash([]byte(v.Identity)), hash([]byte(v.Reasoning))})
	}
	return s
}

// withArguments gives calls without arguments the empty object that most dialects have in place of nothing.
func withArguments(raw json.RawMessage) json.RawMessage {
	const key = `"arguments":`
	if !bytes.Contains(raw, []byte(key+`""`)) && !bytes.Contains(raw, []byte(key+` ""`)) {
		return raw
	}
	cur := jsonscan.New(raw)
	var splices []jsonscan.Splice
	for m := cur.Object(); m.Next(); {
		if string(m.Key) != "tool_calls" {
			continue
		}
		for calls := cur.Array(); calls.Next(); {
			for call := cur.Object(); call.Next(); {
				if string(call.Key) != "function" {
					continue
				}
				for f := cur.Object(); f.Next(); {
					if value := cur.Raw(); string(f.Key) == "arguments" && string(value) == `""` {
						splices = append(splices, jsonscan.Splice{Start: f.Value, End: cur.Pos(), With: []byte(`"{}"`)})
					}
				}
			}
		}
	}
	if cur.End() != nil {
		return raw
	}
	return jsonscan.Apply(nil, raw, splices)
}

// comesBackAs reports whether a message with the same identity is this one come back: its reasoning is equal or absent, and its
// calls have the ids that they had, where they had any. Some harnesses give calls ids of their own: an id that no call of the
// session was given (given says so) stands for the one in its place.
func (s *said) comesBackAs(echo *said, given map[string]bool) bool {
	if echo.reasoning != (sum{}) && echo.reasoning != s.reasoning {
		return false
	}
	if len(s.ids) != len(echo.ids) {
		return false
	}
	for i, id := range s.ids {
		if id != "" && id != echo.ids[i] && (echo.ids[i] == "" || given[echo.ids[i]]) {
			return false
		}
	}
	return true
}

// Echo says in what an answer that came back is spelled otherwise than it was given.
type Echo string

// The ways in which an answer comes back.
const (
	EchoSame      Echo = "same"
	EchoThinking  Echo = "thinking_removed"
	EchoArguments Echo = "tool_call_reserialised"
	EchoSpace     Echo = "space_trimmed"
	EchoMoved     Echo = "thinking_moved" // into the text
	EchoIDs       Echo = "call_ids_renamed"
)

func (s *said) echo(e *said) Echo {
	switch {
	case s.key != e.key:
		return EchoMoved
	case s.reasoning != e.reasoning:
		return EchoThinking
	case s.arguments != e.arguments:
		return EchoArguments
	case s.text != e.text:
		return EchoSpace
	case !slices.Equal(s.ids, e.ids):
		return EchoIDs
	}
	return EchoSame
}
