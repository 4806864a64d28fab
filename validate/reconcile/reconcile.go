// Package reconcile holds a rollout document against the harness's own record of the same session.
//
// [Read] takes such a record, whose kind it tells from its content: an ATIF trajectory, or the session log that
// claude-code, codex, pi or opencode write. Whatever the kind, it becomes a [Trajectory]: one [Step] per model call as
// the harness saw it. [Against] pairs the steps with the document's turns and says what does not agree:
//
//	t, err := reconcile.Read(file)
//	findings := reconcile.Against(doc, t)
//
// Steps and turns are paired by the ids of their tool calls, by token ids, by text, by token counts, and last by their
// place between neighbours that are paired already; two that contradict each other are never paired. A document without
// messages has neither tool calls nor text: its counts and order must do.
//
// The package is pure: no files, no clock, no repair.
package reconcile

import (
	"fmt"
	"strings"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// Codes of reconciliation.
const (
	// OtherSession: nothing in the record is in the document.
	OtherSession validate.Code = "other_session"
	// CallMissing: the harness had an answer that the document does not have.
	CallMissing validate.Code = "call_missing"
	// CallExtra: the document has a turn that the harness did not keep.
	CallExtra validate.Code = "call_extra"
	// CallRetried: the harness asked again, and kept one answer.
	CallRetried validate.Code = "call_retried"
	// TokenCountsDiffer: both have counts of one call, and they differ.
	TokenCountsDiffer validate.Code = "token_counts_differ"
	// TokenIDsDiffer: both have the ids of one call, and they differ.
	TokenIDsDiffer validate.Code = "token_ids_differ"
	// CountsUnknown: the record says nothing about tokens.
	CountsUnknown validate.Code = "counts_unknown"
	// SyntheticStep: the harness wrote an error down as if the model had said it.
	SyntheticStep validate.Code = "synthetic_step"
	// BudgetStop: calls that the proxy answered itself.
	BudgetStop validate.Code = "budget_stop"
	// RecordCut: the record ends in the middle of a line.
	RecordCut validate.Code = "record_cut"
)

// Against compares a document with the harness's record.
func Against(doc *export.Rollout, t *Trajectory) []validate.Finding {
	r := &reconciler{doc: doc, t: t, turns: turnsOf(doc)}
	if t.Cut {
		r.add(validate.Warn, RecordCut, "the harness's record ends in the middle of a line: what came after is not compared")
	}
	real := r.setAside()
	matched := pair(real, r.turns)
	if len(matched.pairs) == 0 && len(real) > 0 && len(r.turns) > 0 {
		r.add(validate.Fatal, OtherSession, "none of the %d calls in the %s record is among the document's %d turns: is it the record of another session?",
			len(real), t.Kind, len(r.turns))
		return r.found
	}
	r.compare(matched.pairs)
	for _, s := range matched.steps {
		if !s.Copied {
			r.add(validate.Fatal, CallMissing, "%s (%s) is not in the document", s.ID, s.describe())
		}
	}
	for _, n := range matched.turns {
		r.extra(n)
	}
	r.stops()
	r.failures()
	return r.found
}

type reconciler struct {
	doc   *export.Rollout
	t     *Trajectory
	turns []turn
	found []validate.Finding

	budget    int    // steps that show the proxy's budget answer
	synthetic []Step // steps that the harness wrote itself
}

func (r *reconciler) add(level validate.Level, code validate.Code, format string, args ...any) {
	r.found = append(r.found, validate.Finding{Level: level, Code: code, Detail: fmt.Sprintf(format, args...)})
}

// budgetText is what the proxy answers when the budget of a session is spent.
const budgetText = "Step budget exhausted; stopping."

// setAside takes out what no model said, and returns the steps that must be turns.
func (r *reconciler) setAside() []Step {
	var real []Step
	for _, s := range r.t.Steps {
		switch {
		case s.Synthetic:
			r.synthetic = append(r.synthetic, s)
		case s.Text == budgetText && len(s.ToolCalls) == 0:
			r.budget++
		default:
			real = append(real, s)
		}
	}
	return real
}

// compare looks at the numbers of each pair.
func (r *reconciler) compare(pairs []paired) {
	counted := len(pairs) == 0
	for _, p := range pairs {
		counted = counted || p.step.Prompt != nil || p.step.Completion != nil || p.step.CompletionIDs != nil
		r.compareCount(validate.Fatal, p, "sampled", p.step.Completion, p.turn.completion)
		r.compareCount(validate.Warn, p, "prompt", p.step.Prompt, p.turn.prompt)
		if at, differ := firstDifference(p.step.CompletionIDs, p.turn.ids); differ {
			r.add(validate.Fatal, TokenIDsDiffer, "%s and turn %s: the sampled ids differ from position %d on (%d and %d ids)",
				p.step.ID, p.turn.NodeID, at, len(p.step.CompletionIDs), len(p.turn.ids))
		}
	}
	if !counted {
		r.add(validate.Info, CountsUnknown, "the %s record has no token counts: only the calls were compared", r.t.Kind)
	}
}

func (r *reconciler) compareCount(level validate.Level, p paired, what string, have, want *int64) {
	if have != nil && want != nil && *have != *want {
		r.add(level, TokenCountsDiffer, "%s has %d %s tokens, turn %s has %d", p.step.ID, *have, what, p.turn.NodeID, *want)
	}
}

// firstDifference compares two lists of ids where both are known.
func firstDifference(a, b []int32) (at int, differ bool) {
	if a == nil || b == nil {
		return 0, false
	}
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return at, at < len(a) || at < len(b)
}

// extra explains a turn that the harness's record does not have.
func (r *reconciler) extra(n turn) {
	switch {
	case n.Discarded && n.DiscardReason == "retry":
		r.add(validate.Info, CallRetried, "turn %s was answered, and the harness asked again and went on from the other answer", n.NodeID)
	case n.repeated:
		r.add(validate.Info, CallRetried, "turn %s was answered, and the harness repeated the call", n.NodeID)
	case n.Discarded:
		r.add(validate.Info, CallExtra, "turn %s led nowhere, and the harness did not keep it", n.NodeID)
	case n.auxiliary:
		r.add(validate.Info, CallExtra, "turn %s is a side call (a title and the like), which the harness does not log", n.NodeID)
	default:
		r.add(validate.Warn, CallExtra, "turn %s (call %d) is not in the harness's record", n.NodeID, n.Call)
	}
}

// stops compares how often the budget ended a call.
func (r *reconciler) stops() {
	level := validate.Info
	if r.budget != r.doc.BudgetStops {
		level = validate.Warn
	}
	if r.budget > 0 || r.doc.BudgetStops > 0 {
		r.add(level, BudgetStop, "the document counts %d calls that the budget ended, the harness's record %d", r.doc.BudgetStops, r.budget)
	}
}

// failures sets the errors that the harness wrote down beside the calls that failed in the document. What failed and
// is not written down was asked again.
func (r *reconciler) failures() {
	var failed []export.FailedCall
	for _, f := range r.doc.FailedCalls {
		if f.Outcome != record.BudgetStop {
			failed = append(failed, f)
		}
	}
	// Harnesses give up on the last attempt: earlier failures are retries.
	retried := max(0, len(failed)-len(r.synthetic))
	for _, f := range failed[:retried] {
		then := "the harness went on without its answer"
		for _, n := range r.turns {
			if n.RetryOf == f.Call {
				then = fmt.Sprintf("call %d repeated it", n.Call)
			}
		}
		r.add(validate.Info, CallRetried, "call %d failed (%s) and left no step: %s", f.Call, f.Outcome, then)
	}
	failed = failed[retried:]
	for i, s := range r.synthetic {
		if i < len(failed) {
			r.add(validate.Warn, SyntheticStep, "%s was written by the harness, not by the model, when call %d failed (%s): %s", s.ID, failed[i].Call, failed[i].Outcome, clip(s.Text))
			continue
		}
		r.add(validate.Warn, SyntheticStep, "%s was written by the harness, not by the model, and no call of the document failed: %s", s.ID, clip(s.Text))
	}
	for _, retry := range r.t.Retries {
		r.add(validate.Info, CallRetried, "%s", retry)
	}
}

// clip shortens a text for a finding, on one line.
func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > 120 {
		return string(runes[:120]) + "…"
	}
	return s
}
