package graph

import (
	"encoding/json"
	"strings"
	"testing"
)

// The tests named BC… are the cases of shared/cases that concern linking.

func conversation(pairs ...string) []json.RawMessage {
	var ms []json.RawMessage
	for i := 0; i < len(pairs); i += 2 {
		ms = append(ms, say(pairs[i], pairs[i+1]))
	}
	return ms
}

func TestBC06_retry_and_new_sample(t *testing.T) {
	p := []int32{1, 2}
	a, b, c := sampled("A", 0, p, []int32{3}), sampled("B", 1, p, []int32{4}), sampled("C", 2, p, []int32{5})
	g := Link([]Turn{a, b, c})
	if len(g.Ambiguous) != 1 || len(g.Ambiguous[0]) != 3 || g.Stats().Discarded != 0 {
		t.Errorf("nothing went on: ambiguous %v, stats %+v", g.Ambiguous, g.Stats())
	}
	next := sampled("next", 3, []int32{1, 2, 4, 9}, []int32{6})
	g = Link([]Turn{a, b, c, next})
	for i, want := range []DiscardReason{Retry, "", Retry, ""} {
		if got := g.Nodes[i].Reason; got != want {
			t.Errorf("%s: reason %q, want %q", g.Nodes[i].Turn.ID, got, want)
		}
	}
	if len(g.Ambiguous) != 0 {
		t.Errorf("B went on, yet ambiguous %v", g.Ambiguous)
	}
}

func TestAbandonedSibling(t *testing.T) {
	g := Link([]Turn{
		sampled("root", 0, []int32{1}, []int32{2}),
		sampled("dead", 1, []int32{1, 2, 7}, []int32{3}),
		sampled("live", 2, []int32{1, 2, 8}, []int32{4}),
		sampled("next", 3, []int32{1, 2, 8, 4}, []int32{5}),
	})
	if n := g.Nodes[1]; !n.Discarded || n.Reason != Abandoned {
		t.Errorf("dead: %v %q", n.Discarded, n.Reason)
	}
}

func TestBC07_divergence_is_reported(t *testing.T) {
	q := conversation("user", "q")
	more := conversation("user", "q", "assistant", "a", "user", "r")
	link := func(s1, p2 []int32) *Node {
		a, b := sampled("1", 0, []int32{1, 2}, s1), sampled("2", 1, p2, []int32{8, 99})
		a.Request, a.Reply, b.Request = q, say("assistant", "a"), more
		return &Link([]Turn{a, b}).Nodes[1]
	}
	for name, n := range map[string]*Node{
		"A re-tokenised":            link([]int32{53, 31, 99}, []int32{1, 2, 39, 40, 99, 7}),
		"B the parser dropped text": link([]int32{20, 21, 22, 30, 31, 32, 99}, []int32{1, 2, 20, 21, 22, 99, 7}),
	} {
		wantBreak(t, name, n, 0, Retokenised)
	}
	n := link([]int32{53, 31, 99}, []int32{1, 2, 39, 40, 99, 7})
	if b := n.Break; *b.Position != 2 || !strings.Contains(b.Detail, "has 53") || !strings.Contains(b.Detail, "prompt 39") {
		t.Errorf("break %+v at %d", b, *b.Position)
	}
	if n := link([]int32{5, 99}, []int32{1, 2, 5, 99, 7}); n.Parent != 0 || n.Break != nil {
		t.Errorf("C is a clean extension, got parent %d, break %v", n.Parent, n.Break)
	}
}

func wantBreak(t *testing.T, name string, n *Node, continues int, cause Cause) {
	t.Helper()
	if n.Parent != None || n.Continues != continues || n.Break == nil || n.Break.Cause != cause {
		t.Errorf("%s: parent %d, continues %d, break %+v; want root, %d, %s", name, n.Parent, n.Continues, n.Break, continues, cause)
	}
}

