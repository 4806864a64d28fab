package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// echoed is an answer as it comes back; its fields are in the order in which they are written.
type echoed struct {
	Role      string      `json:"role"`
	Content   *string     `json:"content"`
	Reasoning string      `json:"reasoning"`
	ToolCalls []toolEntry `json:"tool_calls"`
}

type toolEntry struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// talker plays random conversations in one session.
type talker struct {
	t       *rapid.T
	r       *rig
	session string
	open    [][]json.RawMessage // histories that can go on
	starts  int
	rewrote int
	unique  int
	mu      sync.Mutex
	// rewritten are the texts that mark calls whose history was rewritten just then.
	rewritten []string
}

// damage writes an answer as some harness would, who rewrites nothing.
func (k *talker) damage(raw json.RawMessage) json.RawMessage {
	var m echoed
	if err := json.Unmarshal(raw, &m); err != nil {
		k.t.Fatal(err)
	}
	t := k.t
	members := []string{`"role":"assistant"`}
	text := ""
	if m.Content != nil {
		text = *m.Content
	}
	switch {
	case text == "":
		members = append(members, rapid.SampledFrom([]string{`"content":null`, `"content":""`, `"refusal":null`, `"content":[]`}).Draw(t, "empty"))
	case rapid.Bool().Draw(t, "parts"):
		members = append(members, `"content":[{"type":"text","text":`+k.spelled(text)+`}]`)
	default:
		trimmed := rapid.SampledFrom([]string{text, strings.TrimSpace(text), " " + text, text + "\n"}).Draw(t, "space")
		members = append(members, `"content":`+k.spelled(trimmed))
	}
	if m.Reasoning != "" {
		switch rapid.IntRange(0, 2).Draw(t, "reasoning") {
		case 0:
			members = append(members, `"reasoning":`+k.spelled(m.Reasoning))
		case 1:
			members = append(members, `"reasoning_content":`+k.spelled(m.Reasoning+"\n"))
		}
	}
	if len(m.ToolCalls) > 0 {
		var calls []string
		for i, c := range m.ToolCalls {
			calls = append(calls, fmt.Sprintf(`{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`,
				i, c.ID, c.Function.Name, k.spelled(k.respelled(c.Function.Arguments))))
		}
		members = append(members, `"tool_calls":[`+strings.Join(calls, ", ")+`]`)
	}
	if rapid.Bool().Draw(t, "reversed") {
		slices.Reverse(members)
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}")
}

