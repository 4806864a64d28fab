package export

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

// The tests named BC… are the cases of shared/cases that concern the document.

func TestBC03_partial_ids_of_a_failed_call_are_kept(t *testing.T) {
	ok := call(1, []int32{1}, []int32{5, 99}, -0.5, -0.1)
	broken := call(2, []int32{10, 11}, []int32{5}, -0.5)
	broken.Outcome, broken.Detail = record.UpstreamError, "error object in the stream: engine step failed"
	silent := call(3, nil, nil)
	silent.Outcome, silent.Choices, silent.Status = record.UpstreamError, nil, 0
	r := Build(session(), []*record.Call{ok, broken, silent}, Options{})
	sane(t, r)
	if len(r.Turns) != 1 || r.Stats.FailedCalls != 2 {
		t.Fatalf("%d turns, %d failed calls", len(r.Turns), r.Stats.FailedCalls)
	}
	want := FailedCall{Call: 2, Outcome: record.UpstreamError, Status: 200, Detail: broken.Detail, NPrompt: 2, NSampled: 1, SampledIDs: []int32{5}}
	same(t, "failed call", r.FailedCalls[0], want)
	if !strings.Contains(string(bytesOf(t, r)), `{"call":3,"outcome":"upstream_error","status":null,"detail":null,"n_prompt":0,"n_sampled":0,"sampled_ids":[]}`) {
		t.Error("a call without an answer has no entry")
	}
}

func TestFailedCallWithSeveralChoices(t *testing.T) {
	c := call(1, []int32{1}, []int32{5}, -0.5)
	c.Outcome = record.ClientGone
	c.Choices = append(c.Choices, record.Choice{Index: 1, PromptIDs: []int32{1}, SampledIDs: []int32{6, 7}}, record.Choice{Index: 2})
	r := Build(session(), []*record.Call{c}, Options{})
	if len(r.FailedCalls) != 2 || r.FailedCalls[1].NSampled != 2 || r.Stats.FailedCalls != 1 {
		t.Errorf("%+v, stats %+v", r.FailedCalls, r.Stats)
	}
}

func TestBC10_shared_tokens_trained_once(t *testing.T) {
	calls := []*record.Call{
		call(1, []int32{1}, []int32{5, 99}, -1, -1),
		call(2, []int32{1, 5, 99, 7}, []int32{8, 99}, -1, -1),
		call(3, []int32{1, 5, 99, 9}, []int32{10, 99}, -1, -1),
	}
	every := Build(session(), calls, Options{})
	once := Build(session(), calls, Options{Shared: record.SharedOnce})
	sane(t, every)
	sane(t, once)
	same(t, "default", every.Shared, record.SharedEvery)
	same(t, "every: mask", every.Sequences[1].LossMask, Mask{0, 1, 1, 0, 1, 1})
	same(t, "once: mask", once.Sequences[1].LossMask, Mask{0, 0, 0, 0, 1, 1})
	for _, r := range []*Rollout{every, once} {
		same(t, "shared_spans", r.Sequences[1].SharedSpans, [][2]int{{1, 3}})
		same(t, "distinct", r.Stats.DistinctTrainableTokens, 6)
	}
	same(t, "every: tokens", every.Stats.TrainableTokens, 8)
	same(t, "once: tokens", once.Stats.TrainableTokens, 6)
}

func TestBC21_side_calls_are_labelled(t *testing.T) {
	title := call(1, []int32{50}, []int32{51}, -1)
	title.Tools = nil
	probe := call(2, []int32{60}, []int32{61}, -1)
	probe.Tools, probe.Dialect = nil, record.AnthropicMessages
	work := call(3, []int32{1}, []int32{2}, -1)
	r := Build(session(), []*record.Call{title, probe, work}, Options{})
	sane(t, r)
	for i, want := range []Role{Auxiliary, Auxiliary, Agent} {
		if row := r.Sequences[i]; row.Role != want || row.Trainable != (want == Agent) {
			t.Errorf("row %d: %s, trainable %v", i, row.Role, row.Trainable)
		}
	}
	if !r.Trainable || r.Stats.TrainableSequences != 1 || r.Stats.TrainableTokens != 1 {
		t.Errorf("trainable %v, stats %+v", r.Trainable, r.Stats)
	}
}