func TestBC08_thinking_removed(t *testing.T) {
	thought := json.RawMessage(`{"role":"assistant","content":"a","reasoning_content":"hm"}`)
	for _, tc := range []struct {
		name string
		kept json.RawMessage
	}{{"by the harness", say("assistant", "a")}, {"by the template", thought}} {
		c1 := sampled("1", 0, []int32{1, 2}, []int32{70, 71, 72, 5, 99})
		c1.Request, c1.Reply = conversation("user", "q"), thought
		c2 := sampled("2", 1, []int32{1, 2, 70, 71, 72, 5, 99, 8}, []int32{6, 99})
		c2.Request, c2.Reply = append(conversation("user", "q"), thought, say("tool", "t")), say("assistant", "b")
		c3 := sampled("3", 2, []int32{1, 2, 5, 99, 8, 6, 99, 9}, []int32{7, 99})
		c3.Request = append(conversation("user", "q"), tc.kept, say("tool", "t"), say("assistant", "b"), say("user", "next"))
		g := Link([]Turn{c1, c2, c3})
		wantBreak(t, tc.name, &g.Nodes[2], 1, ThinkingRemoved)
		if b := g.Nodes[2].Break; *b.Position != 2 || !strings.Contains(b.Detail, "earlier reasoning is absent") {
			t.Errorf("%s: break %+v at %d", tc.name, b, *b.Position)
		}
		rows := g.Sequences()
		if len(rows) != 2 || rows[0].Trainable() != 7 || rows[1].Trainable() != 2 {
			t.Errorf("%s: rows %+v", tc.name, rows)
		}
	}
}

func TestBC09_turn_boundaries(t *testing.T) {
	for _, tc := range []struct {
		name      string
		sampled   []int32
		prompt    []int32
		mask      []uint8
		rows      int
		onlyFinal bool
	}{
		{"A the stop token is rendered once", []int32{5, 99}, []int32{1, 5, 99, 198, 2}, []uint8{0, 1, 1, 0, 0, 1}, 1, false},
		{"B a stop string not returned", []int32{5}, []int32{1, 5, 99, 2}, []uint8{0, 1, 0, 0, 1}, 1, false},
		{"C the delimiter is the model's", []int32{5, 88}, []int32{1, 5, 88, 2}, []uint8{0, 1, 1, 0, 1}, 1, false},
		{"D cut by length", []int32{5, 6}, []int32{1, 5, 6, 99, 2}, []uint8{0, 1, 1, 0, 0, 1}, 1, false},
		{"E another end token", []int32{5, 98}, []int32{1, 5, 99, 2}, nil, 2, true},
	} {
		a, b := sampled("1", 0, []int32{1}, tc.sampled), sampled("2", 1, tc.prompt, []int32{7})
		a.Request, a.Reply = conversation("user", "q"), say("assistant", "a")
		b.Request = conversation("user", "q", "assistant", "a", "user", "r")
		g := Link([]Turn{a, b})
		rows := g.Sequences()
		if len(rows) != tc.rows {
			t.Errorf("%s: %d rows, want %d", tc.name, len(rows), tc.rows)
			continue
		}
		if tc.mask != nil {
			same(t, tc.name, rows[0].LossMask, tc.mask)
		}
		if tc.onlyFinal {
			wantBreak(t, tc.name, &g.Nodes[1], 0, Template)
			if d := g.Nodes[1].Break.Detail; !strings.Contains(d, "only the final sampled token differs") {
				t.Errorf("%s: %s", tc.name, d)
			}
		}
	}
}

