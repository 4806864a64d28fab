package graph

import "slices"

// findDiscards marks the siblings that led nowhere while another went on, and notes the groups in which none did.
func (g *Graph) findDiscards(prompts []promptKey) {
	for _, group := range g.siblings(prompts) {
		if slices.ContainsFunc(group, g.continued) {
			g.discardFrom(group, prompts)
		} else {
			g.noteAmbiguous(group, prompts)
		}
	}
	slices.SortFunc(g.Ambiguous, slices.Compare)
}

func (g *Graph) continued(i int) bool { return len(g.Nodes[i].Children) > 0 }

// siblings returns the groups of two and more: the children of one turn, and the roots with one prompt.
func (g *Graph) siblings(prompts []promptKey) [][]int {
	var groups [][]int
	for i := range g.Nodes {
		if c := g.Nodes[i].Children; len(c) > 1 {
			groups = append(groups, c)
		}
	}
	return append(groups, byPrompt(g.Roots(), prompts)...)
}

// byPrompt returns those of the nodes that share their prompt with another, grouped.
func byPrompt(nodes []int, prompts []promptKey) [][]int {
	at := map[promptKey]int{}
	var groups [][]int
	for _, i := range nodes {
		key := prompts[i]
		if key.node == 0 {
			continue // empty prompts say nothing about each other
		}
		k, seen := at[key]
		if !seen {
			k = len(groups)
			at[key] = k
			groups = append(groups, nil)
		}
		groups[k] = append(groups[k], i)
	}
	return slices.DeleteFunc(groups, func(group []int) bool { return len(group) < 2 })
}

func (g *Graph) discardFrom(group []int, prompts []promptKey) {
	retried := map[promptKey]bool{}
	for _, i := range group {
		if g.continued(i) {
			retried[prompts[i]] = true
		}
	}
	for _, i := range group {
		if g.continued(i) {
			continue
		}
		n := &g.Nodes[i]
		n.Discarded, n.Reason = true, Abandoned
		if retried[prompts[i]] {
			n.Reason = Retry
		}
	}
}

func (g *Graph) noteAmbiguous(group []int, prompts []promptKey) {
	g.Ambiguous = append(g.Ambiguous, byPrompt(group, prompts)...)
}
