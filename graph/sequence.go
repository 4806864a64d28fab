package graph

// Span is the place of one turn's sampled tokens in a sequence.
type Span struct {
	Node       int
	Start, End int
	Usable     bool
}

// Sequence is one path from a root to a leaf, flattened.
type Sequence struct {
	Nodes []int

	InputIDs []int32
	LossMask []uint8
	Logprobs []float64

	PromptLen   int
	TurnLengths []int  // sampled count of each usable turn that sampled something
	Spans       []Span // of each turn that sampled something
	// Shared are those of Spans that an earlier sequence trains too; Share sets it.
	Shared []Span
}

// Trainable counts the tokens with mask 1.
func (s *Sequence) Trainable() int {
	n := 0
	for _, m := range s.LossMask {
		n += int(m)
	}
	return n
}

// Sequences flattens every path, in arrival order of the leaves, discarded ones too. A turn that lies on several is
// trained on each; see Share. A path without ids has no tokens.
func (g *Graph) Sequences() []Sequence {
	leaves := g.Leaves()
	seqs := make([]Sequence, len(leaves))
	for k, leaf := range leaves {
		seqs[k] = g.flatten(leaf)
	}
	return seqs
}

func (g *Graph) flatten(leaf int) Sequence {
	s := Sequence{Nodes: g.Path(leaf)}
	last := g.Nodes[leaf].Turn
	if !last.hasIDs() {
		return s
	}
	// The leaf's prompt holds the whole path: every parent's end is an exact prefix of its child's prompt.
	s.InputIDs = make([]int32, 0, last.end())
	s.InputIDs = append(append(s.InputIDs, last.Prompt...), last.Sampled...)
	s.LossMask = make([]uint8, last.end())
	s.Logprobs = make([]float64, last.end())
	s.PromptLen = len(g.Nodes[s.Nodes[0]].Turn.Prompt)
	for _, i := range s.Nodes {
		t := g.Nodes[i].Turn
		if len(t.Sampled) == 0 {
			continue
		}
		span := Span{Node: i, Start: len(t.Prompt), End: t.end(), Usable: t.Usable}
		s.Spans = append(s.Spans, span)
		if t.Usable {
			s.TurnLengths = append(s.TurnLengths, len(t.Sampled))
			copy(s.Logprobs[span.Start:span.End], t.Logprobs)
			for k := span.Start; k < span.End; k++ {
				s.LossMask[k] = 1
			}
		}
	}
	return s
}

// Share finds the spans that an earlier sequence trains too, in the order given; trains says which sequences are
// trained at all. With once, such spans are context wherever they come again: mask 0, logprob 0.
func Share(seqs []Sequence, trains func(i int) bool, once bool) {
	trained := map[int]bool{}
	for i := range seqs {
		s := &seqs[i]
		for _, span := range s.Spans {
			if !span.Usable || !trained[span.Node] {
				continue
			}
			s.Shared = append(s.Shared, span)
			if once {
				clear(s.LossMask[span.Start:span.End])
				clear(s.Logprobs[span.Start:span.End])
			}
		}
		if !trains(i) {
			continue
		}
		for _, span := range s.Spans {
			if span.Usable {
				trained[span.Node] = true
			}
		}
	}
}
