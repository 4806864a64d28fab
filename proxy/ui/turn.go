package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// turnView is all that a page says of a turn.
type turnView struct {
	Index, Call  int
	Anchor       string
	NodeID       string
	Role         string
	Facts        []fact
	Findings     []findingView
	Broke        *rupture
	BreakHref    string
	Conversation conversation
	Tools        []tool
	Edits        []editView
	Sampling     []samplingView
	Times        *timeLine
	Usage        string
	Policy       []fact
	Prev, Next   string
	ParentHref   string
	ParentLabel  string
	RowHref      string
	Tokens       template.HTML
	TokensMore   bool
	TokensLoad   string
	DecodedBy    string
}

// fact is something said in two words.
type fact struct {
	Name, Value string
	Href        string
}

type findingView struct {
	Level, Code, Detail string
	Where, Href         string // of findings that stand elsewhere
}

type editView struct{ Param, From, To, Why string }

type samplingView struct {
	Name, Asked, Submitted string
	Changed                bool
}

func findingsOf(list []validate.Finding) []findingView {
	out := make([]findingView, len(list))
	for i, f := range list {
		level := "info" // of another producer's remarks, which have none that is known
		if f.Level == validate.Fatal || f.Level == validate.Warn {
			level = strings.ToLower(string(f.Level))
		}
		out[i] = findingView{Level: level, Code: string(f.Code), Detail: f.Detail}
	}
	return out
}

// shownTokens is how many sampled tokens a turn's page shows; the row's page has them all.
const shownTokens = 2048

func (u *UI) turnView(ctx context.Context, b *book, l links, i, from int) *turnView {
	t := &b.doc.Turns[i]
	v := &turnView{
		Index: i, Call: t.Call, Anchor: fmt.Sprintf("turn-%d", i), NodeID: t.NodeID, Role: string(b.role(i)), Findings: findingsOf(t.Validation),
		Conversation: converse(b, l, i, from, math.MaxInt, true), Tools: toolsOf(t.RequestTools), Edits: editsOf(t.Edits),
		Sampling: compareSampling(t.RequestedSampling, t.SamplingParams), Times: timeLineOf(t), Usage: compact(t.Usage), Policy: policyFacts(&t.Policy),
	}
	v.Facts = turnFacts(b, l, i)
	if t.Break != nil && b.turn(t.Continues) >= 0 {
		v.BreakHref, v.Broke = l.broke(b.key, i), u.ruptureWords(b, i)
	}
	if i > 0 {
		v.Prev = l.turn(b.key, i-1)
	}
	if i+1 < len(b.doc.Turns) {
		v.Next = l.turn(b.key, i+1)
	}
	if p := b.turn(t.ParentID); p >= 0 {
		v.ParentHref, v.ParentLabel = l.turn(b.key, p), fmt.Sprintf("turn %d", p)
	}
	if row, start, end, ok := b.span(i); ok && end > start {
		v.RowHref = l.row(b.key, row, start)
		v.TokensMore = end-start > shownTokens
		v.TokensLoad = fmt.Sprintf("%s&to=%d", l.tokens(b.key, row, start), min(end, start+shownTokens))
		if l.inline {
			v.Tokens, v.TokensLoad = u.tokens(ctx, b, row, start, min(end, start+shownTokens)), ""
		}
	}
	return v
}

// ruptureWords is a rupture without its two sides.
func (u *UI) ruptureWords(b *book, i int) *rupture {
	t := &b.doc.Turns[i]
	r := &rupture{Turn: i, Earlier: b.turn(t.Continues), Cause: t.Break.Cause, Detail: t.Break.Detail}
	r.What, r.Avoid = causeWords(t.Break.Cause)
	return r
}

