package continuity

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Reason says why a request that goes on with something is sent as plain messages.
type Reason string

// The reasons.
const (
	HistoryRewritten    Reason = "history_rewritten"
	ToolsChanged        Reason = "tools_changed" // or the template's arguments
	AssistantNotSampled Reason = "assistant_not_sampled"
	Multimodal          Reason = "multimodal"
	EngineCannot        Reason = "engine_cannot"
)

// Match is what a request carries on. With neither a Turn nor a Reason it carries on nothing: a conversation begins.
type Match struct {
	Turn   *Turn
	Reason Reason
	Detail string
	// Answer is the turn's answer as it came back, Added are the messages that follow it.
	Answer json.RawMessage
	Added  []json.RawMessage
	Echo   Echo
	// Renamed are the ids of the answer's calls that the harness gave names of its own, and what they were.
	Renamed map[string]string
}

func renamed(ids, echo []string) map[string]string {
	var names map[string]string
	for i, id := range ids {
		if id != "" && id != echo[i] {
			if names == nil {
				names = map[string]string{}
			}
			names[echo[i]] = id
		}
	}
	return names
}

// no is a request that is not to be bridged.
func no(why Reason, format string, args ...any) Match {
	return Match{Reason: why, Detail: fmt.Sprintf(format, args...)}
}

// Find returns the deepest turn that a request carries on. As nothing but new messages may follow its answer, that is the
// turn whose answer is the last one among the messages.
func (x *Index) Find(r Request) Match {
	x.mu.Lock()
	defer x.mu.Unlock()
	messages := x.readAll(r.Messages)
	last, media := -1, -1
	for i, m := range messages {
		if m.role == "assistant" {
			last = i
		}
		if m.media && media < 0 {
			media = i
		}
	}
	switch {
	case last < 0:
		return Match{}
	case media >= 0:
		return no(Multimodal, "message %d is not text alone: engines ignore prompt ids beside media", media)
	case last == len(messages)-1:
		return no(AssistantNotSampled, "the last message is the beginning of an answer, given by the harness")
	}
	for i, m := range messages[last+1:] {
		switch m.role {
		case "tool", "function", "user", "system", "developer":
		default:
			return no(HistoryRewritten, "message %d is from %q", last+1+i, m.role)
		}
	}
	key := setting(r.Tools, r.Template)
	front, at := x.descend(x.roots[key], messages[:last+1])
	if at <= last {
		m := x.why(key, messages[:last+1], front, at)
		if x.pruned {
			m.Detail += "; the oldest turns of this session are no longer held"
		}
		return m
	}
	best := latest(front)
	if best == nil {
		return x.unusable(front, last)
	}
	return Match{
		Turn: best.turn, Answer: r.Messages[last], Added: r.Messages[last+1:], Echo: best.said.echo(messages[last]),
		Renamed: renamed(best.said.ids, messages[last].ids),
	}
}

// latest returns the node of a front whose turn came last, nil when none has one.
func latest(front []*node) (best *node) {
	for _, n := range front {
		if n.turn != nil && (best == nil || n.turn.Call >= best.turn.Call) {
			best = n
		}
	}
	return best
}

func (x *Index) unusable(front []*node, last int) Match {
	for _, n := range front {
		if n.answer {
			return no(AssistantNotSampled, "message %d was sampled, but its ids are incomplete or no longer held", last)
		}
	}
	return no(AssistantNotSampled, "message %d came with a request and was not sampled in this session", last)
}

// maxSettings is under how many settings a history is looked for, the newest ones: tools may be others, or in another order, with
// every call.
const maxSettings = 16

// why explains a history that is not that of any turn under its setting: its message at was not met.
func (x *Index) why(key sum, messages []*said, front []*node, at int) Match {
	for _, other := range x.order[max(0, len(x.order)-maxSettings):] {
		if other == key {
			continue
		}
		if front, n := x.descend(x.roots[other], messages); n == len(messages) && latest(front) != nil {
			return no(ToolsChanged, "the conversation goes on, but its tools or the template's arguments are others")
		}
	}
	m := messages[at]
	if m.role == "assistant" {
		for _, n := range front {
			if n.answered() {
				return no(HistoryRewritten, "message %d is not the answer that was given there", at)
			}
		}
	}
	for i, m := range messages[at:] {
		if m.role == "assistant" && x.sampled(m) {
			return no(HistoryRewritten, "message %d is not what stood there before the answer in message %d", at, at+i)
		}
	}
	if at > 0 && m.role != "assistant" && slices.ContainsFunc(front, func(n *node) bool { return len(n.children) > 0 }) {
		return no(HistoryRewritten, "message %d is not what stood there before", at)
	}
	at += slices.IndexFunc(messages[at:], func(m *said) bool { return m.role == "assistant" }) // the last one is
	return no(AssistantNotSampled, "message %d came with the request and was not sampled in this session", at)
}

// answered reports whether an answer of the engine follows directly.
func (n *node) answered() bool {
	for _, variants := range n.children {
		for _, c := range variants {
			if c.answer {
				return true
			}
		}
	}
	return false
}

// sampled reports whether a message was given as an answer anywhere in this session.
func (x *Index) sampled(m *said) bool {
	if x.spoken[m.key] {
		return true
	}
	for _, id := range m.ids {
		if x.callIDs[id] {
			return true
		}
	}
	return false
}
