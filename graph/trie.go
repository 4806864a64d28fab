package graph

// A trie is a radix tree over sequences of int32. Node 0 is the empty sequence. A node, once returned, keeps standing
// for its sequence: splitting an edge makes a new node above it. Labels are slices of what was inserted.
type trie struct {
	nodes []trieNode
	// others holds the children beyond each node's first: most nodes have exactly one.
	others map[edge]int32
}

type trieNode struct {
	label []int32 // from the node above to this one
	up    int32
	first int32 // first child, 0 for none
	many  bool  // more children stand in trie.others
}

type edge struct{ from, token int32 }

func newTrie() *trie {
	return &trie{nodes: make([]trieNode, 1, 64), others: map[edge]int32{}}
}

// insert goes down from node at along seq, growing the tree where it ends, and returns the node of at+seq.
func (t *trie) insert(at int32, seq []int32) int32 {
	for len(seq) > 0 {
		child := t.child(at, seq[0])
		if child == 0 {
			return t.add(at, seq)
		}
		n := commonPrefix(t.nodes[child].label, seq)
		if n < len(t.nodes[child].label) {
			child = t.split(child, n)
		}
		at, seq = child, seq[n:]
	}
	return at
}

// child returns the child of at whose label begins with token, or 0.
func (t *trie) child(at, token int32) int32 {
	n := &t.nodes[at]
	if n.first != 0 && t.nodes[n.first].label[0] == token {
		return n.first
	}
	if n.many {
		return t.others[edge{at, token}]
	}
	return 0
}

func (t *trie) add(at int32, seq []int32) int32 {
	id := int32(len(t.nodes))
	t.nodes = append(t.nodes, trieNode{label: seq, up: at})
	if parent := &t.nodes[at]; parent.first == 0 {
		parent.first = id
	} else {
		parent.many = true
		t.others[edge{at, seq[0]}] = id
	}
	return id
}

// split puts a node into the edge above child, n tokens down, and returns it.
func (t *trie) split(child int32, n int) int32 {
	mid := int32(len(t.nodes))
	low := &t.nodes[child]
	up, label := low.up, low.label
	low.up, low.label = mid, label[n:]
	t.nodes = append(t.nodes, trieNode{label: label[:n], up: up, first: child})
	if t.nodes[up].first == child {
		t.nodes[up].first = mid
	} else {
		t.others[edge{up, label[0]}] = mid
	}
	return mid
}

// commonPrefix counts the leading tokens that a and b share.
func commonPrefix(a, b []int32) int {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) == 0 || &a[0] == &b[0] {
		return len(a) // the very same memory, as prompts that a store keeps once
	}
	b = b[:len(a)]
	for i, token := range a {
		if b[i] != token {
			return i
		}
	}
	return len(a)
}
