package format

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"captureproxy/internal/record"
)

// drawCapture draws a session of any shape: turns go on after any earlier one or start anew, some repeat a prompt, some
// are cut off, sample nothing, or have no tools.
func drawCapture(t *rapid.T, id string) *capture {
	reward := rapid.SampledFrom([]*float64{ptr(0.0), ptr(0.5), ptr(1.0)}).Draw(t, "reward")
	c := newCapture(id, rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group"), reward)
	next := int32(1)
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = next
			next++
		}
		return out
	}
	for i := range rapid.IntRange(1, 9).Draw(t, "turns") {
		sampled := ids(rapid.IntRange(0, 3).Draw(t, "sampled"))
		var call *record.Call
		switch from := rapid.IntRange(-1, i-1).Draw(t, "from"); {
		case from < 0:
			call = c.turn([]json.RawMessage{text("user", fmt.Sprint("root ", i))}, ids(rapid.IntRange(1, 3).Draw(t, "prompt")), sampled...)
		case rapid.Bool().Draw(t, "again"):
			earlier := c.calls[from]
			call = c.turn(earlier.Messages, earlier.Choices[0].PromptIDs, sampled...)
		default:
			call = c.next(c.calls[from], ids(rapid.IntRange(1, 3).Draw(t, "added")), sampled...)
		}
		if rapid.IntRange(0, 5).Draw(t, "cut") == 0 {
			call.Outcome, call.Choices[0].Outcome = record.Aborted, record.Aborted
		}
		if rapid.IntRange(0, 4).Draw(t, "bare") == 0 {
			call.Tools = nil
		}
	}
	return c
}

// TestEachTokenOnce: over a whole export, each form trains exactly the distinct trainable tokens, whichever way the
// documents were made, and the summary says so.
func TestEachTokenOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var every, once list
		want, positive := 0, 0
		for i := range rapid.IntRange(1, 4).Draw(rt, "sessions") {
			c := drawCapture(rt, fmt.Sprint("s", i))
			every, once = append(every, c.build(record.SharedEvery)), append(once, c.build(record.SharedOnce))
			if r := once[i]; r.Trainable {
				want += r.Stats.DistinctTrainableTokens
				if *r.Reward != 0 {
					positive += r.Stats.DistinctTrainableTokens
				}
			}
		}
		for _, name := range tokenForms() {
			a, s := mustFiles(t, every, name, Options{})
			b, _ := mustFiles(t, once, name, Options{})
			if diff := cmp.Diff(all(b), all(a)); diff != "" {
				rt.Fatalf("%s: the two kinds of documents become other files (-once +every):\n%s", name, diff)
			}
			expect := want
			if name == "tinker" { // where the advantage is the mask
				expect = positive
			}
			if n := trainedTokens(t, name, a); n != expect || s.TrainedTokens != expect {
				rt.Fatalf("%s: %d trained tokens in the file, %d in the summary, want %d", name, n, s.TrainedTokens, expect)
			}
		}
	})
}
