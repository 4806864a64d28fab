package validate

import (
	"strings"
	"testing"
)

func soundRow() RowFacts {
	return RowFacts{
		InputIDs: []int32{1, 2, 3, 4}, LossMask: []uint8{0, 1, 0, 1}, Logprobs: []float64{0, -0.5, 0, -0.25},
		PromptLen: 1, Sampled: 2,
	}
}

func TestRow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(f *RowFacts)
		want   string
	}{
		{"sound", func(f *RowFacts) {}, ""},
		{"short mask", func(f *RowFacts) { f.LossMask = f.LossMask[:3] }, "FATAL length_mismatch"},
		{"long logprobs", func(f *RowFacts) { f.Logprobs = append(f.Logprobs, 0) }, "FATAL length_mismatch"},
		{"prompt trained", func(f *RowFacts) { f.LossMask[0] = 1 }, "FATAL trainable_prompt"},
		{"context scored", func(f *RowFacts) { f.Logprobs[2] = -1 }, "FATAL masked_has_logprob"},
		{"no mask", func(f *RowFacts) { f.LossMask, f.Logprobs = make([]uint8, 4), make([]float64, 4) }, "FATAL nothing_trainable"},
		{"all shared", func(f *RowFacts) {
			f.LossMask, f.Logprobs, f.TakenByShare = make([]uint8, 4), make([]float64, 4), true
		}, "INFO all_shared"},
		{"no response", func(f *RowFacts) {
			*f = RowFacts{InputIDs: []int32{1}, LossMask: []uint8{0}, Logprobs: []float64{0}, PromptLen: 1}
		},
			"FATAL nothing_trainable, FATAL empty_response"},
		{"context turn", func(f *RowFacts) {
			f.Turns = []TurnFindings{{"s-1", []Finding{{Warn, TruncatedTurn, ""}}}, {"s-2", []Finding{{Fatal, NoLogprobs, ""}}}}
		}, "WARN untrained_turn"},
		{"half certain", func(f *RowFacts) { f.Logprobs[1] = 0 }, ""},
		{"all certain", func(f *RowFacts) { f.Logprobs = make([]float64, 4) }, "INFO certain_tokens"},
		{"no tokens", func(f *RowFacts) { *f = RowFacts{Sampled: 1} }, "FATAL nothing_trainable"},
	} {
		f := soundRow()
		tc.change(&f)
		if got := strings.Join(labels(Row(f)), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestUntrainedTurnNamesTurnAndCodes(t *testing.T) {
	f := soundRow()
	f.Turns = []TurnFindings{{"s-2", []Finding{{Fatal, NoLogprobs, "x"}, {Fatal, IDCountMismatch, "y"}}}}
	if got, want := Row(f)[0].String(), "[WARN] untrained_turn: s-2 is context: no_logprobs, id_count_mismatch"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFindingText(t *testing.T) {
	for _, s := range []string{"[FATAL] no_turns: nothing: at all", "[INFO] forks: 1", "some remark", "[odd] x: y", "[WARN] two words: y", ""} {
		var f Finding
		if err := f.UnmarshalText([]byte(s)); err != nil || f.String() != s {
			t.Errorf("%q came back as %q, %v", s, f.String(), err)
		}
	}
	var f Finding
	if err := f.UnmarshalText([]byte("[WARN] forks: a: b")); err != nil || f != (Finding{Warn, Forks, "a: b"}) {
		t.Errorf("%+v, %v", f, err)
	}
}