func TestBC23_sampling_and_logprobs_mode_travel(t *testing.T) {
	sess := session()
	sess.Engine.Profile.LogprobsMode = record.LogprobsRaw
	hot := call(1, []int32{1}, []int32{5, 99}, -0.7, -0.1)
	hot.RequestedSampling, hot.SubmittedSampling = []byte(`{"temperature":0.6}`), []byte(`{"temperature": 0.6,"top_p":0.9}`)
	cool := call(2, []int32{1, 5, 99, 2}, []int32{5, 99}, -0.7, -0.1)
	r := Build(sess, []*record.Call{hot, cool}, Options{})
	sane(t, r)
	if r.Trainable || !slices.Contains(codes(r.Validation), "FATAL logprobs_mode") {
		t.Errorf("trainable %v, %v", r.Trainable, r.Validation)
	}
	same(t, "submitted", string(r.Turns[0].SamplingParams), `{"temperature": 0.6,"top_p":0.9}`)
	same(t, "requested", string(r.Turns[0].RequestedSampling), `{"temperature":0.6}`)
	same(t, "mode", r.Engine.Profile.LogprobsMode, record.LogprobsRaw)
	same(t, "logprobs", r.Turns[0].SampledLogprobs, Logprobs{-0.7, -0.1})

	sess.AllowRawLogprobs = true
	if r := Build(sess, []*record.Call{hot, cool}, Options{}); !r.Trainable || !slices.Contains(codes(r.Validation), "WARN logprobs_mode") {
		t.Errorf("allowed by name, yet trainable %v, %v", r.Trainable, r.Validation)
	}
}

func TestBC32_row_ids_never_collide(t *testing.T) {
	calls := []*record.Call{call(1, []int32{1}, []int32{2}, -1), call(2, []int32{7}, []int32{8}, -1)}
	seen := map[string]bool{}
	first, other, again := session(), session(), session()
	other.ID, again.Instance = "s2", "00000000000000bb"
	for _, s := range []*record.Session{first, other, again} {
		s.Spec.Group = &record.Group{ID: "task"}
		r := Build(s, calls, Options{})
		for i, row := range r.Sequences {
			if seen[row.RowID] {
				t.Errorf("%s comes twice", row.RowID)
			}
			seen[row.RowID] = true
			if stable := Build(s, calls, Options{Shared: record.SharedOnce}).Sequences[i].RowID; stable != row.RowID {
				t.Errorf("%s became %s", row.RowID, stable)
			}
		}
		if r.Group.ID != "task" {
			t.Error("the group is lost")
		}
	}
	overflow := call(3, nil, nil)
	overflow.Outcome, overflow.Choices, overflow.ContextOverflow = record.BudgetStop, nil, true
	r := Build(first, append(calls, overflow), Options{})
	sane(t, r)
	if r.Stats.TrainableSequences != 2 || r.BudgetStops != 1 || len(r.FailedCalls) != 1 || !slices.Contains(codes(r.Validation), "WARN context_budget_exhausted") {
		t.Errorf("%+v %v", r.Stats, r.Validation)
	}
}

func TestBC30_untrusted_turns_are_context(t *testing.T) {
	bad := call(1, []int32{1}, []int32{5, 6}, math.NaN(), -9999)
	good := call(2, []int32{1, 5, 6, 7}, []int32{8}, -0.5)
	r := Build(session(), []*record.Call{bad, good}, Options{})
	sane(t, r)
	row := r.Sequences[0]
	same(t, "mask", row.LossMask, Mask{0, 0, 0, 0, 1})
	same(t, "logprobs", row.Logprobs, Logprobs{0, 0, 0, 0, -0.5})
	same(t, "findings", codes(row.Validation), []string{"WARN untrained_turn"})
	if !row.Trainable || !r.Trainable {
		t.Error("a turn that is context makes the row untrainable")
	}
	if s := string(bytesOf(t, r)); !strings.Contains(s, `"sampled_logprobs":[null,-9999.0]`) {
		t.Error("captured values are not as captured")
	}
}