// spelled writes a string with or without escapes.
func (k *talker) spelled(s string) string {
	plain, err := json.Marshal(s)
	if err != nil {
		k.t.Fatal(err)
	}
	if !rapid.Bool().Draw(k.t, "escapes") {
		return string(plain)
	}
	var b strings.Builder
	for _, r := range string(plain) {
		if r > 127 && r < 0x10000 {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// respelled writes arguments with other spaces, and its keys in another order.
func (k *talker) respelled(arguments string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &members) != nil {
		return arguments
	}
	keys := make([]string, 0, len(members))
	for key := range members {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if rapid.Bool().Draw(k.t, "keys reversed") {
		slices.Reverse(keys)
	}
	var parts []string
	for _, key := range keys {
		value := string(members[key])
		if value == "1.5" {
			value = rapid.SampledFrom([]string{"1.5", "1.50", "15e-1"}).Draw(k.t, "number")
		}
		parts = append(parts, k.spelled(key)+rapid.SampledFrom([]string{":", ": ", " : "}).Draw(k.t, "colon")+value)
	}
	return "{" + strings.Join(parts, rapid.SampledFrom([]string{",", ", ", ",\n"}).Draw(k.t, "comma")) + "}"
}

// say asks for an answer, and keeps the histories that it leads to.
func (k *talker) say(history []json.RawMessage, more string) error {
	body := `{"model":"m",` + more + `"tools":[{"type":"function","function":{"name":"bash","parameters":{}}}],"messages":[` + join(history) + `]}`
	resp, data, err := k.r.try("/v1/chat/completions", body, "Authorization", "Bearer "+k.session)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w %s", err, data)
	}
	var a struct {
		Choices []struct{ Message json.RawMessage }
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range a.Choices {
		k.open = append(k.open, append(slices.Clip(slices.Clone(history)), c.Message))
	}
	return nil
}

// next is what follows an answer: the tools' results, or a user's word.
func (k *talker) next(answer json.RawMessage) []json.RawMessage {
	var m echoed
	if err := json.Unmarshal(answer, &m); err != nil {
		k.t.Fatal(err)
	}
	var out []json.RawMessage
	for _, c := range m.ToolCalls {
		out = append(out, json.RawMessage(fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"done"}`, c.ID)))
	}
	if len(out) == 0 || rapid.IntRange(0, 4).Draw(k.t, "reminder") == 0 {
		k.unique++
		out = append(out, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"word %d"}`, k.unique)))
	}
	return out
}

// goOn is an open history with its last answer damaged and what follows it.
func (k *talker) goOn() []json.RawMessage {
	h := rapid.SampledFrom(k.open).Draw(k.t, "history")
	answer := h[len(h)-1]
	return slices.Concat(h[:len(h)-1], []json.RawMessage{k.damage(answer)}, k.next(answer))
}

func (k *talker) check(err error) {
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *talker) step() {
	switch action := rapid.SampledFrom([]string{"start", "go on", "go on", "go on", "several", "cut", "parallel", "again", "rewrite"}).Draw(k.t, "action"); {
	case action == "start" || len(k.open) == 0:
		k.unique++
		k.starts++
		k.check(k.say([]json.RawMessage{json.RawMessage(fmt.Sprintf(`{"role":"system","content":"agent %d"}`, k.unique)), json.RawMessage(`{"role":"user","content":"begin"}`)}, ""))
	case action == "several":
		k.check(k.say(k.goOn(), `"n":2,`))
	case action == "cut":
		k.check(k.say(k.goOn(), `"max_tokens":3,`))
	case action == "parallel":
		a, b := k.goOn(), k.goOn()
		done := make(chan error, 1)
		go func() { done <- k.say(a, "") }()
		err := k.say(b, "")
		k.check(<-done)
		k.check(err)
	case action == "again":
		h := k.goOn()
		k.check(k.say(h, ""))
		k.check(k.say(h, ""))
	case action == "rewrite":
		h := k.goOn()
		k.unique++
		k.rewrote++
		mark := fmt.Sprintf("rewritten %d", k.unique)
		var roles []int // everything up to the last answer, the answer included
		for i, raw := range h {
			if strings.Contains(string(raw), `"role":"assistant"`) {
				roles = roles[:0]
				for j := range i + 1 {
					roles = append(roles, j)
				}
			}
		}
		at := rapid.SampledFrom(roles).Draw(k.t, "rewritten message")
		h = slices.Clone(h)
		var m map[string]json.RawMessage
		if err := json.Unmarshal(h[at], &m); err != nil {
			k.t.Fatal(err)
		}
		m["content"] = json.RawMessage(fmt.Sprintf("%q", mark))
		raw, err := json.Marshal(m)
		k.check(err)
		h[at] = raw
		k.rewritten = append(k.rewritten, mark)
		k.check(k.say(h, ""))
	default:
		k.check(k.say(k.goOn(), ""))
	}
}

// chatty is a model that says all kinds of things.
func chatty(_ *fakeengine.Request, variant uint64) fakeengine.Reply {
	r := fakeengine.Reply{Content: fmt.Sprintf("Grüße, 日本語 %d.", variant)}
	if variant%3 != 0 {
		r.Reasoning = fmt.Sprintf("What about %d?", variant)
	}
	for i := range variant % 3 {
		r.Calls = append(r.Calls, fakeengine.ToolCall{Name: "bash", Arguments: fmt.Sprintf(`{"command":"echo é %d","timeout":1.5,"big":9007199254740993,"n":%d}`, variant, i)})
	}
	if variant%5 == 1 && len(r.Calls) > 0 {
		r.Content = ""
	}
	return r
}

// Whatever a harness does to its echo short of rewriting it, a true conversation has one root; a rewritten one is never
// bridged; and what is recorded are the ids that the engine used.
func TestContinuityProperty(t *testing.T) {
	r, e := newContinuityRig(t, fakeengine.Options{Odd: odd, Script: chatty, Keep: 1 << 14}, "on")
	sessions := 0
	rapid.Check(t, func(rt *rapid.T) {
		sessions++
		k := &talker{t: rt, r: r, session: fmt.Sprintf("p%d", sessions)}
		live := r.create(k.session, func(s *record.Session) { s.Spec.Continuity = "on" })
		for range rapid.IntRange(2, 10).Draw(rt, "steps") {
			k.step()
		}
		calls, err := r.store.Calls(context.Background(), k.session)
		k.check(err)
		doc := export.Build(live.Record(), calls, export.Options{})
		if doc.Stats.Roots != k.starts+k.rewrote {
			for i := range doc.Turns {
				rt.Logf("%s parent %q %s break %+v edits %v", doc.Turns[i].NodeID, doc.Turns[i].ParentID, doc.Turns[i].PromptSource, doc.Turns[i].Break, whyOf(&doc.Turns[i]))
			}
			rt.Fatalf("%d roots of %d conversations, %d of them rewritten", doc.Stats.Roots, k.starts+k.rewrote, k.rewrote)
		}
		for _, c := range calls {
			truth, ok := e.Truth("chatcmpl-" + c.RequestID)
			if !ok {
				rt.Fatalf("call %d: the engine knows nothing of it", c.Number)
			}
			for _, ch := range c.Choices {
				if !slices.Equal(ch.PromptIDs, truth.Prompt) || !slices.Equal(ch.SampledIDs, truth.Sampled[ch.Index]) {
					rt.Errorf("call %d: recorded are not the ids that the engine used", c.Number)
				}
			}
			last := slices.IndexFunc(k.rewritten, func(mark string) bool { return c.PromptSource == record.PromptForced && firstSeen(calls, c, mark) })
			if last >= 0 {
				rt.Errorf("call %d was bridged although its history was rewritten", c.Number)
			}
		}
	})
}

// firstSeen says whether c is the first call with a mark among its messages.
func firstSeen(calls []*record.Call, c *record.Call, mark string) bool {
	for _, other := range calls {
		for _, m := range other.Messages {
			if strings.Contains(string(m), mark+`"`) {
				return other == c
			}
		}
	}
	return false
}

func whyOf(t *export.Turn) (whys []string) {
	for _, e := range t.Edits {
		if e.Param == record.ParamPromptIDs {
			whys = append(whys, e.Why)
		}
	}
	return whys
}
