package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/internal/record"
)

// sessionView is what the page of a session shows beside its turns.
type sessionView struct {
	Key, ID    string
	Status     string
	Type       string // train or eval
	Harness    string
	Model      string
	Created    export.Time
	Closed     export.Time
	Reward     string
	Error      string
	Verdict    string
	Mood       string // good, bad, or neutral
	Help       string // what to do when nothing was recorded yet
	Findings   []findingView
	Stats      []fact
	About      []fact
	Metadata   string
	Commands   []string
	Graph      *drawing
	GraphLoad  string // address of a graph that is not here yet
	TurnCount  int
	Rows       []rowView
	Breaks     []findingView
	TurnsLoad  string
	Running    bool
	CanEnd     bool
	CloseHref  string
	CancelHref string
	GroupHref  string
	GroupID    string
	State      string // changes when the page does
	Self       string
}

// rowView is a row with its strip.
type rowView struct {
	Number             int
	Anchor             string
	ID                 string
	Role               string
	Trainable          bool
	Href               string
	StripHref          string // of a strip that is not here yet
	Strip              *strip
	Turns, Tokens      int
	Trained, PromptLen int
	Path               string
	Findings           []findingView
	Empty              bool
}

// graphAtOnce is how many turns the graph of a page has that comes with it; a larger one comes when the page is there.
const graphAtOnce = 300

// stripsAtOnce is how many strips are part of the page itself; the others come when they are looked at.
const stripsAtOnce = 24

func (u *UI) sessionView(b *book, l links) *sessionView {
	doc := b.doc
	v := &sessionView{
		Key: b.key, ID: doc.SessionID, Status: string(doc.Status), Type: doc.RolloutType, Harness: harnessOf(doc), Model: doc.Engine.Model,
		Created: doc.CreatedAt, Closed: doc.ClosedAt, Verdict: verdictOf(b), Findings: findingsOf(doc.Validation), Stats: statsOf(b),
		About: aboutOf(doc), Metadata: metadataOf(doc), TurnCount: len(doc.Turns), Running: b.running(), Self: l.session(b.key),
		CloseHref: l.session(b.key) + "/close", CancelHref: l.session(b.key) + "/cancel", TurnsLoad: l.session(b.key) + "/turns?from=0",
	}
	if len(doc.Turns) <= graphAtOnce || l.inline {
		v.Graph = draw(b, l)
	} else {
		v.GraphLoad = l.session(b.key) + "/graph"
	}
	v.CanEnd = v.Running && u.actor != nil && !l.inline
	v.Mood = moodOf(doc)
	if doc.Reward != nil {
		v.Reward = decimal(*doc.Reward)
	}
	if doc.Outcome != nil && doc.Outcome.Error != nil {
		v.Error = *doc.Outcome.Error
	}
	if doc.Group != nil {
		v.GroupID, v.GroupHref = doc.Group.ID, l.group(doc.Group.ID)
	}
	if len(doc.Turns) == 0 && v.Running {
		v.Mood, v.Verdict, v.Help = "neutral", "no call has been recorded yet", "Give the harness the proxy's address as its base URL and the session's id as its API key; its calls appear here as they end."
	}
	v.Commands = u.commands(doc)
	v.Rows = rowsOf(b, l)
	v.Breaks = findingsBelow(b, l)
	return v
}

// moodOf colours the verdict.
func moodOf(doc *export.Rollout) string {
	switch {
	case doc.Trainable:
		return "good"
	case doc.RolloutType != export.TypeTrain:
		return "neutral"
	}
	return "bad"
}

func statsOf(b *book) []fact {
	s := b.doc.Stats
	facts := []fact{
		{Name: "turns", Value: number(s.Turns)}, {Name: "roots", Value: number(s.Roots)}, {Name: "forks", Value: number(s.Forks)},
		{Name: "discarded", Value: number(s.Discarded)}, {Name: "failed calls", Value: number(s.FailedCalls)},
		{Name: "rows that train", Value: number(s.TrainableSequences) + " of " + number(s.Sequences)},
		{Name: "tokens to train", Value: number(s.DistinctTrainableTokens)},
	}
	if b.running() {
		facts = append(facts, fact{Name: "calls in flight", Value: number(b.status.InFlight)})
	}
	return facts
}

func aboutOf(doc *export.Rollout) []fact {
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{Name: name, Value: value})
		}
	}
	add("session", doc.SessionID)
	if doc.Env != nil {
		add("environment", cmp.Or(doc.Env.Name, doc.Env.ID))
	}
	add("run", runWords(doc.Run))
	if p := doc.Policy; p != nil {
		add("policy", policyWords(p))
	}
	var names []string
	for name := range doc.Rewards {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add("reward "+name, decimal(doc.Rewards[name]))
	}
	add("engine", strings.TrimSpace(doc.Engine.Profile.Provider+" "+doc.Engine.Profile.Version))
	add("engine's address", doc.Engine.URL)
	add("model", doc.Engine.Model)
	add("capture level", string(doc.CaptureLevel))
	add("logprobs", string(doc.Engine.Profile.LogprobsMode))
	add("shared turns", string(doc.Shared))
	if doc.BudgetStops > 0 {
		add("budget stops", number(doc.BudgetStops))
	}
	for _, e := range editsOf(doc.Engine.ParamEdits) {
		add("engine wants", e.Param+": "+e.From+" → "+e.To+" ("+e.Why+")")
	}
	add("written by", doc.ProxyVersion)
	return facts
}

