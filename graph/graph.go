package graph

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Turn is what linking needs to know of one answer to one call.
type Turn struct {
	ID      string
	Arrival int // position in the order in which the requests were accepted

	Prompt   []int32 // empty when the engine gave none: the turn is then linked by its messages
	Sampled  []int32
	Logprobs []float64 // of Sampled; read only where Usable
	// Usable says that the sampled tokens may be trained on; one finite logprob for each of them is then promised.
	Usable bool

	Request []json.RawMessage // the request's messages in OpenAI's chat format
	Reply   json.RawMessage   // the answering message, nil when there was none
	Tools   []json.RawMessage
	// Thread is the harness's own name for the conversation, where its headers tell one; empty otherwise.
	Thread string
}

// hasIDs reports whether the turn is linked by tokens.
func (t *Turn) hasIDs() bool { return len(t.Prompt) > 0 }

// end is the number of tokens of the prompt and what was sampled.
func (t *Turn) end() int { return len(t.Prompt) + len(t.Sampled) }

// endToken returns token i of prompt and sampled ids.
func (t *Turn) endToken(i int) int32 {
	if i < len(t.Prompt) {
		return t.Prompt[i]
	}
	return t.Sampled[i-len(t.Prompt)]
}

// LinkKind says by what a turn was linked to its parent.
type LinkKind string

// Kinds of links; a root has none.
const (
	ByTokens   LinkKind = "tokens"
	ByMessages LinkKind = "messages"
)

// DiscardReason says why a turn that led nowhere is taken for discarded.
type DiscardReason string

// Reasons of a discard.
const (
	Retry     DiscardReason = "retry"     // a sibling with the same prompt went on
	Abandoned DiscardReason = "abandoned" // a sibling with another prompt went on
)

// None stands where there is no node.
const None = -1

// Node is a turn and its place in the graph. Nodes are named by their index in Graph.Nodes.
type Node struct {
	Turn     *Turn
	Parent   int // None for a root
	Link     LinkKind
	Root     int
	Children []int // in arrival order

	Discarded bool
	Reason    DiscardReason

	// Continues is, for a root, the earlier turn whose conversation its messages carry on although its tokens do
	// not; None otherwise. Break says where and probably why. Both are hints for people, never an edge.
	Continues int
	Break     *Break
}

// Graph is a session's turns, linked.
type Graph struct {
	Nodes []Node // in arrival order
	// Ambiguous lists the siblings with one prompt of which none was continued: retries or samples, nobody can tell.
	Ambiguous [][]int
}

// Stats counts the shape of a graph.
type Stats struct{ Turns, Roots, Leaves, Forks, Discarded int }

// Link builds the graph of a set of turns. The order of the slice does not matter.
func Link(turns []Turn) *Graph {
	g := &Graph{Nodes: make([]Node, len(turns))}
	order := make([]*Turn, len(turns))
	for i := range turns {
		order[i] = &turns[i]
	}
	slices.SortStableFunc(order, func(a, b *Turn) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.ID, b.ID))
	})
	for i, t := range order {
		g.Nodes[i] = Node{Turn: t, Parent: None, Root: i, Continues: None}
	}
	prompts := g.linkParents()
	g.setChildren()
	g.findDiscards(prompts)
	g.explainRoots()
	return g
}

func (g *Graph) setChildren() {
	for i := range g.Nodes {
		if p := g.Nodes[i].Parent; p != None {
			g.Nodes[p].Children = append(g.Nodes[p].Children, i)
		}
	}
	below := g.Roots()
	for len(below) > 0 {
		i := below[len(below)-1]
		below = below[:len(below)-1]
		for _, c := range g.Nodes[i].Children {
			g.Nodes[c].Root = g.Nodes[i].Root
			below = append(below, c)
		}
	}
}

func (g *Graph) where(keep func(*Node) bool) []int {
	var found []int
	for i := range g.Nodes {
		if keep(&g.Nodes[i]) {
			found = append(found, i)
		}
	}
	return found
}

// Roots returns the turns that extend nothing, in arrival order.
func (g *Graph) Roots() []int { return g.where(func(n *Node) bool { return n.Parent == None }) }

// Leaves returns the turns that nothing extends, in arrival order.
func (g *Graph) Leaves() []int { return g.where(func(n *Node) bool { return len(n.Children) == 0 }) }

// Forks returns the turns with several children, in arrival order.
func (g *Graph) Forks() []int { return g.where(func(n *Node) bool { return len(n.Children) > 1 }) }

// Path returns the nodes from the root down to node i.
func (g *Graph) Path(i int) []int {
	var path []int
	for ; i != None; i = g.Nodes[i].Parent {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

// Stats counts the graph.
func (g *Graph) Stats() Stats {
	return Stats{
		Turns: len(g.Nodes), Roots: len(g.Roots()), Leaves: len(g.Leaves()), Forks: len(g.Forks()),
		Discarded: len(g.where(func(n *Node) bool { return n.Discarded })),
	}
}
