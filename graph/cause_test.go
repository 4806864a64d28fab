package graph

import (
	"encoding/json"
	"strings"
	"testing"
)

// broken links a turn to an earlier one whose tokens it leaves at token 1, within the earlier prompt.
func broken(change func(was, now *Turn)) *Graph {
	was, now := sampled("was", 0, []int32{1, 2, 3}, []int32{4, 5}), sampled("now", 1, []int32{1, 9, 3, 4, 5, 6}, []int32{7})
	tools := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"sh"}}`)}
	was.Tools, now.Tools = tools, tools
	was.Request, was.Reply = conversation("system", "s", "user", "q"), say("assistant", "a")
	now.Request = conversation("system", "s", "user", "q", "assistant", "a", "user", "r")
	change(&was, &now)
	return Link([]Turn{was, now})
}

func TestCauses(t *testing.T) {
	call := func(args string) json.RawMessage {
		return json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"name":"sh","arguments":` + args + `}}]}`)
	}
	for _, tc := range []struct {
		name   string
		change func(was, now *Turn)
		cause  Cause
		detail string
	}{
		{"system", func(was, now *Turn) { now.Request[0] = say("system", "other") }, SystemChanged, "system text"},
		{"a tool less", func(was, now *Turn) { now.Tools = nil }, ToolsChanged, "1 tools before, 0 now"},
		{"a tool changed", func(was, now *Turn) {
			now.Tools = []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"sh","strict":true}}`)}
		}, ToolsChanged, `"sh"`},
		{"respelled arguments", func(was, now *Turn) {
			was.Reply, now.Request[2] = call(`"{\"a\": 1}"`), call(`"{\"a\":1}"`)
		}, ToolCallReserialised, `"sh"`},
		{"rewritten answer", func(was, now *Turn) { now.Request[2] = say("assistant", "b") }, HistoryRewritten, "message 2"},
		{"compaction behind the first question", func(was, now *Turn) {
			now.Request = conversation("system", "s", "user", "q", "user", "so far: …")
		}, HistoryRewritten, "message 2"},
		{"compaction that leaves nothing", func(was, now *Turn) {
			was.Request = conversation("system", "s", "user", "q", "assistant", "x", "user", "y")
			now.Request = conversation("system", "s", "user", "continued from a summary")
		}, HistoryRewritten, "message 1"},
		{"nothing but tokens", func(was, now *Turn) {}, Template, "messages are the same"},
		{"sampled text spelled otherwise", func(was, now *Turn) { now.Prompt = []int32{1, 2, 3, 8, 5, 6} }, Retokenised, "has 4, this prompt 8"},
		{"white space", func(was, now *Turn) { now.Request[2] = say("assistant", "a\n") }, HistoryRewritten, "white space"},
		{"the prompt is shorter", func(was, now *Turn) { now.Prompt = []int32{1, 2} }, Unknown, "this prompt ends"},
	} {
		g := broken(tc.change)
		n := &g.Nodes[1]
		wantBreak(t, tc.name, n, 0, tc.cause)
		if n.Break != nil && !strings.Contains(n.Break.Detail, tc.detail) {
			t.Errorf("%s: %q does not say %q", tc.name, n.Break.Detail, tc.detail)
		}
	}
}

func TestNoHintWithoutContinuation(t *testing.T) {
	for name, change := range map[string]func(was, now *Turn){
		"a title call":      func(was, now *Turn) { now.Request, now.Tools = conversation("system", "titles", "user", "q"), nil },
		"another task":      func(was, now *Turn) { now.Request = conversation("system", "s", "user", "other") },
		"the same question": func(was, now *Turn) { now.Request = was.Request },
		"no messages":       func(was, now *Turn) { now.Request = nil },
	} {
		if n := broken(change).Nodes[1]; n.Continues != None || n.Break != nil {
			t.Errorf("%s: continues %d, %+v", name, n.Continues, n.Break)
		}
	}
}

func TestBreakAgainstATurnWithoutIDs(t *testing.T) {
	g := broken(func(was, now *Turn) { was.Prompt = nil })
	if n := g.Nodes[1]; n.Continues != 0 || n.Break.Position != nil || n.Break.Cause != Unknown {
		t.Errorf("continues %d, %+v", n.Continues, n.Break)
	}
}
