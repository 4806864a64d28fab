package graph

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bruteParents links by the letter of SPEC 4, comparing every turn with every other.
func bruteParents(turns []Turn) map[string]string {
	parents := map[string]string{}
	for _, t := range turns {
		best, bestEnd := -1, -1
		for k, u := range turns {
			prompt, end := bruteSequence(u)
			mine, _ := bruteSequence(t)
			if u.hasIDs() != t.hasIDs() || len(end) == 0 || len(prompt) >= len(mine) || len(end) > len(mine) {
				continue
			}
			if !slices.Equal(end, mine[:len(end)]) {
				continue
			}
			if len(end) > bestEnd || len(end) == bestEnd && u.Arrival < turns[best].Arrival {
				best, bestEnd = k, len(end)
			}
		}
		if best >= 0 {
			parents[t.ID] = turns[best].ID
		}
	}
	return parents
}

// bruteSequence spells a turn's prompt and end as strings, tokens or messages alike.
func bruteSequence(t Turn) (prompt, end []string) {
	if t.hasIDs() {
		for _, id := range t.Prompt {
			prompt = append(prompt, fmt.Sprint(id))
		}
		end = slices.Clone(prompt)
		for _, id := range t.Sampled {
			end = append(end, fmt.Sprint(id))
		}
		return prompt, end
	}
	system := true
	for _, raw := range t.Request {
		m := parseMessage(raw, "")
		if system = system && m.leads(); !system {
			prompt = append(prompt, m.identity())
		}
	}
	end = slices.Clone(prompt)
	if t.Reply != nil {
		m := parseMessage(t.Reply, "assistant")
		end = append(end, m.identity())
	}
	return prompt, end
}

func parentsOf(g *Graph) map[string]string {
	parents := map[string]string{}
	for _, n := range g.Nodes {
		if n.Parent != None {
			parents[n.Turn.ID] = g.Nodes[n.Parent].Turn.ID
		}
	}
	return parents
}

// drawTurns makes sessions over tiny alphabets, in which most turns extend, repeat or nearly extend another.
func drawTurns(t *rapid.T) []Turn {
	token := rapid.Int32Range(0, 2)
	tokens := rapid.SliceOfN(token, 0, 3)
	text := rapid.SampledFrom([]string{"x", "y"})
	role := rapid.SampledFrom([]string{"user", "assistant", "system"})
	var turns []Turn
	for i := range rapid.IntRange(0, 14).Draw(t, "n") {
		turn := Turn{ID: fmt.Sprint("t", i), Sampled: tokens.Draw(t, "sampled")}
		turn.Logprobs, turn.Usable = ones(len(turn.Sampled)), rapid.Bool().Draw(t, "usable")
		var base Turn
		if len(turns) > 0 {
			base = turns[rapid.IntRange(0, len(turns)-1).Draw(t, "base")]
		}
		if rapid.Float64Range(0, 1).Draw(t, "ids") < 0.7 {
			turn.Prompt = slices.Concat(base.Prompt, base.Sampled, tokens.Draw(t, "more"))
		}
		turn.Request = slices.Clone(base.Request)
		if base.Reply != nil {
			turn.Request = append(turn.Request, base.Reply)
		}
		for range rapid.IntRange(0, 2).Draw(t, "new messages") {
			turn.Request = append(turn.Request, say(role.Draw(t, "role"), text.Draw(t, "text")))
		}
		if rapid.Bool().Draw(t, "replied") {
			turn.Reply = say("assistant", text.Draw(t, "reply"))
		}
		turns = append(turns, turn)
	}
	arrivals := rapid.Permutation(indexes(len(turns))).Draw(t, "arrivals")
	for i := range turns {
		turns[i].Arrival = arrivals[i]
	}
	return turns
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestLinkAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := drawTurns(t)
		if got, want := parentsOf(Link(turns)), bruteParents(turns); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("parents %v, want %v", got, want)
		}
	})
}

func TestLinkIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns := drawTurns(t)
		shuffled := rapid.Permutation(turns).Draw(t, "shuffled")
		a, b := describe(Link(turns)), describe(Link(shuffled))
		if a != b {
			t.Fatalf("the order of the slice matters:\n%s\n%s", a, b)
		}
	})
}

// describe spells all that linking derives.
func describe(g *Graph) string {
	type line struct {
		ID, Parent, Root, Continues string
		Link                        LinkKind
		Reason                      DiscardReason
		Break                       *Break
	}
	name := func(i int) string {
		if i == None {
			return ""
		}
		return g.Nodes[i].Turn.ID
	}
	var lines []line
	for _, n := range g.Nodes {
		lines = append(lines, line{n.Turn.ID, name(n.Parent), name(n.Root), name(n.Continues), n.Link, n.Reason, n.Break})
	}
	b, err := json.Marshal([]any{lines, g.Ambiguous})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestSequencesHoldExactlyWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Link(drawTurns(t))
		once := rapid.Bool().Draw(t, "once")
		rows := g.Sequences()
		all := func(int) bool { return true }
		Share(rows, all, once)
		trained := map[int]int{}
		for _, row := range rows {
			checkRow(t, g, row)
			for _, s := range row.Spans {
				if s.Usable && row.LossMask[s.Start] == 1 {
					trained[s.Node]++
				}
			}
		}
		for i, n := range g.Nodes {
			usable := n.Turn.Usable && n.Turn.hasIDs() && len(n.Turn.Sampled) > 0
			switch {
			case !usable && trained[i] != 0:
				t.Fatalf("%s is trained", n.Turn.ID)
			case usable && trained[i] == 0, usable && once && trained[i] != 1:
				t.Fatalf("%s is trained %d times, once=%v", n.Turn.ID, trained[i], once)
			}
		}
	})
}

func checkRow(t *rapid.T, g *Graph, row Sequence) {
	leaf := g.Nodes[row.Nodes[len(row.Nodes)-1]].Turn
	if leaf.hasIDs() && !slices.Equal(row.InputIDs, slices.Concat(leaf.Prompt, leaf.Sampled)) {
		t.Fatalf("row %v is not what the engine saw", row.InputIDs)
	}
	if len(row.InputIDs) != len(row.LossMask) || len(row.InputIDs) != len(row.Logprobs) {
		t.Fatalf("lengths differ: %d %d %d", len(row.InputIDs), len(row.LossMask), len(row.Logprobs))
	}
	covered := 0
	for _, s := range row.Spans {
		turn := g.Nodes[s.Node].Turn
		if !slices.Equal(row.InputIDs[s.Start:s.End], turn.Sampled) {
			t.Fatalf("span %v is not what %s sampled", s, turn.ID)
		}
		for k := s.Start; k < s.End; k++ {
			covered += int(row.LossMask[k])
		}
	}
	if covered != row.Trainable() {
		t.Fatalf("mask 1 outside of the sampled spans")
	}
	for k, m := range row.LossMask {
		if m == 0 && row.Logprobs[k] != 0 {
			t.Fatalf("a logprob under mask 0 at %d", k)
		}
	}
}

// FuzzLink reads turns off the bytes: a length and tokens for the prompt, the same for the sample.
func FuzzLink(f *testing.F) {
	f.Add([]byte{1, 1, 1, 2, 2, 1, 2, 1, 3})
	f.Add([]byte{2, 1, 1, 0, 3, 1, 1, 2, 1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var turns []Turn
		next := func() []int32 {
			if len(data) == 0 {
				return nil
			}
			n := min(int(data[0]%8), len(data)-1)
			var ids []int32
			for _, b := range data[1 : 1+n] {
				ids = append(ids, int32(b%3))
			}
			data = data[1+n:]
			return ids
		}
		for len(data) > 0 && len(turns) < 64 {
			p, s := next(), next()
			turns = append(turns, sampled(fmt.Sprint("t", len(turns)), len(turns), p, s))
		}
		if got, want := parentsOf(Link(turns)), bruteParents(turns); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("parents %v, want %v", got, want)
		}
	})
}
