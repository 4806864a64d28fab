package continuity

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"captureproxy/internal/record"
)

// grown plays a conversation of so many turns. With changing, its system prompt is another one in every call, and so are the ids.
func grown(x *Index, turns int, changing bool) (last *record.Call) {
	var history []json.RawMessage
	var ids []int32
	for n := 1; n <= turns; n++ {
		mark := 0
		if changing {
			mark = n
		}
		history = append(history, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%040d"}`, n)))
		for range 20 {
			ids = append(ids, int32(len(ids)))
		}
		system := json.RawMessage(fmt.Sprintf(`{"role":"system","content":"%040d"}`, mark))
		reply := json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"%040d"}`, n))
		last = &record.Call{Number: n, Outcome: record.Complete, Messages: append([]json.RawMessage{system}, history...),
			Choices: []record.Choice{{Outcome: record.Complete, PromptIDs: append([]int32{int32(mark)}, ids...), SampledIDs: []int32{1, 2, 3}, Message: reply}}}
		x.Add(last)
		history = append(history, reply)
	}
	return last
}

// reachable counts the nodes and turns that the index can still come to.
func reachable(x *Index) (nodes int, turns map[*Turn]bool) {
	turns = map[*Turn]bool{}
	var list []*node
	for _, root := range x.roots {
		list = append(list, root)
		nodes--
	}
	for len(list) > 0 {
		n := list[len(list)-1]
		list = list[:len(list)-1]
		nodes++
		for _, t := range []*Turn{n.turn, n.above, n.last} {
			for ; t != nil; t = t.base {
				turns[t] = true
			}
		}
		for _, variants := range n.children {
			list = append(list, variants...)
		}
	}
	return nodes, turns
}

// asks is what comes after a call.
func asks(after *record.Call) Request {
	return Request{Messages: append(slices.Clone(after.Messages), after.Choices[0].Message, json.RawMessage(`{"role":"user","content":"and?"}`))}
}

// One conversation takes a node per message, however often it is sent; one whose beginning changes is bounded, and what goes is the
// oldest.
func TestNodesAreBounded(t *testing.T) {
	x := NewIndex()
	last := grown(x, 300, false)
	if nodes, _ := reachable(x); nodes != 601 || x.nodes != nodes || x.pruned {
		t.Errorf("%d nodes can be reached, %d are counted, pruned %t", nodes, x.nodes, x.pruned)
	}
	if m := x.Find(asks(last)); m.Turn == nil || m.Turn.Call != 300 {
		t.Errorf("%+v", m)
	}

	x = NewIndex()
	last = grown(x, 600, true) // 362,000 messages in their places
	nodes, turns := reachable(x)
	if x.nodes > maxNodes || x.nodes != nodes || !x.pruned {
		t.Errorf("%d nodes can be reached, %d are counted, pruned %t", nodes, x.nodes, x.pruned)
	}
	held := 0
	for turn := range turns {
		held += len(turn.own)
	}
	if held != x.held || len(turns) != len(x.turns) {
		t.Errorf("%d ids of %d turns can be reached, %d of %d are counted", held, len(turns), x.held, len(x.turns))
	}
	m := x.Find(asks(last))
	if m.Turn == nil || m.Turn.Call != 600 {
		t.Fatalf("the last turn is gone: %+v", m)
	}
	if got := m.Turn.AppendIDs(nil); !slices.Equal(got, append(slices.Clone(last.Choices[0].PromptIDs), 1, 2, 3)) {
		t.Errorf("%d ids, the last turn has %d", len(got), m.Turn.Len())
	}
	gone := grown(NewIndex(), 5, true)
	if m := x.Find(asks(gone)); m.Turn != nil || m.Reason == "" || m.Detail == "" {
		t.Errorf("%+v", m)
	}
}

// A branch that is cut off leaves what others stand on: the trunk and its ids.
func TestPruneKeepsWhatOthersNeed(t *testing.T) {
	x := NewIndex()
	trunk := grown(x, 20, false)
	before := x.nodes
	for n := range 50 { // branches that all go on from the trunk's last answer
		r := asks(trunk)
		r.Messages = append(r.Messages[:len(r.Messages)-1:len(r.Messages)-1], json.RawMessage(fmt.Sprintf(`{"role":"user","content":"branch %d"}`, n)))
		prompt := append(slices.Concat(trunk.Choices[0].PromptIDs, trunk.Choices[0].SampledIDs), int32(900+n))
		x.Add(&record.Call{Number: 100 + n, Outcome: record.Complete, Messages: r.Messages, Choices: []record.Choice{{Outcome: record.Complete,
			PromptIDs: prompt, SampledIDs: []int32{7}, Message: json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, n))}}})
	}
	x.prune(before + 40)
	nodes, turns := reachable(x)
	if x.nodes != nodes || nodes > before+40 || nodes < before {
		t.Errorf("%d nodes can be reached, %d are counted, the trunk has %d", nodes, x.nodes, before)
	}
	held := 0
	for turn := range turns {
		held += len(turn.own)
	}
	if held != x.held {
		t.Errorf("%d ids can be reached, %d are counted", held, x.held)
	}
	if m := x.Find(asks(trunk)); m.Turn == nil || m.Turn.Call != 20 {
		t.Errorf("the trunk is gone: %+v", m)
	}
	x.prune(0) // all but the newest answer
	if nodes, _ := reachable(x); x.nodes != nodes || nodes != before+2 {
		t.Errorf("%d nodes are left, %d are counted, want those of the newest answer, %d", nodes, x.nodes, before+2)
	}
}

// Ids that are forgotten can no longer be reached, and so do not lie in memory for nothing.
func TestForgottenIDsAreFree(t *testing.T) {
	x := NewIndex()
	prompt := make([]int32, 5<<20)
	for n := range 5 {
		p := slices.Clone(prompt)
		p[0] = int32(n + 1)
		x.Add(call(n+1, messages(user(fmt.Sprint(n))), answer, p, []int32{1}))
	}
	_, turns := reachable(x)
	held := 0
	for turn := range turns {
		held += len(turn.own)
	}
	if held != x.held {
		t.Errorf("%d ids can be reached, %d are counted", held, x.held)
	}
}

// BenchmarkFindAmongSettings asks for a history whose tools were others in every call.
func BenchmarkFindAmongSettings(b *testing.B) {
	for _, settings := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(settings), func(b *testing.B) {
			x := NewIndex()
			last := grown(x, 100, false)
			tools := func(n int) []json.RawMessage {
				return []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"name":"t%d"}`, n))}
			}
			for n := range settings {
				c := *last
				c.Number, c.Tools = 1000+n, tools(n)
				x.Add(&c)
			}
			r := asks(last)
			r.Tools = tools(-1)
			r.Messages[len(r.Messages)-2] = json.RawMessage(`{"role":"assistant","content":"never said"}`)
			b.ReportAllocs()
			for b.Loop() {
				if m := x.Find(r); m.Turn != nil {
					b.Fatal(m)
				}
			}
		})
	}
}
