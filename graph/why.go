package graph

import (
	"encoding/json"
	"slices"
)

// explainRoots looks, for each root with ids, for an earlier turn whose conversation its messages carry on, and says
// where the tokens part. A session with one root costs nothing here.
func (g *Graph) explainRoots() {
	last := None
	roots := g.Roots()
	for _, i := range roots {
		if g.Nodes[i].Turn.hasIDs() {
			last = i
		}
	}
	if len(roots) < 2 || last == None {
		return
	}
	past := newPast()
	for i := range g.Nodes[:last+1] {
		n := &g.Nodes[i]
		talk := past.read(n.Turn)
		if n.Parent == None && n.Turn.hasIDs() {
			if u := past.continuedBy(n.Turn, talk); u != None {
				n.Continues, n.Break = u, g.explain(u, i)
			}
		}
		past.add(i, talk)
	}
}

// talk is a turn's conversation as numbers, see interner.
type talk struct {
	request []int32
	reply   []int32 // empty or one
	replyOf seen
	setting setting
}

// setting is what stands around a conversation: system text, tools and the harness's name for the thread. The first
// two are nodes of past.settings; 0 stands for none.
type setting struct {
	system, tools int32
	thread        string
}

// past holds the conversations of the turns seen so far, in arrival order.
type past struct {
	names    *interner
	manifest map[string]int32 // tools by their bytes
	settings *trie

	tree *trie
	// Per node of tree: the latest turn whose conversation passes here, and the earliest whose answer ends here.
	passed, ended []int

	silence   int32           // the number of an answer without text or calls, which says nothing
	byReply   map[int32]int   // number of an answer → the latest turn that gave it
	byCall    map[string]int  // id of a tool call → the turn that made it
	bySetting map[setting]int // the latest turn with more than its opening
	length    map[int]int     // messages of such a turn
}

func newPast() *past {
	names := newInterner()
	silent := message{role: "assistant"}
	return &past{
		names: names, silence: names.number(silent.identity()), manifest: map[string]int32{}, settings: newTrie(),
		tree:    newTrie(),
		byReply: map[int32]int{}, byCall: map[string]int{}, bySetting: map[setting]int{}, length: map[int]int{},
	}
}

func (p *past) read(t *Turn) talk {
	system, request := p.names.conversation(t.Request)
	c := talk{request: request, setting: setting{p.settings.insert(0, system), p.tools(t.Tools), t.Thread}}
	if hasReply(t) {
		c.replyOf = p.names.reply(t.Reply)
		c.reply = []int32{c.replyOf.id}
	}
	return c
}

func (p *past) tools(tools []json.RawMessage) int32 {
	if len(tools) == 0 {
		return 0
	}
	ids := []int32{-1} // keeps manifests apart from system texts
	for _, raw := range tools {
		id, ok := p.manifest[string(raw)]
		if !ok {
			id = int32(len(p.manifest))
			p.manifest[string(raw)] = id
		}
		ids = append(ids, id)
	}
	return p.settings.insert(0, ids)
}

func (p *past) add(i int, c talk) {
	end := p.tree.insert(p.tree.insert(0, c.request), c.reply)
	for len(p.passed) < len(p.tree.nodes) {
		p.passed, p.ended = append(p.passed, None), append(p.ended, None)
	}
	for n := end; n != 0; n = p.tree.nodes[n].up {
		p.passed[n] = i
	}
	if p.ended[end] == None && len(c.reply) > 0 {
		p.ended[end] = i
	}
	if len(c.reply) > 0 && c.replyOf.id != p.silence {
		p.byReply[c.replyOf.id] = i
	}
	for _, id := range c.replyOf.callIDs {
		p.byCall[id] = i
	}
	if n := len(c.request) + len(c.reply); n > 2 {
		p.bySetting[c.setting], p.length[i] = i, n
	}
}

// continuedBy returns the earlier turn that c carries on, or None. What is certain comes first.
func (p *past) continuedBy(t *Turn, c talk) int {
	whole, opening := p.follow(c.request)
	if whole != None {
		return whole
	}
	if u := p.quoted(t.Request); u != None {
		return u
	}
	if opening != None {
		return opening
	}
	if s := c.setting; s.system != 0 && s.tools != 0 {
		if u, ok := p.bySetting[s]; ok && len(c.request) < p.length[u] {
			return u
		}
	}
	return None
}

// follow goes down the tree along a request: whole is the turn with the longest conversation that it repeats to its
// end, opening the latest that begins alike and then differs.
func (p *past) follow(request []int32) (whole, opening int) {
	whole, opening = None, None
	at, rest := int32(0), request
	for len(rest) > 0 {
		child := p.tree.child(at, rest[0])
		if child == 0 {
			break
		}
		label := p.tree.nodes[child].label
		n := commonPrefix(label, rest)
		if len(rest) > n {
			opening = p.passed[child]
		} else {
			opening = None // a repetition, or less than what was there
		}
		if n < len(label) {
			break
		}
		at, rest = child, rest[n:]
		if p.ended[at] != None {
			whole = p.ended[at]
		}
	}
	return whole, opening
}

// quoted returns the turn whose answer stands last among the messages.
func (p *past) quoted(messages []json.RawMessage) int {
	p.names.read(messages)
	for _, k := range slices.Backward(p.names.lastKeys) {
		s := p.names.known[k]
		if u, ok := p.byReply[s.id]; ok {
			return u
		}
		for _, id := range s.callIDs {
			if u, ok := p.byCall[id]; ok {
				return u
			}
		}
	}
	return None
}
