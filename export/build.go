package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"captureproxy/graph"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// Options choose what a document holds.
type Options struct {
	// Shared says how a turn on several rows is masked; empty: as the session has it, else on every row.
	Shared           record.Shared
	IncludeDiscarded bool
	IncludeMessages  bool
	ProxyVersion     string
}

// answer is one choice of a call that became a turn, with what was derived from it alone.
type answer struct {
	call     *record.Call
	choice   *record.Choice
	name     string // <call>, or <call>.<choice>
	id       string
	outcome  record.Outcome
	findings []validate.Finding
	usable   bool
}

// Build derives the document of a session from its log. The calls may come in any order.
func Build(sess *record.Session, calls []*record.Call, o Options) *Rollout {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b *record.Call) int { return cmp.Compare(a.Number, b.Number) })
	mode := cmp.Or(o.Shared, sess.Spec.Shared, record.SharedEvery)

	answers, failed := split(sess, calls)
	g := graph.Link(graphTurns(answers))
	rows := newRows(sess, answers, g, mode)

	r := header(sess)
	r.Shared, r.ProxyVersion = mode, o.ProxyVersion
	r.Policy = policyOf(sess, answers)
	r.Run = runWithPolicy(sess.Spec.Run, r.Policy)
	r.Turns = turns(answers, g, o.IncludeMessages)
	r.FailedCalls = failed
	r.BudgetStops = budgetStops(calls)
	r.Sequences = rows.export(o.IncludeDiscarded)
	trained := rows.trained()
	r.Validation = validate.Rollout(validate.RolloutFacts{
		Session: sess, Calls: calls, Graph: g, AgentRoots: rows.agentRoots(), Trained: callsOf(answers, trained), BudgetStops: r.BudgetStops,
	})
	r.Stats = stats(r, g, answers, trained)
	r.Trainable = r.Stats.TrainableSequences > 0 && !validate.AnyFatal(r.Validation)
	return r
}

// split tells the answers that are turns from the calls that are not. Both come in order.
func split(sess *record.Session, calls []*record.Call) ([]answer, []FailedCall) {
	var answers []answer
	failed := []FailedCall{}
	for _, c := range calls {
		if !c.Outcome.IsNode() || len(c.Choices) == 0 {
			failed = append(failed, failedCall(c)...)
			continue
		}
		for i := range c.Choices {
			answers = append(answers, newAnswer(sess, c, &c.Choices[i]))
		}
	}
	return answers, failed
}

func newAnswer(sess *record.Session, c *record.Call, ch *record.Choice) answer {
	a := answer{call: c, choice: ch, name: strconv.Itoa(c.Number), outcome: validate.OutcomeOf(c, ch)}
	if ch.Index > 0 {
		a.name += "." + strconv.Itoa(ch.Index)
	}
	a.id = sess.ID + "-" + a.name
	a.findings = validate.Turn(c, ch, validate.OptionsOf(sess))
	a.usable = len(ch.PromptIDs) > 0 && validate.MayTrain(a.outcome, sess.TrainAborted) &&
		validate.UsableLogprobs(ch) && !validate.AnyFatal(a.findings)
	return a
}

// failedCall lists what a call that is no turn left behind: one entry, or one per choice that sampled something.
func failedCall(c *record.Call) []FailedCall {
	entry := FailedCall{Call: c.Number, Outcome: c.Outcome, Status: c.Status, Detail: c.Detail, SampledIDs: []int32{}}
	if c.Outcome.IsNode() && entry.Detail == "" {
		entry.Detail = "the answer had no choice"
	}
	var entries []FailedCall
	for i := range c.Choices {
		ch := &c.Choices[i]
		entry.NPrompt = max(entry.NPrompt, len(ch.PromptIDs))
		if len(ch.SampledIDs) > 0 {
			one := entry
			one.NPrompt, one.NSampled, one.SampledIDs = len(ch.PromptIDs), len(ch.SampledIDs), ch.SampledIDs
			entries = append(entries, one)
		}
	}
	if len(entries) == 0 {
		entries = []FailedCall{entry}
	}
	return entries
}

