package continuity

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
)

func messages(list ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range list {
		out = append(out, json.RawMessage(m))
	}
	return out
}

func user(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }

func call(number int, request []json.RawMessage, reply string, prompt, sampled []int32) *record.Call {
	return &record.Call{
		Number: number, Outcome: record.Complete, Messages: request, Tools: messages(`{"name":"a"}`),
		Choices: []record.Choice{{Outcome: record.Complete, FinishReason: "stop", PromptIDs: prompt, SampledIDs: sampled, Message: json.RawMessage(reply)}},
	}
}

const answer = `{"role":"assistant","content":"Sure. ","reasoning":"Hm.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{\"x\": 1.0, \"big\": 9007199254740993}"}}]}`

// One turn is known; which requests carry it on?
func TestFind(t *testing.T) {
	const result = `{"role":"tool","tool_call_id":"c1","content":"done"}`
	echo := func(old, with string) string {
		if !strings.Contains(answer, old) {
			t.Fatalf("the answer has no %s", old)
		}
		return strings.Replace(answer, old, with, 1)
	}
	for _, c := range []struct {
		name    string
		request []string
		tools   string
		args    string
		why     Reason
		echo    Echo
	}{
		{name: "as it was given", request: []string{user("go"), answer, result}, echo: EchoSame},
		{name: "space trimmed", request: []string{user(" go\n"), echo("Sure. ", "Sure."), result}, echo: EchoSpace},
		{name: "arguments respelled", request: []string{user("go"), echo(`{\"x\": 1.0, \"big\": 9007199254740993}`, `{\"big\":9007199254740993,\"x\":1}`), result}, echo: EchoArguments},
		{name: "thinking dropped", request: []string{user("go"), echo(`,"reasoning":"Hm."`, ``), result}, echo: EchoThinking},
		{name: "thinking under another name", request: []string{user("go"), echo(`"reasoning"`, `"reasoning_content"`), result}, echo: EchoSame},
		{name: "a list of parts", request: []string{user("go"), echo(`"Sure. "`, `[{"type":"text","text":"Sure. "}]`), result}, echo: EchoSame},
		{name: "a user and the system follow", request: []string{user("go"), answer, result, user("and?"), `{"role":"system","content":"soon"}`}, echo: EchoSame},

		{name: "a new conversation", request: []string{user("other")}},
		{name: "the same opening again", request: []string{user("go")}},
		{name: "another number", request: []string{user("go"), echo("9007199254740993", "9007199254740992"), result}, why: HistoryRewritten},
		{name: "a call's id renamed", request: []string{user("go"), echo(`"c1"`, `"call_c1_0"`), result}, echo: EchoIDs},
		{name: "the id of another call", request: []string{user("go"), echo(`"c1"`, `"c0"`), result}, why: HistoryRewritten},
		{name: "no id", request: []string{user("go"), echo(`"c1"`, `""`), result}, why: HistoryRewritten},
		{name: "the thought moved into the text", request: []string{user("go"), echo(`"Sure. ","reasoning":"Hm."`, `"<think>\nHm.\n</think>\n\nSure."`), result}, echo: EchoMoved},
		{name: "another thought in the text", request: []string{user("go"), echo(`"Sure. ","reasoning":"Hm."`, `"<think>Ha.</think>Sure."`), result}, why: HistoryRewritten},
		{name: "another thought", request: []string{user("go"), echo("Hm.", "Ha."), result}, why: HistoryRewritten},
		{name: "another text", request: []string{user("go"), echo("Sure.", "Surely."), result}, why: HistoryRewritten},
		{name: "a call left out", request: []string{user("go"), `{"role":"assistant","content":"Sure.","reasoning":"Hm."}`, user("and?")}, why: HistoryRewritten},
		{name: "another question", request: []string{user("gone"), answer, result}, why: HistoryRewritten},
		{name: "another system text", request: []string{`{"role":"system","content":"x"}`, user("go"), answer, result}, why: HistoryRewritten},
		{name: "other tools", request: []string{user("go"), answer, result}, tools: `{"name":"b"}`, why: ToolsChanged},
		{name: "other template arguments", request: []string{user("go"), answer, result}, args: `{"chat_template_kwargs":{}}`, why: ToolsChanged},
		{name: "few-shot examples", request: []string{user("2+2?"), `{"role":"assistant","content":"4"}`, user("3+3?")}, why: AssistantNotSampled},
		{name: "an example behind the answer", request: []string{user("go"), answer, result, `{"role":"assistant","content":"4"}`, user("3+3?")}, why: AssistantNotSampled},
		{name: "the beginning of an answer", request: []string{user("go"), answer}, why: AssistantNotSampled},
		{name: "a picture", request: []string{user("go"), answer, `{"role":"tool","content":[{"type":"image_url","image_url":{"url":"x"}}]}`}, why: Multimodal},
		{name: "an unknown role", request: []string{user("go"), answer, `{"role":"critic","content":"no"}`}, why: HistoryRewritten},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := NewIndex()
			x.Add(call(1, messages(user("go")), answer, []int32{1, 2, 3}, []int32{4, 5}))
			x.Add(call(2, messages(user("before")), strings.Replace(answer, "c1", "c0", 1), []int32{8}, []int32{9}))
			tools := c.tools
			if tools == "" {
				tools = `{"name":"a"}`
			}
			m := x.Find(Request{Messages: messages(c.request...), Tools: messages(tools), Template: c.args})
			if (m.Turn != nil) != (c.echo != "") || m.Reason != c.why || m.Echo != c.echo || (m.Reason != "") != (m.Detail != "") {
				t.Fatalf("turn %v, %s: %s, echo %s", m.Turn, m.Reason, m.Detail, m.Echo)
			}
			if m.Turn != nil && (!slices.Equal(m.Turn.AppendIDs(nil), []int32{1, 2, 3, 4, 5}) || len(m.Added) != len(c.request)-2 || m.Turn.Call != 1) {
				t.Errorf("%+v, %d added", m.Turn, len(m.Added))
			}
		})
	}
}