func TestBC42_prompt_of_record(t *testing.T) {
	c := call(1, []int32{1, 1, 700, 8}, []int32{5}, -1)
	six := int64(6)
	c.Usage.Prompt, c.PromptSource, c.Outcome = &six, record.PromptDerived, record.IncompleteCapture
	c.Choices[0].Outcome = record.IncompleteCapture
	r := Build(session(), []*record.Call{c}, Options{})
	sane(t, r)
	if r.Trainable || r.Turns[0].PromptSource != record.PromptDerived {
		t.Errorf("a derived prompt that contradicts the engine's count: trainable %v", r.Trainable)
	}
	same(t, "findings", codes(r.Turns[0].Validation), []string{"FATAL id_count_mismatch", "FATAL not_trainable_outcome"})
}

func TestAbortedTurns(t *testing.T) {
	c := call(1, []int32{1}, []int32{2, 3}, -1, -1)
	c.Outcome, c.Choices[0].Outcome = record.Aborted, record.Aborted
	sess := session()
	if r := Build(sess, []*record.Call{c}, Options{}); r.Trainable {
		t.Error("an aborted turn trains")
	}
	sess.TrainAborted = true
	r := Build(sess, []*record.Call{c}, Options{})
	if sane(t, r); !r.Trainable {
		t.Error("an aborted turn does not train although asked for by name")
	}
}

func TestEvalBelowTokensHasNoTokens(t *testing.T) {
	for _, level := range []record.Level{record.LevelLogprobs, record.LevelText, ""} {
		sess := session()
		sess.CaptureLevel = level
		r := Build(sess, []*record.Call{call(1, []int32{1}, []int32{2}, -1), call(2, []int32{1, 2, 3}, []int32{4}, -1)}, Options{})
		sane(t, r)
		row := r.Sequences[0]
		if r.RolloutType != TypeEval || r.Trainable || len(row.InputIDs)+len(row.LossMask)+len(row.Logprobs)+len(row.TurnSpans)+row.PromptLen > 0 {
			t.Errorf("%q: %+v", level, row)
		}
		if row.Role != Agent || row.NTurns != 2 {
			t.Errorf("%q: the structure is lost: %+v", level, row)
		}
		if _, err := TraceEntries(r); !errors.Is(err, ErrEval) {
			t.Errorf("%q: %v", level, err)
		}
	}
}

func TestDiscardedRowsOnlyWhenAsked(t *testing.T) {
	calls := []*record.Call{
		call(1, []int32{1}, []int32{2}, -1), call(2, []int32{1}, []int32{3}, -1), call(3, []int32{1, 3, 4}, []int32{5}, -1),
	}
	r := Build(session(), calls, Options{})
	sane(t, r)
	if len(r.Sequences) != 1 || r.Stats.Discarded != 1 || !r.Turns[0].Discarded || r.Turns[0].DiscardReason != "retry" {
		t.Errorf("%d rows, turn %+v", len(r.Sequences), r.Turns[0])
	}
	r = Build(session(), calls, Options{IncludeDiscarded: true})
	sane(t, r)
	if len(r.Sequences) != 2 || r.Sequences[0].Role != Discarded || r.Sequences[0].Trainable {
		t.Errorf("%+v", r.Sequences)
	}
}

func TestChoicesAreTurns(t *testing.T) {
	c := call(1, []int32{1}, []int32{2}, -1)
	two := int64(2)
	c.Usage.Completion = &two
	second := c.Choices[0]
	second.Index, second.SampledIDs = 1, []int32{3}
	c.Choices = append(c.Choices, second)
	r := Build(session(), []*record.Call{c}, Options{})
	sane(t, r)
	same(t, "ids", []string{r.Turns[0].NodeID, r.Turns[1].NodeID}, []string{"s1-1", "s1-1.1"})
	same(t, "row", r.Sequences[1].RowID, "s1-00000000000000aa-1.1")
	same(t, "call", r.Turns[1].Call, 1)
}

func TestRolloutFatalStopsEverything(t *testing.T) {
	sess := session()
	sess.CaptureFailed = "disk full"
	r := Build(sess, []*record.Call{call(1, []int32{1}, []int32{2}, -1)}, Options{})
	sane(t, r)
	if r.Trainable || !r.Sequences[0].Trainable || !validate.AnyFatal(r.Validation) {
		t.Errorf("trainable %v, row %v, %v", r.Trainable, r.Sequences[0].Trainable, r.Validation)
	}
	entries, err := TraceEntries(r)
	if err != nil || len(entries) != 1 || ones(entries[0].LossMask) != 0 {
		t.Errorf("trace entries train what the document forbids: %+v, %v", entries, err)
	}
}