func runWords(raw json.RawMessage) string {
	var r struct {
		Kind     string `json:"kind"`
		ID       string `json:"id"`
		Metadata *struct {
			Kind string `json:"kind"`
			Step *int   `json:"step"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &r) != nil || r.ID == "" {
		return ""
	}
	s := r.ID + ", " + r.Kind
	if r.Metadata != nil {
		if r.Metadata.Kind != r.Kind {
			s += ", its " + r.Metadata.Kind
		}
		if r.Metadata.Step != nil {
			s += fmt.Sprintf(", step %d", *r.Metadata.Step)
		}
	}
	return s
}

func policyWords(p *export.Policy) string {
	if p.Start == nil || p.End == nil {
		return ""
	}
	s := fmt.Sprintf("%d → %d", *p.Start, *p.End)
	if p.OffPolicySteps != nil {
		s += ", off policy by " + plural(int(*p.OffPolicySteps), "step")
	}
	return s
}

func metadataOf(doc *export.Rollout) string {
	if len(doc.Metadata) == 0 {
		return ""
	}
	raw, err := json.Marshal(doc.Metadata)
	if err != nil { // values that were read as JSON are JSON
		return ""
	}
	s, _, rest := window(indent(keepSurrogates(raw)), 0, firstText)
	if rest > 0 {
		s += "\n… " + number(rest) + " bytes more"
	}
	return s
}

// commands give the same from a shell.
func (u *UI) commands(doc *export.Rollout) []string {
	var list []string
	if u.actor == nil {
		for _, c := range []string{command("capture-proxy", "show", "FILE"), command("capture-proxy", "validate", "FILE"), command("capture-proxy", "export", "--format", "openenv", "FILE")} {
			list = append(list, strings.ReplaceAll(c, "FILE", "rollout.json"))
		}
		return list
	}
	curl := []string{"curl", "-s"}
	if u.key {
		curl = append(curl, "-H", "Authorization: Bearer ADMIN_KEY")
	}
	list = append(list,
		command(append(curl, u.url+"/sessions/"+doc.SessionID+"/rollout?include_messages=true")...),
		command("capture-proxy", "show", doc.SessionID, "--url", u.url),
		command("capture-proxy", "export", "--url", u.url, "--session", doc.SessionID, "--format", "openenv"))
	return slices.DeleteFunc(list, func(c string) bool { return c == "" })
}

func rowsOf(b *book, l links) []rowView {
	longest := 1
	for i := range b.doc.Sequences {
		longest = max(longest, len(b.doc.Sequences[i].InputIDs))
	}
	list := make([]rowView, len(b.doc.Sequences))
	for k := range b.doc.Sequences {
		row := &b.doc.Sequences[k]
		v := rowView{
			Number: k, Anchor: fmt.Sprintf("row-%d", k), ID: row.RowID, Role: string(row.Role), Trainable: row.Trainable, Href: l.row(b.key, k, 0), Turns: row.NTurns,
			Tokens: len(row.InputIDs), Trained: row.NTrainable, PromptLen: row.PromptLen, Path: pathOf(b, row), Findings: findingsOf(row.Validation),
			Empty: len(row.InputIDs) == 0,
		}
		if !row.Trainable {
			v.Trained = 0
		}
		if k < stripsAtOnce || l.inline {
			v.Strip = stripOf(row, longest)
		} else {
			v.StripHref = fmt.Sprintf("%s/rows/%d/strip", l.session(b.key), k)
		}
		list[k] = v
	}
	return list
}

func pathOf(b *book, row *export.Row) string {
	var parts []string
	for _, id := range row.NodeIDs {
		if i := b.turn(id); i >= 0 {
			parts = append(parts, fmt.Sprint(i))
		}
	}
	if len(parts) > 9 {
		parts = append(append(slices.Clone(parts[:4]), "…"), parts[len(parts)-4:]...)
	}
	return strings.Join(parts, " → ")
}

// findingsBelow lists what was found on turns, worst first, with the way there.
func findingsBelow(b *book, l links) []findingView {
	var list []findingView
	for i := range b.doc.Turns {
		for _, f := range findingsOf(b.doc.Turns[i].Validation) {
			f.Where, f.Href = fmt.Sprintf("turn %d", i), l.turn(b.key, i)
			list = append(list, f)
		}
	}
	rank := map[string]int{"fatal": 0, "warn": 1, "info": 2}
	slices.SortStableFunc(list, func(x, y findingView) int { return rank[x.Level] - rank[y.Level] })
	const most = 50
	if len(list) > most {
		list = append(list[:most], findingView{Level: "info", Detail: plural(len(list)-most, "further finding") + " on single turns"})
	}
	return list
}

// step is a line of the list of turns: a turn, or a failed call in its place.
type step struct {
	Failed   bool
	Index    int
	Call     int
	Anchor   string
	Href     string
	Role     string
	Text     string
	Calls    string
	Prompt   string
	Sampled  string
	Finish   string
	Took     string
	Notes    []string
	Broke    string
	BrokeTo  string
	Missing  bool // the document has no messages
	Findings []findingView
	Outcome  string
	Detail   string
	Received export.Time
}

// stepPage is a stretch of that list.
type stepPage struct {
	Steps   []step
	Load    string
	Missing bool       // the document has no messages
	Batches []struct{} // how many times stepsAtOnce they are: a page that moves asks for as many again
}

const stepsAtOnce = 100

// stepsOf lists calls [from, from+limit) in the order in which they were made.
func stepsOf(b *book, l links, from, limit int) stepPage {
	type ref struct{ call, turn, failed int }
	var refs []ref
	for i := range b.doc.Turns {
		refs = append(refs, ref{b.doc.Turns[i].Call, i, -1})
	}
	for i := range b.doc.FailedCalls {
		refs = append(refs, ref{b.doc.FailedCalls[i].Call, -1, i})
	}
	slices.SortStableFunc(refs, func(x, y ref) int { return cmp.Compare(x.call, y.call) })
	from = min(max(from, 0), len(refs))
	end := min(from+limit, len(refs))
	p := stepPage{Batches: make([]struct{}, max(1, min(limit/stepsAtOnce, 1000)))}
	for _, r := range refs[from:end] {
		if r.turn >= 0 {
			p.Steps = append(p.Steps, turnStep(b, l, r.turn))
			p.Missing = p.Missing || p.Steps[len(p.Steps)-1].Missing
		} else {
			p.Steps = append(p.Steps, failedStep(&b.doc.FailedCalls[r.failed]))
		}
	}
	if end < len(refs) {
		p.Load = fmt.Sprintf("%s/turns?from=%d", l.session(b.key), end)
	}
	return p
}

func turnStep(b *book, l links, i int) step {
	t := &b.doc.Turns[i]
	s := step{
		Index: i, Call: t.Call, Href: l.turn(b.key, i), Role: string(b.role(i)), Prompt: number(t.NPrompt), Sampled: number(t.NSampled),
		Finish: cmp.Or(t.FinishReason, "–"), Findings: findingsOf(t.Validation), Received: t.Timing.Received, Anchor: fmt.Sprintf("call-%d", t.Call),
	}
	s.Text, s.Calls = snippet(t.ResponseMessage)
	s.Missing = t.RequestMessages == nil && t.ResponseMessage == nil
	if begin, end := moments(t); end.After(begin) {
		s.Took = duration(end.Sub(begin))
	}
	if t.Outcome != record.Complete {
		s.Notes = append(s.Notes, string(t.Outcome))
	}
	if t.Discarded {
		s.Notes = append(s.Notes, "discarded: "+t.DiscardReason)
	}
	if t.RetryOf > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("retry of call %d", t.RetryOf))
	}
	if p := b.turn(t.ParentID); p >= 0 && p != i-1 {
		s.Notes = append(s.Notes, fmt.Sprintf("after turn %d", p))
	}
	if e := b.turn(t.Continues); t.Break != nil && e >= 0 {
		what, _ := show.Cause(t.Break.Cause)
		s.Broke, s.BrokeTo = fmt.Sprintf("broke from turn %d: %s", e, what), l.broke(b.key, i)
	}
	return s
}

func failedStep(f *export.FailedCall) step {
	s := step{
		Failed: true, Call: f.Call, Outcome: string(f.Outcome), Detail: short(f.Detail, 300), Prompt: number(f.NPrompt), Sampled: number(f.NSampled),
		Anchor: fmt.Sprintf("call-%d", f.Call),
	}
	if f.Status > 0 {
		s.Finish = fmt.Sprintf("HTTP %d", f.Status)
	}
	return s
}

// sessionPage is the page of a session, and the one page of a document that is all in one file.
type sessionPage struct {
	frame
	*sessionView
	Steps  stepPage
	Turns  []*turnView // on the one page
	Broken []*rupture
	Tokens []rowTokens
}

type rowTokens struct {
	rowView
	HTML      template.HTML
	Cut       int
	DecodedBy string
}

// decodedBy says whose texts a row's tokens have.
func (u *UI) decodedBy(ctx context.Context, b *book, k int) string {
	row := &b.doc.Sequences[k]
	_, by := u.decoder.pieces(ctx, b.doc, row.InputIDs[:min(1, len(row.InputIDs))])
	return by
}