// What cannot be trusted or is not there is not carried on.
func TestFindUsable(t *testing.T) {
	for name, change := range map[string]func(*record.Call){
		"a failed call":     func(c *record.Call) { c.Outcome = record.UpstreamError },
		"an aborted answer": func(c *record.Call) { c.Outcome, c.Choices[0].Outcome = record.Aborted, record.Aborted },
		"incomplete ids": func(c *record.Call) {
			c.Outcome, c.Choices[0].Outcome = record.IncompleteCapture, record.IncompleteCapture
		},
		"no prompt ids":  func(c *record.Call) { c.Choices[0].PromptIDs = nil },
		"no sampled ids": func(c *record.Call) { c.Choices[0].SampledIDs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			x := NewIndex()
			c := call(1, messages(user("go")), answer, []int32{1, 2, 3}, []int32{4, 5})
			change(c)
			x.Add(c)
			m := x.Find(Request{Messages: messages(user("go"), answer, user("and?")), Tools: messages(`{"name":"a"}`)})
			if m.Turn != nil || m.Reason != AssistantNotSampled {
				t.Errorf("%+v", m)
			}
		})
	}
}

// Two answers that look alike: the one counts that the conversation really went on with.
func TestFindAmongTwins(t *testing.T) {
	x := NewIndex()
	twin := `{"role":"assistant","content":"heads"}`
	x.Add(call(1, messages(user("toss")), twin, []int32{1}, []int32{2, 9}))
	x.Add(call(2, messages(user("toss")), twin, []int32{1}, []int32{3, 9}))
	// The harness went on with the first, in a request that was not bridged.
	x.Add(call(3, messages(user("toss"), twin, user("again")), twin, []int32{1, 2, 9, 4}, []int32{5, 9}))
	tools := messages(`{"name":"a"}`)
	if m := x.Find(Request{Messages: messages(user("toss"), twin, user("again"), twin, user("more")), Tools: tools}); m.Turn == nil || m.Turn.Call != 3 {
		t.Errorf("%+v", m)
	}
	if m := x.Find(Request{Messages: messages(user("toss"), twin, user("x")), Tools: tools}); m.Turn == nil || m.Turn.Call != 2 {
		t.Errorf("%+v: want the latest of the twins", m)
	}
	third := x.turns[2].turn
	if third.base == nil || third.base.Call != 1 || third.shared != 3 {
		t.Errorf("the third turn shares %d ids with %+v", third.shared, third.base)
	}
}

// Ids come back as they were put in, however turns share them.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var turns []*Turn
		var want [][]int32
		for range rapid.IntRange(1, 12).Draw(t, "turns") {
			var base *Turn
			var prompt []int32
			if len(turns) > 0 && rapid.Bool().Draw(t, "with base") {
				i := rapid.IntRange(0, len(turns)-1).Draw(t, "base")
				base = turns[i]
				prompt = append(prompt, want[i][:rapid.IntRange(0, len(want[i])).Draw(t, "kept")]...)
			}
			few := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 6)
			prompt = append(prompt, few.Draw(t, "prompt")...)
			sampled := few.Draw(t, "sampled")
			turns = append(turns, newTurn(base, prompt, sampled))
			want = append(want, slices.Concat(prompt, sampled))
			if base != nil && turns[len(turns)-1].base == base {
				shared := turns[len(turns)-1].shared
				full := base.AppendIDs(nil)
				all := want[len(want)-1]
				if !slices.Equal(full[:shared], all[:shared]) || shared < min(len(full), len(all)) && full[shared] == all[shared] {
					t.Fatalf("shares %d of %v and %v", shared, full, all)
				}
			}
		}
		for i, turn := range turns {
			if got := turn.AppendIDs(nil); !slices.Equal(got, want[i]) {
				t.Fatalf("turn %d: %v, want %v", i, got, want[i])
			}
		}
	})
}