func TestBC10_shared_tokens_trained_once(t *testing.T) {
	g := Link([]Turn{
		sampled("root", 0, []int32{1}, []int32{5, 99}),
		sampled("A", 1, []int32{1, 5, 99, 7}, []int32{8, 99}),
		sampled("B", 2, []int32{1, 5, 99, 9}, []int32{10, 99}),
	})
	for _, once := range []bool{false, true} {
		rows := g.Sequences()
		Share(rows, func(int) bool { return true }, once)
		same(t, "shared spans", pairs(rows[1].Shared), [][2]int{{1, 3}})
		want := []uint8{0, 1, 1, 0, 1, 1}
		same(t, "first row", rows[0].LossMask, want)
		if once {
			want = []uint8{0, 0, 0, 0, 1, 1}
		}
		same(t, "second row", rows[1].LossMask, want)
	}
}

func TestBC20_nonce_line(t *testing.T) {
	system := func(nonce string) json.RawMessage {
		return json.RawMessage(`{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: cc_version=9.9.9; cch=` + nonce + `;"},{"type":"text","text":"Be helpful."}]}`)
	}
	link := func(p1, p2 []int32) *Graph {
		a, b := sampled("1", 0, p1, []int32{5, 99}), sampled("2", 1, p2, []int32{7})
		a.Request, a.Reply = append([]json.RawMessage{system("aaaa1")}, say("user", "one")), say("assistant", "ok")
		b.Request = append([]json.RawMessage{system("bbbb2")}, conversation("user", "one", "assistant", "ok", "user", "two")...)
		return Link([]Turn{a, b})
	}
	if g := link([]int32{1, 2, 3}, []int32{1, 2, 3, 5, 99, 4}); g.Nodes[1].Parent != 0 {
		t.Error("A: the engine strips the line, so the calls merge")
	}
	g := link([]int32{61, 1, 2, 3}, []int32{62, 1, 2, 3, 5, 99, 4})
	wantBreak(t, "B", &g.Nodes[1], 0, SystemChanged)
	if b := g.Nodes[1].Break; *b.Position != 0 || !strings.Contains(b.Detail, "nonce line x-anthropic-billing-header") {
		t.Errorf("break %+v at %d", b, *b.Position)
	}
	if len(g.Sequences()) != 2 {
		t.Error("B: want two rows")
	}
}

func TestBC25_edited_history(t *testing.T) {
	// With ids only the ids decide, whatever was edited in the messages.
	first := conversation("user", "<system-reminder>t=1</system-reminder>edit it")
	reply := json.RawMessage(`{"role":"assistant","content":null,"tool_calls":[{"id":"u1","function":{"name":"Edit","arguments":"{\"path\":\"a\",\"replace_all\":false}"}}]}`)
	second := []json.RawMessage{say("user", "edit it"),
		json.RawMessage(`{"role":"assistant","content":null,"tool_calls":[{"id":"u1","function":{"name":"Edit","arguments":"{\"path\":\"a\"}"}}]}`),
		json.RawMessage(`{"role":"tool","tool_call_id":"u1","content":"done"}`)}
	a, b := sampled("1", 0, []int32{1}, []int32{2}), sampled("2", 1, []int32{1, 2, 3}, []int32{4})
	a.Request, a.Reply, b.Request = first, reply, second
	if g := Link([]Turn{a, b}); g.Nodes[1].Parent != 0 || g.Nodes[1].Link != ByTokens {
		t.Error("the ids extend each other, so the turns are linked")
	}
	b.Prompt = []int32{9, 9, 3}
	g := Link([]Turn{a, b})
	wantBreak(t, "found by the call's id", &g.Nodes[1], 0, HistoryRewritten)
	a.Prompt, a.Sampled, b.Prompt, b.Sampled = nil, nil, nil, nil
	if g := Link([]Turn{a, b}); g.Nodes[1].Parent != None {
		t.Error("without ids, messages that differ are never an edge")
	}
}

func TestBC42_prompt_of_record(t *testing.T) {
	prompt := []int32{1, 700, 700, 700, 700, 8}
	rows := Link([]Turn{sampled("1", 0, prompt, []int32{5})}).Sequences()
	same(t, "ids", rows[0].InputIDs, append(prompt, 5))
}
