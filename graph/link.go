package graph

// A promptKey names a turn's prompt: two turns have the same prompt when their keys are equal and not empty.
type promptKey struct {
	kind LinkKind
	node int32 // 0: the empty prompt
}

// sequence is a turn as one tree sees it: token ids, or messages as interned ids.
type sequence struct {
	node            int // of the graph
	prompt, sampled []int32
}

// linkParents sets each node's parent and link, and returns the prompt of each node.
func (g *Graph) linkParents() []promptKey {
	var tokens, messages []sequence
	var names *interner
	for i := range g.Nodes {
		t := g.Nodes[i].Turn
		if t.hasIDs() {
			tokens = append(tokens, sequence{i, t.Prompt, t.Sampled})
			continue
		}
		if names == nil {
			names = newInterner()
		}
		s := sequence{node: i}
		_, s.prompt = names.conversation(t.Request)
		if hasReply(t) {
			s.sampled = []int32{names.reply(t.Reply).id}
		}
		messages = append(messages, s)
	}
	prompts := make([]promptKey, len(g.Nodes))
	g.linkSequences(tokens, ByTokens, prompts)
	g.linkSequences(messages, ByMessages, prompts)
	return prompts
}

// linkSequences links the turns of one tree. They come in arrival order.
func (g *Graph) linkSequences(seqs []sequence, kind LinkKind, prompts []promptKey) {
	if len(seqs) == 0 {
		return
	}
	tree := newTrie()
	ends := make([]int32, len(seqs))
	for i, s := range seqs {
		at := tree.insert(0, s.prompt)
		prompts[s.node] = promptKey{kind, at}
		ends[i] = tree.insert(at, s.sampled)
	}
	marks := newMarks(len(tree.nodes))
	for i, s := range seqs {
		marks.add(ends[i], s)
	}
	for _, s := range seqs {
		if p := marks.parentOf(tree, prompts[s.node].node); p != None {
			g.Nodes[s.node].Parent, g.Nodes[s.node].Link = p, kind
		}
	}
}

// marks says which turns end at which node of a tree.
type marks struct {
	// any is the earliest turn that ends here, longer the earliest of those that sampled something, so that their
	// prompt is shorter than what ends here.
	any, longer []int
	// nearest caches the closest node from here upwards at which a turn ends; -1: not asked yet.
	nearest []int32
}

func newMarks(n int) *marks {
	m := &marks{any: make([]int, n), longer: make([]int, n), nearest: make([]int32, n)}
	for i := range n {
		m.any[i], m.longer[i], m.nearest[i] = None, None, -1
	}
	m.nearest[0] = 0
	return m
}

// add marks the end of s. The empty sequence is nobody's prefix.
func (m *marks) add(at int32, s sequence) {
	if at == 0 {
		return
	}
	if m.any[at] == None {
		m.any[at] = s.node
	}
	if m.longer[at] == None && len(s.sampled) > 0 {
		m.longer[at] = s.node
	}
}

// parentOf returns the turn with the longest end on the way up from a prompt, whose own prompt is shorter than it.
func (m *marks) parentOf(tree *trie, prompt int32) int {
	if prompt == 0 {
		return None
	}
	if m.longer[prompt] != None {
		return m.longer[prompt]
	}
	return m.any[m.up(tree, tree.nodes[prompt].up)]
}

// up returns the first node from at upwards at which a turn ends, or 0.
func (m *marks) up(tree *trie, at int32) int32 {
	end := at
	for m.nearest[end] == -1 && m.any[end] == None {
		end = tree.nodes[end].up
	}
	found := end
	if m.any[end] == None {
		found = m.nearest[end]
	}
	for ; at != end; at = tree.nodes[at].up {
		m.nearest[at] = found
	}
	return found
}
