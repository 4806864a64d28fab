package validate

import (
	"math"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"captureproxy/internal/record"
)

// Sentinel is the logprob at and below which engines mean "none": no probability is that small.
const Sentinel = -9999

// CaptureProblem says whether an answer's token data fails to add up at an engine of level tokens, and how; such a
// call gets the outcome incomplete_capture. All choices of the call must be in place: usage counts them together.
func CaptureProblem(c *record.Call, ch *record.Choice, vocab int) (detail string, bad bool) {
	r := tokenChecks(c, ch, vocab)
	if len(ch.SampledIDs) == 0 && says(ch.Message) {
		r.add(Fatal, NoSampledIDs, "the answer has text or calls, but the engine gave no sampled ids")
	}
	var problems []string
	for _, f := range r {
		if f.Level == Fatal {
			problems = append(problems, string(f.Code)+": "+f.Detail)
		}
	}
	return strings.Join(problems, "; "), len(problems) > 0
}

// UsableLogprobs reports whether there is one finite number in (-9999, 0] for each sampled id.
func UsableLogprobs(ch *record.Choice) bool {
	if len(ch.Logprobs) != len(ch.SampledIDs) {
		return false
	}
	for _, lp := range ch.Logprobs {
		if !(lp > Sentinel && lp <= 0) { // false for NaN too
			return false
		}
	}
	return true
}

func tokenChecks(c *record.Call, ch *record.Choice, vocab int) report {
	var r report
	checkPromptIDs(&r, ch)
	checkSampledIDs(&r, ch)
	checkIDRange(&r, "prompt", ch.PromptIDs, vocab)
	checkIDRange(&r, "sampled", ch.SampledIDs, vocab)
	checkLogprobValues(&r, ch)
	checkAlignment(&r, ch)
	checkPromptCount(&r, c, ch)
	checkCompletionCount(&r, c)
	addRemarks(&r, c.Remarks)
	addRemarks(&r, ch.Remarks)
	return r
}

func checkPromptIDs(r *report, ch *record.Choice) {
	if len(ch.PromptIDs) == 0 {
		r.add(Fatal, NoPromptIDs, "the engine gave no prompt ids, so nothing can be linked to this turn or trained on it")
	}
}

func checkSampledIDs(r *report, ch *record.Choice) {
	if len(ch.SampledIDs) == 0 {
		r.add(Warn, NoSampledIDs, "no sampled ids (finish reason %q)", ch.FinishReason)
	}
}

func checkIDRange(r *report, what string, ids []int32, vocab int) {
	limit := uint32(1) << 31 // as a uint32, a negative id is at least this
	if vocab > 0 {
		limit = uint32(vocab)
	}
	const block = 8 // most prompts hold no such id, and are long
	start := 0
	for ; len(ids)-start >= block; start += block {
		b := (*[block]int32)(ids[start:])
		if uint32(b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7]) >= limit && slices.ContainsFunc(b[:], func(id int32) bool { return uint32(id) >= limit }) {
			break
		}
	}
	for i := start; i < len(ids); i++ {
		id := ids[i]
		if uint32(id) < limit {
			continue
		}
		if id < 0 {
			r.add(Fatal, InvalidTokenID, "%s id %d is %d, which is negative", what, i, id)
		} else {
			r.add(Fatal, InvalidTokenID, "%s id %d is %d, beyond the vocabulary of %d", what, i, id, vocab)
		}
		return
	}
}

func checkLogprobValues(r *report, ch *record.Choice) {
	invalid, positive, at, above := 0, 0, 0, 0
	for i, lp := range ch.Logprobs {
		switch {
		case math.IsNaN(lp) || math.IsInf(lp, 0) || lp <= Sentinel:
			if invalid == 0 {
				at = i
			}
			invalid++
		case lp > 0:
			if positive == 0 {
				above = i
			}
			positive++
		}
	}
	if invalid > 0 {
		r.add(Fatal, InvalidLogprob, "%d of %d logprobs are null, not finite or at most %d, the first at %d", invalid, len(ch.Logprobs), Sentinel, at)
	}
	if positive > 0 {
		r.add(Fatal, PositiveLogprob, "%d of %d logprobs are above 0, the first at %d", positive, len(ch.Logprobs), above)
	}
}

func checkAlignment(r *report, ch *record.Choice) {
	switch n := len(ch.SampledIDs); {
	case !ch.HasLogprobs && len(ch.Logprobs) == 0:
		if n > 0 {
			r.add(Fatal, NoLogprobs, "%d sampled ids without logprobs", n)
		}
	case len(ch.Logprobs) != n:
		r.add(Fatal, LogprobMisalign, "%d logprobs for %d sampled ids", len(ch.Logprobs), n)
	}
}

func checkPromptCount(r *report, c *record.Call, ch *record.Choice) {
	if want := c.Usage.Prompt; want != nil && *want != int64(len(ch.PromptIDs)) {
		r.add(Fatal, IDCountMismatch, "%d prompt ids, usage says %d", len(ch.PromptIDs), *want)
	}
}

// checkCompletionCount compares the ids of all choices with the engine's count. Where a choice stopped on a string or
// token that the engine names, that one may be counted without being among the ids.
func checkCompletionCount(r *report, c *record.Call) {
	if c.Usage.Completion == nil {
		return
	}
	ids, stopped := 0, 0
	for i := range c.Choices {
		ids += len(c.Choices[i].SampledIDs)
		if namesStop(&c.Choices[i]) {
			stopped++
		}
	}
	if extra := *c.Usage.Completion - int64(ids); extra < 0 || extra > int64(stopped) {
		r.add(Fatal, IDCountMismatch, "%d sampled ids, usage says %d", ids, *c.Usage.Completion)
	}
}

func namesStop(ch *record.Choice) bool {
	v := gjson.ParseBytes(ch.StopReason)
	return v.Exists() && v.Type != gjson.Null
}

// levelOf returns the level of a code that was noticed while capturing. What this version does not know it does not
// trust.
func levelOf(code Code) Level {
	switch code {
	case NoSampledIDs, EmptyCompletion, CaptureConflict, NoUsage, TruncatedTurn:
		return Warn
	}
	return Fatal
}

func addRemarks(r *report, remarks []record.Remark) {
	for _, m := range remarks {
		r.add(levelOf(Code(m.Code)), Code(m.Code), "%s", m.Detail)
	}
}

// says reports whether a message has text, a refusal or a tool call.
func says(message []byte) bool {
	v := gjson.ParseBytes(message)
	if len(v.Get("tool_calls").Array()) > 0 || v.Get("function_call").IsObject() {
		return true
	}
	if strings.TrimSpace(v.Get("refusal").String()) != "" {
		return true
	}
	content := v.Get("content")
	if !content.IsArray() {
		return strings.TrimSpace(content.String()) != ""
	}
	for _, part := range content.Array() {
		if text := part.Get("text"); !text.Exists() || strings.TrimSpace(text.String()) != "" {
			return true
		}
	}
	return false
}
