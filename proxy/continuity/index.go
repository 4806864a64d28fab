package continuity

import (
	"encoding/json"
	"slices"
	"sync"

	"captureproxy/internal/record"
)

// Request is what matters of a request.
type Request struct {
	Messages, Tools []json.RawMessage
	// Template holds the arguments of the chat template, a JSON object, "" for none.
	Template string
}

// Index knows the turns of one session.
type Index struct {
	mu    sync.Mutex
	known map[sum]*said // by the hash of a message's bytes
	roots map[sum]*node // by tools and template
	order []sum         // of roots, the oldest first
	// spoken are the answers given in this session, by identity, and the ids of the calls in them.
	spoken  map[sum]bool
	callIDs map[string]bool
	turns   []*node // that have ids, the oldest first
	held    int     // ids held by all turns
	answers []*node // the oldest first; those that others went on from may be missing
	nodes   int
	pruned  bool // nodes are gone
	calls   calls
}

// node is a message in its place: after those above it.
type node struct {
	said     *said
	up       *node           // nil for a root
	children map[sum][]*node // by identity; variants of one message apart
	turn     *Turn           // whose answer this is, nil for other messages and where the ids may not be used
	answer   bool            // an answer of the engine, whether or not its ids may be used
	above    *Turn           // the nearest turn here or above
	last     *Turn           // of a root: the latest turn below
}

// Beyond these bounds the oldest turns of a session go that nobody carried on: 64 MiB of ids, and about as much of messages in
// their places, which count again and again where a conversation's beginning is another one in every call.
const (
	maxHeld  = 16 << 20
	maxNodes = 1 << 17
)

// NewIndex returns an index of no turns.
func NewIndex() *Index {
	return &Index{known: map[sum]*said{}, roots: map[sum]*node{}, spoken: map[sum]bool{}, callIDs: map[string]bool{}, calls: newCalls()}
}

func (x *Index) read(raw json.RawMessage, role string) *said {
	h := hash(raw)
	s, ok := x.known[h]
	if !ok {
		s = newSaid(raw, role)
		x.known[h] = s
	}
	return s
}

func (x *Index) readAll(messages []json.RawMessage) []*said {
	list := make([]*said, len(messages))
	for i, raw := range messages {
		list[i] = x.read(raw, "")
	}
	return list
}

// setting is what stands around a conversation.
func setting(tools []json.RawMessage, template string) sum {
	var b []byte
	for _, t := range tools {
		h := hash(t)
		b = append(b, h[:]...)
	}
	h := hash([]byte(template))
	return hash(append(b, h[:]...))
}

// follow goes one message down from every node of a front. What it finds is appended to next.
func (x *Index) follow(next, front []*node, m *said) []*node {
	for _, n := range front {
		for _, child := range n.children[m.key] {
			if child.said.comesBackAs(m, x.callIDs) {
				next = append(next, child)
			}
		}
		for _, v := range m.moved {
			for _, child := range n.children[v.key] {
				if child.answer && child.said.reasoning == v.reasoning && child.said.comesBackAs(m, x.callIDs) {
					next = append(next, child)
				}
			}
		}
	}
	return next
}

// descend follows messages from a root as far as they are known. at is the number of messages that are, front where they
// lead.
func (x *Index) descend(root *node, messages []*said) (front []*node, at int) {
	if root == nil {
		return nil, 0
	}
	front = []*node{root}
	var spare []*node
	for at < len(messages) {
		next := x.follow(spare[:0], front, messages[at])
		if len(next) == 0 {
			break
		}
		front, spare, at = next, front, at+1
	}
	return front, at
}

// Add takes in a recorded call. Every choice with usable ids can be carried on from now on.
func (x *Index) Add(c *record.Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.calls.add(c.Number) || !c.Outcome.IsNode() || len(c.Choices) == 0 {
		return
	}
	key := setting(c.Tools, c.Template)
	root := x.roots[key]
	if root == nil {
		root = &node{}
		x.roots[key], x.order = root, append(x.order, key)
	}
	at := x.place(root, x.readAll(c.Messages), c.Choices[0].PromptIDs)
	var sibling *Turn
	for i := range c.Choices {
		ch := &c.Choices[i]
		reply := x.read(ch.Message, "assistant")
		n := &node{said: reply, answer: true, above: at.above}
		x.spoken[reply.key] = true
		for _, id := range reply.ids {
			if id != "" {
				x.callIDs[id] = true
			}
		}
		if usable(ch) {
			base := sibling
			if base == nil {
				base = at.above
			}
			if base == nil {
				base = root.last
			}
			t := newTurn(base, ch.PromptIDs, ch.SampledIDs)
			t.Call, t.Choice, t.Cut = c.Number, ch.Index, cut(ch)
			n.turn, n.above, root.last, sibling = t, t, t, t
			x.turns = append(x.turns, n)
			x.held += len(t.own)
		}
		x.child(at, n)
		x.answers = append(x.answers, n)
	}
	x.forget()
	x.prune(maxNodes)
}