func turnFacts(b *book, l links, i int) []fact {
	t := &b.doc.Turns[i]
	facts := []fact{
		{Name: "prompt", Value: plural(t.NPrompt, "token")}, {Name: "sampled", Value: plural(t.NSampled, "token")},
		{Name: "finish", Value: orDash(t.FinishReason)}, {Name: "outcome", Value: string(t.Outcome)}, {Name: "model", Value: orDash(t.Model)},
		{Name: "dialect", Value: string(t.Dialect)}, {Name: "tools", Value: number(t.NTools)},
		{Name: "prompt ids from", Value: orDash(string(t.PromptSource))},
	}
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{Name: name, Value: value})
		}
	}
	if t.FinishReasonRaw != t.FinishReason {
		add("engine's own word", t.FinishReasonRaw)
	}
	add("discarded", t.DiscardReason)
	if t.RetryOf > 0 {
		add("retry of", fmt.Sprintf("call %d", t.RetryOf))
	}
	add("harness", strings.TrimSpace(t.Harness.Name+" "+t.Harness.Version))
	add("agent", t.Harness.AgentID)
	add("parent agent", t.Harness.ParentAgentID)
	add("harness session", t.HarnessSessionID)
	return facts
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func editsOf(edits []export.Edit) []editView {
	out := make([]editView, len(edits))
	for i, e := range edits {
		out[i] = editView{e.Param, value(e.From), value(e.To), e.Why}
	}
	return out
}

// value is a JSON value in one line, "–" where there is none.
func value(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return "–"
	}
	return short(string(keepSurrogates(raw)), 200)
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Compact(&b, raw) != nil {
		return ""
	}
	s, _, _ := window(indent(b.Bytes()), 0, firstText)
	return s
}

// compareSampling lays what was asked beside what was submitted.
func compareSampling(asked, submitted json.RawMessage) []samplingView {
	var a, s map[string]json.RawMessage
	if json.Unmarshal(asked, &a) != nil { // no object: nothing was asked
		a = nil
	}
	if json.Unmarshal(submitted, &s) != nil {
		s = nil
	}
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range s {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var list []samplingView
	for _, name := range names {
		v := samplingView{Name: name, Asked: value(a[name]), Submitted: value(s[name])}
		v.Changed = v.Asked != v.Submitted
		list = append(list, v)
	}
	return list
}

func policyFacts(p *record.CallPolicy) []fact {
	var facts []fact
	for _, m := range []struct {
		name    string
		version *int64
	}{{"dispatch", p.Dispatch}, {"first token", p.FirstToken}, {"end", p.End}} {
		if m.version != nil {
			facts = append(facts, fact{Name: m.name, Value: fmt.Sprint(*m.version)})
		}
	}
	if len(p.Engine) > 0 && string(p.Engine) != "null" {
		facts = append(facts, fact{Name: "engine", Value: value(p.Engine)})
	}
	return facts
}

// timeLine is a call's time to scale: in the proxy, waiting for the first token, sampling, writing to disk.
type timeLine struct {
	Parts    []timePart
	Total    string
	Received export.Time
}

type timePart struct{ Kind, Name, X, W, Took string }

func timeLineOf(t *export.Turn) *timeLine {
	begin, end := t.Timing.Received, t.Timing.Recorded
	if begin.IsZero() {
		return nil
	}
	if end.IsZero() {
		_, last := moments(t)
		end = export.Time{Time: last}
	}
	whole := end.Sub(begin.Time)
	if whole <= 0 {
		return nil
	}
	line := &timeLine{Total: duration(whole), Received: begin}
	add := func(kind, name string, from, to export.Time) {
		if from.IsZero() || to.IsZero() || to.Before(from.Time) {
			return
		}
		at := func(m export.Time) float64 { return 100 * float64(m.Sub(begin.Time)) / float64(whole) }
		line.Parts = append(line.Parts, timePart{kind, name, percent(at(from)), percent(at(to) - at(from)), duration(to.Sub(from.Time))})
	}
	add("proxy", "proxy", begin, t.Timing.Dispatched)
	add("wait", "wait for the first token", t.Timing.Dispatched, t.Timing.FirstToken)
	add("stream", "first to last token", t.Timing.FirstToken, t.Timing.LastToken)
	add("disk", "until durable", t.Timing.LastToken, t.Timing.Recorded)
	return line
}