// An answer of nothing but a thought and a call, whose thought comes back as text.
func TestFindThoughtAsText(t *testing.T) {
	x := NewIndex()
	const calls = `"tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}}]}`
	x.Add(call(1, messages(user("go")), `{"role":"assistant","content":null,"reasoning":"Hm.",`+calls, []int32{1}, []int32{2}))
	for text, want := range map[string]Echo{"Hm.": EchoMoved, "Ha.": ""} {
		m := x.Find(Request{Messages: messages(user("go"), `{"role":"assistant","content":"`+text+`","reasoning":"Hm.",`+calls, user("and?")), Tools: messages(`{"name":"a"}`)})
		if m.Echo != want {
			t.Errorf("%s: %+v", text, m)
		}
	}
}

// Calls that never passed here are noticed, but not looked for for ever.
func TestMissing(t *testing.T) {
	x := NewIndex()
	for n := range 3 {
		x.Begin(n + 1)
	}
	if x.Missing(4) {
		t.Error("all three are known")
	}
	x.Begin(6)
	for range maxLooks {
		if !x.Missing(6) {
			t.Fatal("4 and 5 are not known")
		}
	}
	if x.Missing(6) {
		t.Error("4 and 5 were looked for often enough")
	}
	x.Add(&record.Call{Number: 7, Outcome: record.UpstreamError})
	if x.Missing(8) || !x.Missing(9) {
		t.Error("7 is known, 8 is not")
	}
}

// conversation is a session of 200 turns that grows to 128k tokens.
func conversation(turns, tokens int) []*record.Call {
	var calls []*record.Call
	history, ids := messages(user("begin")), []int32{}
	each := tokens / turns
	for i := range turns {
		for range each / 2 {
			ids = append(ids, int32(len(ids)%50000))
		}
		reply := fmt.Sprintf(`{"role":"assistant","content":"step %d %s","tool_calls":[{"id":"c%d","type":"function","function":{"name":"run","arguments":"{\"n\": %d}"}}]}`,
			i, strings.Repeat("word ", each/4), i, i)
		var sampled []int32
		for range each / 2 {
			sampled = append(sampled, int32(len(ids)+len(sampled))%50000)
		}
		calls = append(calls, call(i+1, slices.Clone(history), reply, slices.Clone(ids), sampled))
		ids = append(ids, sampled...)
		history = append(history, json.RawMessage(reply), json.RawMessage(fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":"%d %s"}`, i, i, strings.Repeat("line ", each/4))))
	}
	return calls
}

// A session takes memory for its distinct tokens and messages, not for turns × context.
func TestMemory(t *testing.T) {
	calls := conversation(200, 128_000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := NewIndex()
	for _, c := range calls {
		x.Add(c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > 2<<20 {
		t.Errorf("200 turns of 128k tokens take %d KiB", got>>10)
	} else {
		t.Logf("%d KiB", got>>10)
	}
	if x.held != 128_000 {
		t.Errorf("%d ids are held", x.held)
	}
	runtime.KeepAlive(calls)
}

// Beyond the bound the turns go that nobody carried on.
func TestForget(t *testing.T) {
	x := NewIndex()
	prompt := make([]int32, 5<<20)
	for n := range 5 {
		p := slices.Clone(prompt)
		p[0] = int32(n + 1)
		x.Add(call(n+1, messages(user(fmt.Sprint(n))), answer, p, []int32{1}))
	}
	if x.held > maxHeld || len(x.turns) != 3 {
		t.Errorf("%d ids of %d turns are held", x.held, len(x.turns))
	}
	if m := x.Find(Request{Messages: messages(user("0"), answer, user("and?")), Tools: messages(`{"name":"a"}`)}); m.Turn != nil || m.Reason != AssistantNotSampled {
		t.Errorf("the first is still there: %+v", m)
	}
	if m := x.Find(Request{Messages: messages(user("4"), answer, user("and?")), Tools: messages(`{"name":"a"}`)}); m.Turn == nil {
		t.Errorf("the last is gone: %+v", m)
	}
}

// BenchmarkFind is what a call of a long session costs: its last turn is found, and its ids put together.
func BenchmarkFind(b *testing.B) {
	calls := conversation(200, 128_000)
	x := NewIndex()
	for _, c := range calls {
		x.Add(c)
	}
	last := calls[len(calls)-1]
	r := Request{Messages: append(slices.Clone(last.Messages), last.Choices[0].Message, json.RawMessage(user("and?"))), Tools: last.Tools}
	var ids []int32
	b.ReportAllocs()
	for b.Loop() {
		m := x.Find(r)
		if m.Turn == nil {
			b.Fatal(m.Detail)
		}
		ids = m.Turn.AppendIDs(ids[:0])
	}
}