func graphTurns(answers []answer) []graph.Turn {
	list := make([]graph.Turn, len(answers))
	for i, a := range answers {
		list[i] = graph.Turn{
			ID: a.id, Arrival: i,
			Prompt: a.choice.PromptIDs, Sampled: a.choice.SampledIDs, Logprobs: a.choice.Logprobs, Usable: a.usable,
			Request: a.call.Messages, Reply: a.choice.Message, Tools: a.call.Tools,
			Thread: a.call.HarnessSessionID + "/" + a.call.Harness.AgentID,
		}
	}
	return list
}

func budgetStops(calls []*record.Call) int {
	n := 0
	for _, c := range calls {
		if c.Outcome == record.BudgetStop {
			n++
		}
	}
	return n
}

// callsOf returns the calls of the answers that were marked, each once.
func callsOf(answers []answer, marked []bool) []*record.Call {
	var calls []*record.Call
	for i, a := range answers {
		if marked[i] && (len(calls) == 0 || calls[len(calls)-1] != a.call) {
			calls = append(calls, a.call)
		}
	}
	return calls
}

func stats(r *Rollout, g *graph.Graph, answers []answer, trained []bool) Stats {
	shape := g.Stats()
	s := Stats{
		Turns: shape.Turns, Roots: shape.Roots, Leaves: shape.Leaves, Forks: shape.Forks, Discarded: shape.Discarded,
		Sequences: len(r.Sequences),
	}
	for i := range r.Sequences {
		if row := &r.Sequences[i]; row.Trainable {
			s.TrainableSequences++
			s.TrainableTokens += row.NTrainable
		}
	}
	for i, a := range answers {
		if a.call.PromptSource == record.PromptForced {
			s.Forced++
		}
		if trained[i] {
			s.DistinctTrainableTokens += len(a.choice.SampledIDs)
		}
	}
	calls := map[int]bool{}
	for _, f := range r.FailedCalls {
		calls[f.Call] = true
	}
	s.FailedCalls = len(calls)
	return s
}

// header takes over what the session itself says.
func header(sess *record.Session) *Rollout {
	r := &Rollout{
		SchemaVersion: SchemaVersion, SessionID: sess.ID, Status: sess.Status, Outcome: sess.Outcome,
		CreatedAt: Time{sess.CreatedAt}, Reward: sess.Reward, Rewards: sess.Rewards, Metadata: sess.Metadata,
		CaptureLevel: sess.CaptureLevel, RolloutType: TypeEval, Engine: engineOf(sess.Engine),
	}
	if sess.ClosedAt != nil {
		r.ClosedAt = Time{*sess.ClosedAt}
	}
	if sess.Trains() {
		r.RolloutType = TypeTrain
	}
	if e := sess.Spec.Env; e != nil {
		r.Env = &Env{ID: e.ID, Name: e.Name}
	}
	if grp := sess.Spec.Group; grp != nil {
		r.Group = &Group{ID: grp.ID, Size: grp.Size}
	}
	return r
}

func engineOf(e record.Engine) Engine {
	p := e.Profile
	return Engine{
		URL: e.URL, Model: e.Model, ParamEdits: edits(e.ParamEdits),
		Profile: Profile{
			Provider: p.Provider, Version: p.Version, CaptureLevel: p.CaptureLevel, StreamCapture: p.StreamCapture,
			LogprobsMode: p.LogprobsMode, ForcedIDs: p.ForcedIDs, ReasoningField: p.ReasoningField, ToolSupport: p.ToolSupport,
		},
	}
}

func edits(list []record.Edit) []Edit {
	out := make([]Edit, len(list))
	for i, e := range list {
		out[i] = Edit{Param: e.Param, From: e.From, To: e.To, Why: e.Why}
	}
	return out
}

// orEmpty is the object of parameters, never null: consumers index into it.
func orEmpty(params json.RawMessage) json.RawMessage {
	if len(params) == 0 || string(params) == "null" {
		return json.RawMessage("{}")
	}
	return params
}

// rowID names a row by its session's instance and its leaf, so that it is unique over every export of every session.
func rowID(sess *record.Session, leaf answer) string {
	if sess.Instance == "" {
		return leaf.id
	}
	return fmt.Sprintf("%s-%s-%s", sess.ID, sess.Instance, leaf.name)
}
