package graph

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVectors(t *testing.T) {
	for _, v := range loadVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			checkVector(t, v, v.Every, false)
			checkVector(t, v, v.Once, true)
		})
	}
}

func checkVector(t *testing.T, v vector, want vectorExpect, once bool) {
	t.Helper()
	g := Link(v.turns())
	for i, n := range g.Nodes {
		parent := want.Parents[n.Turn.ID]
		switch {
		case parent == nil && n.Parent != None:
			t.Errorf("%s: parent %s, want a root", n.Turn.ID, g.Nodes[n.Parent].Turn.ID)
		case parent != nil && (n.Parent == None || g.Nodes[n.Parent].Turn.ID != *parent):
			t.Errorf("%s: parent %d, want %s", n.Turn.ID, n.Parent, *parent)
		}
		if root := g.Path(i)[0]; n.Root != root {
			t.Errorf("%s: root %d, want %d", n.Turn.ID, n.Root, root)
		}
	}
	same(t, "roots", g.ids(g.Roots()), want.Roots)
	same(t, "leaves", g.ids(g.Leaves()), want.Leaves)
	same(t, "forks", g.ids(g.Forks()), want.Forks)
	same(t, "discarded", g.ids(g.where(func(n *Node) bool { return n.Discarded })), want.Discarded)
	same(t, "stats", g.Stats(), Stats(want.Stats))

	rows := g.Sequences()
	if len(rows) != len(want.Sequences) {
		t.Fatalf("%d rows, want %d", len(rows), len(want.Sequences))
	}
	Share(rows, func(i int) bool {
		return want.Sequences[i].Role == "agent" && want.Sequences[i].NTrainable > 0
	}, once)
	for i, row := range rows {
		w := want.Sequences[i]
		same(t, "node_ids", g.ids(row.Nodes), w.NodeIDs)
		same(t, "root_id", g.Nodes[row.Nodes[0]].Turn.ID, w.RootID)
		same(t, "prompt_len", row.PromptLen, w.PromptLen)
		same(t, "turn_lengths", append([]int{}, row.TurnLengths...), w.TurnLengths)
		same(t, "turn_spans", pairs(row.Spans), w.TurnSpans)
		if w.Role == "agent" {
			same(t, "shared_spans", pairs(row.Shared), w.SharedSpans)
		}
		same(t, "input_ids", append([]int32{}, row.InputIDs...), w.InputIDs)
		same(t, "loss_mask", ints(row.LossMask), w.LossMask)
		same(t, "logprobs", append([]float64{}, row.Logprobs...), w.Logprobs)
		same(t, "n_trainable", row.Trainable(), w.NTrainable)
	}
}

func ints(mask []uint8) []int {
	out := []int{}
	for _, m := range mask {
		out = append(out, int(m))
	}
	return out
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
