package validate

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"captureproxy/graph"
	"captureproxy/internal/record"
)

// RolloutFacts is a whole session as its checks see it.
type RolloutFacts struct {
	Session *record.Session
	Calls   []*record.Call // all of them, in order
	Graph   *graph.Graph
	// AgentRoots counts the roots of the live agent rows, Trained the calls of the turns that are trained on, in
	// order.
	AgentRoots  int
	Trained     []*record.Call
	BudgetStops int
}

// Rollout checks a whole session.
func Rollout(f RolloutFacts) []Finding {
	var r report
	checkCaptureFailed(&r, f)
	stats := f.Graph.Stats()
	if stats.Turns == 0 {
		r.add(Fatal, NoTurns, "no model call became a turn: did the harness reach the proxy with this session's key?")
	} else {
		checkDegenerate(&r, f, stats)
	}
	checkRoots(&r, f, stats)
	checkShape(&r, f, stats)
	checkSamplingEdits(&r, f)
	checkSamplingPolicy(&r, f)
	checkLogprobsMode(&r, f)
	checkBehaviour(&r, f)
	checkContextBudget(&r, f)
	checkUpstreamErrors(&r, f)
	return r
}

func checkCaptureFailed(r *report, f RolloutFacts) {
	if why := f.Session.CaptureFailed; why != "" {
		r.add(Fatal, CaptureFailed, "a call was answered that could not be recorded: %s", why)
	}
}

func checkDegenerate(r *report, f RolloutFacts, stats graph.Stats) {
	if least := f.Session.Spec.MinTurns; least != nil && stats.Turns < *least {
		r.add(Fatal, DegenerateRollout, "turns: %d, at least %d were asked for", stats.Turns, *least)
		return
	}
	if stats.Turns == 1 && f.BudgetStops == 0 {
		r.add(Warn, DegenerateRollout, "one model call for the whole task; look at the harness's log if that was not expected")
	}
}

func checkRoots(r *report, f RolloutFacts, stats graph.Stats) {
	if stats.Turns > 1 && stats.Roots == stats.Turns {
		if f.Session.Trains() {
			r.add(Warn, PerTurnCaptureOnly, "each of the %d turns is its own root: the prompts do not extend each other, so every row is a single turn that repeats its context", stats.Turns)
		} else {
			r.add(Info, PerTurnTraceOnly, "each of the %d turns is its own root: the trace is per call, not one thread", stats.Turns)
		}
	}
	if f.AgentRoots > 1 {
		r.add(Warn, MultipleRoots, "%d agent roots: subagents, or prompts that stopped extending each other (see the turns' break)", f.AgentRoots)
	}
}

func checkShape(r *report, f RolloutFacts, stats graph.Stats) {
	if stats.Forks > 0 {
		r.add(Info, Forks, "turns with several continuations: %d", stats.Forks)
	}
	if stats.Discarded > 0 {
		r.add(Warn, DiscardedTurns, "turns that led nowhere while a sibling went on: %d; they are in no training row", stats.Discarded)
	}
	for _, group := range f.Graph.Ambiguous {
		var ids []string
		for _, i := range group {
			ids = append(ids, f.Graph.Nodes[i].Turn.ID)
		}
		r.add(Warn, AmbiguousRetry, "%s answer the same prompt and none was continued: retries or samples, all are kept", strings.Join(ids, ", "))
	}
}

// checkSamplingEdits tells of sampling settings that the harness sent and did not get. Settings that it left open
// were nobody's wish.
func checkSamplingEdits(r *report, f RolloutFacts) {
	seen := map[string]bool{}
	var changed []string
	for _, c := range f.Calls {
		for _, e := range c.Edits {
			if e.Kind != record.EditSampling || isNull(e.From) || sameJSON(e.From, e.To) {
				continue
			}
			if s := fmt.Sprintf("%s %s → %s", e.Param, spell(e.From), spell(e.To)); !seen[s] {
				seen[s] = true
				changed = append(changed, s)
			}
		}
	}
	if len(changed) > 0 {
		r.add(Warn, SamplingNeutralised, "training changed what the harness asked for: %s", strings.Join(changed, ", "))
	}
}

func isNull(raw []byte) bool { return gjson.ParseBytes(raw).Type == gjson.Null }

func sameJSON(a, b []byte) bool {
	x, y := gjson.ParseBytes(a), gjson.ParseBytes(b)
	if x.Type == gjson.Number && y.Type == gjson.Number {
		return x.Num == y.Num
	}
	return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b))
}

func spell(raw []byte) string {
	if isNull(raw) {
		return "none"
	}
	return string(raw)
}

func checkBehaviour(r *report, f RolloutFacts) {
	seen := map[string]bool{}
	for _, c := range f.Calls {
		for _, e := range c.Edits {
			if e.Kind == record.EditNegotiated && e.Behaviour && !seen[e.Param] {
				seen[e.Param] = true
				r.add(Warn, BehaviourChanged, "%s %s → %s: %s", e.Param, spell(e.From), spell(e.To), e.Why)
			}
		}
	}
}

func callsWhere(calls []*record.Call, is func(*record.Call) bool) []string {
	var numbers []string
	for _, c := range calls {
		if is(c) {
			numbers = append(numbers, fmt.Sprint(c.Number))
		}
	}
	return numbers
}

func checkContextBudget(r *report, f RolloutFacts) {
	calls := callsWhere(f.Calls, func(c *record.Call) bool { return c.ContextOverflow })
	if len(calls) > 0 {
		r.add(Warn, ContextBudgetExhausted, "the engine refused as longer than its context: call %s", strings.Join(calls, ", "))
	}
}

func checkUpstreamErrors(r *report, f RolloutFacts) {
	calls := callsWhere(f.Calls, func(c *record.Call) bool { return c.Outcome == record.UpstreamError })
	if len(calls) > 0 {
		r.add(Warn, UpstreamErrors, "failed at the engine: call %s", strings.Join(calls, ", "))
	}
}
