package validate

import (
	"encoding/json"
	"strings"
	"testing"

	"captureproxy/graph"
	"captureproxy/internal/record"
)

func turn(id string, arrival int, prompt, ids []int32) graph.Turn {
	return graph.Turn{ID: id, Arrival: arrival, Prompt: prompt, Sampled: ids, Logprobs: make([]float64, len(ids)), Usable: true}
}

// chain is a rollout of two turns, the second extending the first.
func chain() RolloutFacts {
	calls := []*record.Call{{Number: 1, Outcome: record.Complete}, {Number: 2, Outcome: record.Complete}}
	return RolloutFacts{
		Session:    &record.Session{CaptureLevel: record.LevelTokens, Engine: record.Engine{Profile: record.Profile{LogprobsMode: record.LogprobsProcessed}}},
		Calls:      calls,
		Graph:      graph.Link([]graph.Turn{turn("a", 0, []int32{1}, []int32{2}), turn("b", 1, []int32{1, 2, 3}, []int32{4})}),
		AgentRoots: 1,
		Trained:    calls,
	}
}

func sampledWith(params string) func(*RolloutFacts) {
	return func(f *RolloutFacts) { f.Trained[1].SubmittedSampling = json.RawMessage(params) }
}

func TestRollout(t *testing.T) {
	two := 2
	three := 3
	edit := func(kind record.EditKind, from, to string, behaviour bool) func(*RolloutFacts) {
		return func(f *RolloutFacts) {
			f.Calls[0].Edits = []record.Edit{{Kind: kind, Param: "temperature", From: json.RawMessage(from), To: json.RawMessage(to), Why: "w", Behaviour: behaviour}}
		}
	}
	mode := func(m record.LogprobsMode, allow bool, params string) func(*RolloutFacts) {
		return func(f *RolloutFacts) {
			f.Session.Engine.Profile.LogprobsMode, f.Session.AllowRawLogprobs = m, allow
			sampledWith(params)(f)
		}
	}
	link := func(turns ...graph.Turn) func(*RolloutFacts) {
		return func(f *RolloutFacts) { f.Graph = graph.Link(turns) }
	}
	a, b := turn("a", 0, []int32{1}, []int32{2}), turn("b", 1, []int32{9}, []int32{4})
	for _, tc := range []struct {
		name   string
		change func(f *RolloutFacts)
		want   string
	}{
		{"sound", func(f *RolloutFacts) {}, ""},
		{"no turns", link(), "FATAL no_turns"},
		{"no turns in eval", func(f *RolloutFacts) { link()(f); f.Session.CaptureLevel = record.LevelText }, "FATAL no_turns"},
		{"one turn", link(a), "WARN degenerate_rollout"},
		{"one turn and the budget", func(f *RolloutFacts) { link(a)(f); f.BudgetStops = 1 }, ""},
		{"enough turns", func(f *RolloutFacts) { f.Session.Spec.MinTurns = &two }, ""},
		{"too few turns", func(f *RolloutFacts) { f.Session.Spec.MinTurns = &three }, "FATAL degenerate_rollout"},
		{"every turn a root", link(a, b), "WARN per_turn_capture_only"},
		{"every turn a root in eval", func(f *RolloutFacts) { link(a, b)(f); f.Session.Spec.Purpose = record.PurposeEval }, "INFO per_turn_trace_only"},
		{"two agent roots", func(f *RolloutFacts) { f.AgentRoots = 2 }, "WARN multiple_roots"},
		{"fork, discard", link(a, turn("x", 1, []int32{1, 2, 3}, []int32{4}), turn("y", 2, []int32{1, 2, 3}, []int32{5}), turn("z", 3, []int32{1, 2, 3, 5}, []int32{6})),
			"INFO forks, WARN discarded_turns"},
		{"ambiguous", link(a, turn("x", 1, []int32{1, 2, 3}, []int32{4}), turn("y", 2, []int32{1, 2, 3}, []int32{5})), "INFO forks, WARN ambiguous_retry"},
		{"capture failed", func(f *RolloutFacts) { f.Session.CaptureFailed = "disk full" }, "FATAL capture_failed"},
		{"context budget", func(f *RolloutFacts) { f.Calls[1].ContextOverflow = true }, "WARN context_budget_exhausted"},
		{"upstream error", func(f *RolloutFacts) { f.Calls[1].Outcome = record.UpstreamError }, "WARN upstream_errors"},
		{"rejected is the harness's own", func(f *RolloutFacts) { f.Calls[1].Outcome = record.Rejected }, ""},
		{"neutralised", edit(record.EditSampling, "0.2", "1.0", false), "WARN sampling_neutralised"},
		{"nothing asked for", edit(record.EditSampling, "null", "1.0", false), ""},
		{"the same number", edit(record.EditSampling, "1", "1.0", false), ""},
		{"left out", edit(record.EditSampling, "false", "null", false), "WARN sampling_neutralised"},
		{"negotiated", edit(record.EditNegotiated, "0.2", "null", true), "WARN behaviour_changed"},
		{"negotiated without effect", edit(record.EditNegotiated, "0.2", "null", false), ""},
		{"processed at T 0.6", mode(record.LogprobsProcessed, false, `{"temperature":0.6}`), ""},
		{"raw at T 1", mode(record.LogprobsRaw, false, `{"temperature":1,"top_p":1.0,"top_k":-1,"min_p":0,"repetition_penalty":1}`), ""},
		{"raw at T 0.6", mode(record.LogprobsRaw, false, `{"temperature":0.6}`), "FATAL logprobs_mode"},
		{"raw, truncated", mode(record.LogprobsRaw, false, `{"top_k":20}`), "FATAL logprobs_mode"},
		{"raw, nucleus", mode(record.LogprobsRaw, false, `{"top_p":0.9}`), "FATAL logprobs_mode"},
		{"raw, min_p", mode(record.LogprobsRaw, false, `{"min_p":0.1}`), "FATAL logprobs_mode"},
		{"raw, penalty", mode(record.LogprobsRaw, false, `{"presence_penalty":0.5}`), "FATAL logprobs_mode"},
		{"raw, allowed", mode(record.LogprobsRaw, true, `{"temperature":0.6}`), "WARN logprobs_mode"},
		{"unknown at T 0.6", mode(record.LogprobsUnknown, false, `{"temperature":0.6}`), "WARN logprobs_mode"},
		{"unknown at T 1", mode(record.LogprobsUnknown, false, `{"temperature":1}`), ""},
		{"pinned and kept", func(f *RolloutFacts) {
			f.Session.Spec.Sampling = json.RawMessage(`{"temperature":1}`)
			sampledWith(`{"temperature":1.0,"top_k":-1}`)(f)
		}, ""},
		{"pinned and changed", func(f *RolloutFacts) {
			f.Session.Spec.Sampling = json.RawMessage(`{"temperature":1}`)
			sampledWith(`{"temperature":0.9}`)(f)
		}, "FATAL sampling_policy_changed"},
		{"changed, not pinned", sampledWith(`{"temperature":0.9}`), ""},
	} {
		f := chain()
		tc.change(&f)
		if got := strings.Join(labels(Rollout(f)), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestBC23_logprobs_are_never_rescaled(t *testing.T) {
	f := chain()
	f.Session.Engine.Profile.LogprobsMode = record.LogprobsRaw
	sampledWith(`{"temperature":0.6,"top_p":0.9,"top_k":20}`)(&f)
	got := Rollout(f)
	if len(got) != 1 || got[0].Level != Fatal || !strings.Contains(got[0].Detail, "temperature 0.6, top_p 0.9, top_k 20") {
		t.Errorf("%v", got)
	}
	biased := sound()
	biased.Constraints = []string{"logit_bias"}
	if codes := labels(Turn(biased, &biased.Choices[0], training)); len(codes) != 1 || codes[0] != "FATAL constrained_sampling" {
		t.Errorf("logit_bias: %v", codes)
	}
}
