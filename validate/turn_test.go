package validate

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/record"
)

func number(n int64) *int64 { return &n }

// sound is a call whose every check passes.
func sound() *record.Call {
	return &record.Call{
		Number: 1, Outcome: record.Complete, UsageAsked: true,
		Usage: record.Usage{Prompt: number(2), Completion: number(2)},
		Choices: []record.Choice{{
			FinishReason: "stop", PromptIDs: []int32{1, 2}, SampledIDs: []int32{5, 99}, Logprobs: []float64{-0.5, 0},
			HasIDs: true, HasLogprobs: true, Message: json.RawMessage(`{"role":"assistant","content":"5"}`),
		}},
	}
}

var training = Options{Trains: true, Vocab: 100}

// labels writes findings as LEVEL code.
func labels(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, string(f.Level)+" "+string(f.Code))
	}
	return out
}

func TestTurn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *record.Call, ch *record.Choice)
		o      Options
		want   string // LEVEL code, in order, joined with commas
	}{
		{"sound", func(c *record.Call, ch *record.Choice) {}, training, ""},
		{"no prompt ids", func(c *record.Call, ch *record.Choice) { ch.PromptIDs = nil }, training, "FATAL no_prompt_ids, FATAL id_count_mismatch"},
		{"no logprobs", func(c *record.Call, ch *record.Choice) { ch.Logprobs, ch.HasLogprobs = nil, false }, training, "FATAL no_logprobs"},
		{"an empty list of logprobs", func(c *record.Call, ch *record.Choice) { ch.Logprobs = nil }, training, "FATAL logprob_misalign"},
		{"nothing sampled", func(c *record.Call, ch *record.Choice) {
			ch.SampledIDs, ch.Logprobs, c.Usage.Completion = nil, nil, number(0)
		}, training, "WARN no_sampled_ids"},
		{"nothing at all", func(c *record.Call, ch *record.Choice) {
			ch.SampledIDs, ch.Logprobs, c.Usage.Completion, ch.Message = nil, nil, number(0), json.RawMessage(`{"role":"assistant","content":" "}`)
		}, training, "WARN no_sampled_ids, WARN empty_completion"},
		{"negative id", func(c *record.Call, ch *record.Choice) { ch.SampledIDs = []int32{5, -1} }, training, "FATAL invalid_token_id"},
		{"id beyond the vocabulary", func(c *record.Call, ch *record.Choice) { ch.PromptIDs = []int32{1, 100} }, training, "FATAL invalid_token_id"},
		{"vocabulary unknown", func(c *record.Call, ch *record.Choice) { ch.PromptIDs = []int32{1, 100} }, Options{Trains: true}, ""},
		{"null logprob", func(c *record.Call, ch *record.Choice) { ch.Logprobs[0] = math.NaN() }, training, "FATAL invalid_logprob"},
		{"infinite logprob", func(c *record.Call, ch *record.Choice) { ch.Logprobs[0] = math.Inf(-1) }, training, "FATAL invalid_logprob"},
		{"sentinel", func(c *record.Call, ch *record.Choice) { ch.Logprobs[0] = -9999 }, training, "FATAL invalid_logprob"},
		{"positive", func(c *record.Call, ch *record.Choice) { ch.Logprobs[0] = 1e-9 }, training, "FATAL positive_logprob"},
		{"misaligned", func(c *record.Call, ch *record.Choice) { ch.Logprobs = ch.Logprobs[:1] }, training, "FATAL logprob_misalign"},
		{"ids and usage differ", func(c *record.Call, ch *record.Choice) { c.Usage.Completion = number(3) }, training, "FATAL id_count_mismatch"},
		{"one more behind a stop string", func(c *record.Call, ch *record.Choice) {
			c.Usage.Completion, ch.StopReason = number(3), json.RawMessage(`"END"`)
		}, training, ""},
		{"two more behind a stop string", func(c *record.Call, ch *record.Choice) {
			c.Usage.Completion, ch.StopReason = number(4), json.RawMessage(`"END"`)
		}, training, "FATAL id_count_mismatch"},
		{"one less behind a stop string", func(c *record.Call, ch *record.Choice) {
			c.Usage.Completion, ch.StopReason = number(1), json.RawMessage(`"END"`)
		}, training, "FATAL id_count_mismatch"},
		{"null stop reason", func(c *record.Call, ch *record.Choice) {
			c.Usage.Completion, ch.StopReason = number(3), json.RawMessage(`null`)
		}, training, "FATAL id_count_mismatch"},
		{"prompt count", func(c *record.Call, ch *record.Choice) { c.Usage.Prompt = number(6) }, training, "FATAL id_count_mismatch"},
		{"length", func(c *record.Call, ch *record.Choice) { c.Outcome = record.Length }, training, "WARN truncated_turn"},
		{"length in eval", func(c *record.Call, ch *record.Choice) { ch.Outcome = record.Length }, Options{}, "INFO truncated_turn"},
		{"constrained", func(c *record.Call, ch *record.Choice) { c.Constraints = []string{"response_format"} }, training, "FATAL constrained_sampling"},
		{"aborted", func(c *record.Call, ch *record.Choice) { ch.Outcome = record.Aborted }, training, "FATAL not_trainable_outcome"},
		{"aborted, asked for by name", func(c *record.Call, ch *record.Choice) { ch.Outcome = record.Aborted }, Options{Trains: true, TrainAborted: true}, ""},
		{"filtered", func(c *record.Call, ch *record.Choice) { ch.Outcome = record.Filtered }, Options{Trains: true, TrainAborted: true}, "FATAL not_trainable_outcome"},
		{"incomplete", func(c *record.Call, ch *record.Choice) { c.Outcome = record.IncompleteCapture }, training, "FATAL not_trainable_outcome"},
		{"two sessions named", func(c *record.Call, ch *record.Choice) { c.Conflicts = []string{"s2"} }, training, "WARN capture_conflict"},
		{"no usage", func(c *record.Call, ch *record.Choice) { c.Usage = record.Usage{} }, training, "WARN no_usage"},
		{"usage not asked for", func(c *record.Call, ch *record.Choice) { c.Usage, c.UsageAsked = record.Usage{}, false }, training, ""},
		{"remark on a spelling", func(c *record.Call, ch *record.Choice) {
			ch.Remarks = []record.Remark{{Code: "logprob_misalign", Detail: "token_id:7 stands at 5"}}
		}, training, "FATAL logprob_misalign"},
		{"remark on a label", func(c *record.Call, ch *record.Choice) {
			c.Remarks = []record.Remark{{Code: "capture_conflict", Detail: "SSE under a JSON label"}}
		}, Options{}, "WARN capture_conflict"},
		{"remark that this version does not know", func(c *record.Call, ch *record.Choice) {
			c.Remarks = []record.Remark{{Code: "from_the_future", Detail: "x"}}
		}, training, "FATAL from_the_future"},
		{"text only, in eval", func(c *record.Call, ch *record.Choice) {
			*ch = record.Choice{Message: ch.Message}
			ch.Remarks = []record.Remark{{Code: "logprob_misalign", Detail: "x"}}
		}, Options{}, ""},
		{"silence, in eval", func(c *record.Call, ch *record.Choice) { *ch = record.Choice{} }, Options{}, "WARN empty_completion"},
		{"a tool call is an answer", func(c *record.Call, ch *record.Choice) {
			*ch = record.Choice{Message: json.RawMessage(`{"content":null,"tool_calls":[{"id":"c"}]}`)}
		}, Options{}, ""},
	} {
		c := sound()
		tc.change(c, &c.Choices[0])
		got := strings.Join(labels(Turn(c, &c.Choices[0], tc.o)), ", ")
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestChoicesAreCountedTogether(t *testing.T) {
	c := sound()
	c.Choices = append(c.Choices, c.Choices[0])
	c.Usage.Completion = number(4)
	for i := range c.Choices {
		if got := Turn(c, &c.Choices[i], training); len(got) != 0 {
			t.Errorf("choice %d: %v", i, got)
		}
	}
	c.Choices[1].Index, c.Choices[1].PromptIDs = 1, []int32{1, 3}
	if got := labels(Turn(c, &c.Choices[1], training)); !slices.Equal(got, []string{"WARN capture_conflict"}) {
		t.Errorf("other prompt ids: %v", got)
	}
}

func TestCaptureProblem(t *testing.T) {
	c := sound()
	if detail, bad := CaptureProblem(c, &c.Choices[0], 100); bad {
		t.Errorf("sound, yet %s", detail)
	}
	c.Choices[0].Logprobs = c.Choices[0].Logprobs[:1]
	c.Usage.Completion = number(7)
	detail, bad := CaptureProblem(c, &c.Choices[0], 100)
	for _, want := range []string{"1 logprobs for 2 sampled ids", "2 sampled ids, usage says 7"} {
		if !bad || !strings.Contains(detail, want) {
			t.Errorf("%q does not say %q", detail, want)
		}
	}
	c = sound()
	c.Choices[0].SampledIDs, c.Choices[0].Logprobs, c.Usage = nil, nil, record.Usage{}
	if detail, bad := CaptureProblem(c, &c.Choices[0], 0); !bad {
		t.Errorf("an answer with text and no ids passes: %q", detail)
	}
	c.Choices[0].Message = nil
	if detail, bad := CaptureProblem(c, &c.Choices[0], 0); bad {
		t.Errorf("nothing was sampled and nothing said: %q", detail)
	}
}

func TestUsableLogprobs(t *testing.T) {
	for _, tc := range []struct {
		logprobs []float64
		want     bool
	}{
		{[]float64{-0.1, 0}, true}, {[]float64{-9998.9, -1}, true},
		{[]float64{-0.1}, false}, {[]float64{-0.1, math.NaN()}, false}, {[]float64{0.1, -1}, false},
		{[]float64{-9999, -1}, false}, {[]float64{math.Inf(-1), -1}, false}, {nil, false},
	} {
		if got := UsableLogprobs(&record.Choice{SampledIDs: []int32{1, 2}, Logprobs: tc.logprobs}); got != tc.want {
			t.Errorf("%v: %v", tc.logprobs, got)
		}
	}
}

// BC03: [DONE] proves nothing; a call without a finish reason is no turn, and its partial ids are never trained on.
func TestBC03_failed_calls_are_never_trainable(t *testing.T) {
	for _, o := range []record.Outcome{record.UpstreamError, record.ClientGone, record.Rejected, record.Cancelled, record.BudgetStop} {
		if o.IsNode() || MayTrain(o, true) {
			t.Errorf("%s may train", o)
		}
	}
}

func TestBC30_token_data_is_a_bundle(t *testing.T) {
	a := sound()
	a.Usage.Prompt, a.Choices[0].PromptIDs = number(1), nil
	if !AnyFatal(Turn(a, &a.Choices[0], training)) {
		t.Error("A: prompt ids are there but empty, while usage says 1")
	}
	b := sound()
	b.Usage = record.Usage{}
	b.Choices[0].SampledIDs, b.Choices[0].Logprobs = []int32{5, 6, 7}, []float64{math.Inf(-1), -9999, math.NaN()}
	if got := Turn(b, &b.Choices[0], training); !strings.Contains(got[0].String(), "3 of 3 logprobs") {
		t.Errorf("B: %v", got)
	}
	if !math.IsInf(b.Choices[0].Logprobs[0], -1) || b.Choices[0].Logprobs[1] != -9999 {
		t.Error("B: a value was touched")
	}
	c := sound()
	c.Usage.Raw = json.RawMessage(`{"prompt_tokens":2,"completion_tokens":2}`)
	if got := Turn(c, &c.Choices[0], training); len(got) != 0 {
		t.Errorf("C: valid without details or total, got %v", got)
	}
}