// place returns the node of a request's last message, growing the tree where it ends. Where answers that look alike lead on,
// the one counts that the prompt begins with.
func (x *Index) place(root *node, messages []*said, prompt []int32) *node {
	front, at := x.descend(root, messages)
	n := front[len(front)-1]
	if i := slices.IndexFunc(front, func(n *node) bool {
		return n.above != nil && n.above.common(prompt, nil) == n.above.Len()
	}); i >= 0 {
		n = front[i]
	}
	for _, m := range messages[at:] {
		next := &node{said: m, above: n.above}
		x.child(n, next)
		n = next
	}
	return n
}

func (x *Index) child(n, c *node) {
	if n.children == nil {
		n.children = map[sum][]*node{}
	}
	n.children[c.said.key] = append(n.children[c.said.key], c)
	c.up = n
	x.nodes++
}

// usable says whether an answer's ids are what the engine sampled, to the end.
func usable(ch *record.Choice) bool {
	return (ch.Outcome == record.Complete || ch.Outcome == record.Length) && len(ch.PromptIDs) > 0 && len(ch.SampledIDs) > 0 && len(ch.Message) > 0
}

// cut says whether an answer was ended from outside: by the output cap, or by a stop string, whose ids are sampled while the
// template's end marker is not.
func cut(ch *record.Choice) bool {
	return ch.FinishReason == "length" || len(ch.StopReason) > 0 && ch.StopReason[0] == '"'
}

// forget drops the oldest turns that nobody carried on, until the rest fits.
func (x *Index) forget() {
	if x.held <= maxHeld {
		return
	}
	kept := x.turns[:0]
	for i, n := range x.turns {
		if x.held <= maxHeld || n.turn.users > 0 || i == len(x.turns)-1 {
			kept = append(kept, n)
			continue
		}
		x.drop(n)
	}
	clear(x.turns[len(kept):])
	x.turns = kept
}

// drop takes a node's turn away, whose ids no other turn needs, and every way to it: who was given it may still read its ids.
func (x *Index) drop(n *node) {
	t := n.turn
	x.held -= len(t.own)
	if t.base != nil {
		t.base.users--
	}
	n.turn = nil
	root, above := n, n.up.above
	for root.up != nil {
		root = root.up
	}
	if root.last == t {
		root.last = nil
	}
	for list := []*node{n}; len(list) > 0; {
		at := list[len(list)-1]
		if list = list[:len(list)-1]; at.above != t {
			continue
		}
		at.above = above
		for _, variants := range at.children {
			list = append(list, variants...)
		}
	}
}

// prune removes the oldest answers that nothing follows, with the messages that led to them alone, until at most so many nodes are
// left. The newest answer stays.
func (x *Index) prune(most int) {
	if x.nodes <= most {
		return
	}
	x.pruned = true
	var kept []*node
	for i, n := range x.answers {
		switch {
		case len(n.children) > 0: // an answer that follows it brings it here again
		case x.nodes <= most*3/4 || i == len(x.answers)-1: // some room, so that it is not looked for with every call
			kept = append(kept, n)
		default:
			if stopped := x.cutOff(n); stopped != nil {
				kept = append(kept, stopped)
			}
		}
	}
	x.answers = kept
	x.turns = slices.DeleteFunc(x.turns, func(n *node) bool { return n.turn == nil })
}

// cutOff removes a node that nothing follows, and those above it that then have nothing below. It returns the answer at which it had
// to stop because other turns need its ids, wherever those stand; nil when it stopped elsewhere.
func (x *Index) cutOff(n *node) *node {
	for n.up != nil && len(n.children) == 0 {
		if n.turn != nil && n.turn.users > 0 {
			return n
		}
		if n.turn != nil {
			x.drop(n)
		}
		up := n.up
		rest := slices.DeleteFunc(up.children[n.said.key], func(other *node) bool { return other == n })
		if up.children[n.said.key] = rest; len(rest) == 0 {
			delete(up.children, n.said.key)
		}
		x.nodes--
		n = up
	}
	return nil
}
