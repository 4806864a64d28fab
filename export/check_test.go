package export

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

func fatal() []validate.Finding {
	return []validate.Finding{{Level: validate.Fatal, Code: validate.NoLogprobs, Detail: "x"}}
}

// two is a fork: s1-1, then s1-2 and s1-3.
func two(mode record.Shared) *Rollout {
	return Build(session(), []*record.Call{
		call(1, []int32{1}, []int32{5, 99}, -1, -2),
		call(2, []int32{1, 5, 99, 7}, []int32{8}, -1),
		call(3, []int32{1, 5, 99, 9}, []int32{10}, -1),
	}, Options{Shared: mode})
}

func TestCheckFindsDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(r *Rollout)
		want   string
	}{
		{"short mask", func(r *Rollout) { r.Sequences[0].LossMask = r.Sequences[0].LossMask[1:] }, "length_mismatch"},
		{"prompt trained", func(r *Rollout) { r.Sequences[0].LossMask[0] = 1 }, "trainable_prompt"},
		{"context trained", func(r *Rollout) { r.Sequences[0].LossMask[3] = 1 }, "lie outside"},
		{"context scored", func(r *Rollout) { r.Sequences[0].Logprobs[3] = -1 }, "masked_has_logprob"},
		{"negative id", func(r *Rollout) { r.Sequences[0].InputIDs[0] = -1 }, "invalid_token_id"},
		{"positive logprob", func(r *Rollout) { r.Sequences[0].Logprobs[1] = 1 }, "invalid_logprob"},
		{"null logprob", func(r *Rollout) { r.Sequences[0].Logprobs[1] = math.NaN() }, "invalid_logprob"},
		{"another logprob", func(r *Rollout) { r.Sequences[0].Logprobs[1] = -3 }, "the logprob at 1 is -3"},
		{"moved span", func(r *Rollout) { r.Sequences[0].TurnSpans[1] = [2]int{3, 4} }, "span 1"},
		{"a span more", func(r *Rollout) { r.Sequences[0].TurnSpans = append(r.Sequences[0].TurnSpans, [2]int{0, 1}) }, "3 spans"},
		{"shared span of nobody", func(r *Rollout) { r.Sequences[1].SharedSpans[0][0] = 0 }, "shared span"},
		{"turn lengths", func(r *Rollout) { r.Sequences[0].TurnLengths[0] = 1 }, "turn_lengths"},
		{"row ids", func(r *Rollout) { r.Sequences[1].RowID = r.Sequences[0].RowID }, "two rows"},
		{"node ids", func(r *Rollout) { r.Sequences[0].NodeIDs[1] = "x" }, "which is no turn"},
		{"another root", func(r *Rollout) { r.Sequences[0].RootID = "s1-2" }, "not with its root"},
		{"another path", func(r *Rollout) { r.Turns[1].ParentID = "s1-3" }, "its parent is"},
		{"unknown parent", func(r *Rollout) { r.Turns[1].ParentID = "x" }, "has the parent x"},
		{"unknown root", func(r *Rollout) { r.Turns[1].RootID = "x" }, "has the root x"},
		{"two turns, one id", func(r *Rollout) { r.Turns[2].NodeID = r.Turns[1].NodeID }, "one node_id"},
		{"index", func(r *Rollout) { r.Turns[1].Index = 5 }, "says index 5"},
		{"n_turns", func(r *Rollout) { r.Sequences[0].NTurns = 3 }, "n_turns"},
		{"n_trainable", func(r *Rollout) { r.Sequences[0].NTrainable = 9 }, "n_trainable 9"},
		{"trained turn is context", func(r *Rollout) { r.Turns[1].Validation = fatal() }, "which is context"},
		{"gate of a row", func(r *Rollout) { r.Sequences[0].Role = Auxiliary }, "called trainable"},
		{"gate", func(r *Rollout) { r.Trainable = false }, "trainable false"},
		{"gate against a finding", func(r *Rollout) { r.Validation = append(r.Validation, fatal()...) }, "trainable true"},
		{"eval that trains", func(r *Rollout) { r.RolloutType = TypeEval }, "eval rollout has"},
		{"level", func(r *Rollout) { r.CaptureLevel = record.LevelText }, "capture level"},
		{"stats", func(r *Rollout) { r.Stats.TrainableTokens++ }, "n_trainable_tokens"},
		{"distinct", func(r *Rollout) { r.Stats.DistinctTrainableTokens++ }, "n_distinct_trainable_tokens"},
		{"trained twice", func(r *Rollout) { r.Shared = record.SharedOnce }, "although shared is once"},
	} {
		r := two(record.SharedEvery)
		if found := Check(r); len(found) != 0 {
			t.Fatalf("sound, yet %v", found)
		}
		tc.damage(r)
		said := fmt.Sprint(Check(r))
		if !strings.Contains(said, tc.want) {
			t.Errorf("%s: %s does not say %q", tc.name, said, tc.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"nothing":        ``,
		"no JSON":        `{"session_id":`,
		"no document":    `{"a":1}`,
		"two documents":  `{"session_id":"a"}{"session_id":"b"}`,
		"a newer form":   `{"session_id":"a","schema_version":2}`,
		"half a mask":    `{"session_id":"a","sequences":[{"loss_mask":[0,0.5]}]}`,
		"a mask of two":  `{"session_id":"a","sequences":[{"loss_mask":[2]}]}`,
		"a mask of text": `{"session_id":"a","sequences":[{"loss_mask":"0"}]}`,
		"half an id":     `{"session_id":"a","sequences":[{"input_ids":[1.5]}]}`,
		"a huge id":      `{"session_id":"a","sequences":[{"input_ids":[3000000000]}]}`,
		"text logprobs":  `{"session_id":"a","sequences":[{"logprobs":["x"]}]}`,
		"n_prompt":       `{"session_id":"a","turns":[{"n_prompt":-1}]}`,
		"n_sampled":      `{"session_id":"a","turns":[{"n_sampled":9223372036854775807}]}`,
		"prompt_len":     `{"session_id":"a","sequences":[{"prompt_len":-1}]}`,
		"a span":         `{"session_id":"a","sequences":[{"turn_spans":[[2,1]]}]}`,
		"a strange time": `{"session_id":"a","created_at":"yesterday"}`,
	} {
		if r, err := Read(strings.NewReader(in)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

// An OpenEnv capture document has fewer fields and passes.
func TestReadOpenEnvDocument(t *testing.T) {
	r, err := Read(strings.NewReader(`{"session_id":"a","metadata":{},"budget_stop_count":0,
		"turns":[{"node_id":"n","index":0,"root_id":"n","n_sampled":1,"n_prompt":1,"n_tools":1,"finish_reason":"stop","sampled_logprobs":[-0.5],"discarded":false,"extra":1}],
		"stats":{"n_turns":1,"n_roots":1,"n_leaves":1,"n_forks":0,"n_discarded":0,"n_sequences":1,"n_trainable_sequences":1,"n_trainable_tokens":1},
		"sequences":[{"role":"agent","root_id":"n","node_ids":["n"],"n_turns":1,"prompt_len":1,"n_trainable":1,"turn_lengths":[1],"input_ids":[1,2],"loss_mask":[0,1],"logprobs":[0,-0.5],"trainable":true,"validation":[]}],
		"validation":["[WARN] degenerate_rollout: one"],"trainable":true,"capture_level":"tokens","rollout_type":"train"}`))
	if err != nil {
		t.Fatal(err)
	}
	if found := Check(r); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

func TestFloatsKeepTheirDigits(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0.0", -1: "-1.0", -0.5: "-0.5", 1e-5: "1e-05", -1.5e-7: "-1.5e-07", 123456789: "123456789.0",
		-0.10000000149011612: "-0.10000000149011612", 1e16: "1e+16", math.Inf(-1): "null", math.Copysign(0, -1): "-0.0",
	} {
		if got := string(appendFloat(nil, in)); got != want {
			t.Errorf("%v: %s, want %s", in, got, want)
		}
	}
}

// TestAnySessionIsConsistent builds random sessions, sound and unsound, in every mode.
func TestAnySessionIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sess := session()
		sess.CaptureLevel = rapid.SampledFrom([]record.Level{record.LevelTokens, record.LevelTokens, record.LevelText}).Draw(t, "level")
		sess.Spec.Purpose = rapid.SampledFrom([]record.Purpose{record.PurposeTrain, record.PurposeAuto, record.PurposeEval}).Draw(t, "purpose")
		mode := rapid.SampledFrom([]record.Shared{record.SharedEvery, record.SharedOnce}).Draw(t, "shared")
		calls := drawCalls(t)
		r := Build(sess, calls, Options{Shared: mode, IncludeDiscarded: rapid.Bool().Draw(t, "discarded"), IncludeMessages: rapid.Bool().Draw(t, "messages")})
		if found := Check(r); len(found) > 0 {
			t.Fatalf("%v", found)
		}
		if r.Stats.Turns+len(r.FailedCalls) != len(calls) {
			t.Fatalf("%d turns and %d failed calls of %d", r.Stats.Turns, len(r.FailedCalls), len(calls))
		}
		entries, err := TraceEntries(r)
		if (err != nil) != (r.RolloutType == TypeEval) {
			t.Fatalf("%s: %v", r.RolloutType, err)
		}
		trained := 0
		for _, e := range entries {
			trained += ones(e.LossMask)
		}
		if r.Trainable && trained != r.Stats.DistinctTrainableTokens || !r.Trainable && trained != 0 {
			t.Fatalf("the trace trains %d tokens, the document %d, trainable %v", trained, r.Stats.DistinctTrainableTokens, r.Trainable)
		}
	})
}

func drawCalls(t *rapid.T) []*record.Call {
	tokens := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 3)
	lp := rapid.SampledFrom([]float64{-0.5, -1e-5, 0, math.NaN(), -9999, 0.5})
	outcome := rapid.SampledFrom([]record.Outcome{record.Complete, record.Complete, record.Complete, record.Length, record.Aborted,
		record.Filtered, record.IncompleteCapture, record.UpstreamError, record.BudgetStop})
	var calls []*record.Call
	for i := range rapid.IntRange(0, 10).Draw(t, "n") {
		prompt := tokens.Draw(t, "prompt")
		if i > 0 && rapid.Bool().Draw(t, "extends") {
			ch := calls[rapid.IntRange(0, i-1).Draw(t, "base")].Choices[0]
			prompt = slices.Concat(ch.PromptIDs, ch.SampledIDs, prompt)
		}
		c := call(i+1, prompt, tokens.Draw(t, "sampled"))
		ch := &c.Choices[0]
		for range ch.SampledIDs {
			if rapid.IntRange(0, 5).Draw(t, "sound") > 0 {
				ch.Logprobs = append(ch.Logprobs, -0.25)
			} else {
				ch.Logprobs = append(ch.Logprobs, lp.Draw(t, "logprob"))
			}
		}
		c.Outcome = outcome.Draw(t, "outcome")
		ch.Outcome = c.Outcome
		if !rapid.Bool().Draw(t, "tools") {
			c.Tools = nil
		}
		calls = append(calls, c)
	}
	return calls
}

// FuzzRead reads whatever it is given; what it accepts must not upset anything that works on documents.
func FuzzRead(f *testing.F) {
	golden, err := os.ReadFile("testdata/rollout.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(`{"session_id":"a","rollout_type":"train","turns":[{"node_id":"n","n_prompt":1,"n_sampled":2}],"sequences":[{"role":"agent","node_ids":["n"],"root_id":"n","turn_spans":[[1,3]],"trainable":true}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		Check(r)
		_, _ = TraceEntries(r) // an error is as good as entries here
		again, err := Read(bytes.NewReader(bytesOf(t, r)))
		if err != nil {
			t.Fatalf("does not read what it wrote: %v", err)
		}
		if !bytes.Equal(bytesOf(t, r), bytesOf(t, again)) {
			t.Fatal("changes what it wrote")
		}
	})
}
