package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/validate"
)

// commit makes the call durable; see commitMeanwhile.
func (c *call) commit() { c.commitMeanwhile(nil) }

// commitMeanwhile assembles the record, has it written, and waits until it is on disk, but not longer than the server's
// patience: a slow disk holds nobody (SPEC 3). meanwhile, if any, runs while the disk works. Only the first call of it does
// anything.
func (c *call) commitMeanwhile(meanwhile func()) {
	if c.settled {
		return
	}
	c.settled = true
	c.assemble()
	c.at.asked = time.Now()
	done := c.s.Log.Append(&c.rec)
	if meanwhile != nil {
		meanwhile()
	}
	patience := time.NewTimer(c.s.Patience)
	defer patience.Stop()
	select {
	case err := <-done:
		c.at.freed = c.s.now()
		if err == nil {
			c.recorded(nil)
			return
		}
		go c.recorded(err) // marking the session asks the same disk: the harness need not wait for it
	case <-patience.C:
		c.s.late.Add(1)
		c.at.freed, c.at.late = c.s.now(), true
		c.log(zap.WarnLevel, "the store is slow: an answer goes out before its turn is durable")
		go func() {
			c.recorded(<-done)
			c.s.late.Add(-1)
		}()
	}
}

// recorded ends the call's stay in its session, and marks the session when the call could not be written.
func (c *call) recorded(err error) {
	defer c.ticket.End(&c.rec)
	c.remember()
	c.observe(err)
	if err == nil {
		c.log(zap.DebugLevel, "call recorded", outcomeField(c.rec.Outcome), zap.Int("status", c.rec.Status))
		return
	}
	c.ticket.Lost()
	c.log(zap.ErrorLevel, "a call could not be recorded", errField(err))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = c.live.Update(ctx, func(s *record.Session) {
		if s.CaptureFailed == "" {
			s.CaptureFailed = "a call was answered that could not be recorded: " + err.Error()
		}
	})
	if err != nil { // the record in memory has it, so the document says so as long as this process lives
		c.log(zap.ErrorLevel, "the session could not be marked on disk", errField(err))
	}
}

// assemble completes the record from what was read.
func (c *call) assemble() {
	r := &c.rec
	c.note()
	r.Timing.Recorded = c.s.now()
	r.Policy.End = c.s.Sessions.Policy()
	r.Forwarded = c.ticket.Forwarded()
	r.Usage = c.answer.Usage
	r.Remarks = append(r.Remarks, c.answer.Remarks()...)
	if r.Body == nil {
		r.Body = c.body // refused before it was decoded
	}
	c.takeDerived()
	r.Choices = c.choices()
	c.checkBridge()
	c.conclude()
}

// choices turns what the answer says into the record's form.
func (c *call) choices() []record.Choice {
	var out []record.Choice
	for _, a := range c.answer.Choices {
		out = append(out, record.Choice{
			Index: a.Index, FinishReason: finishReason(a.Finish, a.HasCalls()), FinishReasonRaw: a.Finish, StopReason: a.StopReason,
			PromptIDs: c.answer.Prompt(a), SampledIDs: a.SampledIDs, Logprobs: a.Logprobs, HasIDs: a.HasIDs, HasLogprobs: a.HasLogprobs,
			Message: a.Message(), Remarks: a.Remarks(),
		})
	}
	slices.SortFunc(out, func(a, b record.Choice) int { return a.Index - b.Index })
	if !slices.ContainsFunc(out, func(ch record.Choice) bool { return len(ch.PromptIDs) > 0 }) {
		c.rec.PromptSource = ""
	}
	return out
}

// finishReason says an engine's finish reason in OpenAI's words. One that OpenAI has no word for stays as it is: it is not
// coerced to stop (BC15).
func finishReason(raw string, calls bool) string {
	switch raw {
	case "function_call", "tool_use":
		return "tool_calls"
	case "eos", "eos_token", "stop_sequence", "end_turn":
		return "stop"
	case "STOP", "completed": // Google and Responses end so with calls too
		if calls {
			return "tool_calls"
		}
		return "stop"
	case "max_tokens", "model_context_window_exceeded", "MAX_TOKENS", "max_output_tokens":
		return "length"
	case "refusal", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY":
		return "content_filter"
	}
	return raw
}

// conclude decides how the call ended: cancelled, client_gone, upstream_error, aborted, filtered, incomplete_capture,
// length, complete, in this order (SPEC 3).
func (c *call) conclude() {
	r := &c.rec
	whole := c.failure == "" && c.answer.Finished()
	delivered := whole && r.Stream // a harness may hang up once it has the finish reason
	cause := context.Cause(c.ctx)
	switch {
	case errors.Is(cause, session.ErrCancelled) && !whole:
		r.Outcome, r.Detail = record.Cancelled, cause.Error()
	case c.gone.Load() && !delivered:
		r.Outcome, r.Detail = record.ClientGone, "the harness hung up"
	case c.outcome != "":
		r.Outcome, r.Detail = c.outcome, c.failure
		if c.outcome == record.BudgetStop && r.ContextOverflow {
			r.Detail = "the engine's context window is full: " + c.failure
		}
	case !whole:
		r.Outcome, r.Detail = record.UpstreamError, "the call ended without an answer"
		if cause != nil {
			r.Detail = cause.Error()
		}
	default:
		c.concludeChoices()
		return
	}
	for i := range r.Choices {
		r.Choices[i].Outcome = r.Outcome
	}
}

// concludeChoices gives each choice of a finished answer its outcome, and the call the weightiest of them.
func (c *call) concludeChoices() {
	r := &c.rec
	session := c.live.Record()
	var problems []string
	unread := c.unread()
	for i := range r.Choices {
		ch := &r.Choices[i]
		outcome := c.finished(ch)
		if session.CaptureLevel == record.LevelTokens {
			if detail, bad := validate.CaptureProblem(r, ch, session.Engine.Profile.VocabSize); bad {
				outcome = outcome.Wins(record.IncompleteCapture)
				problems = append(problems, detail)
			}
		}
		if unread != "" && r.Usage.Completion == nil { // nothing shows that the rest is all there was
			outcome = outcome.Wins(record.IncompleteCapture)
			problems = append(problems, unread)
		}
		ch.Outcome = outcome
		if r.Outcome == "" {
			r.Outcome = outcome
		}
		r.Outcome = r.Outcome.Wins(outcome)
	}
	r.Detail = strings.Join(problems, "; ")
}

// unread says which parts of the answer could not be read, "" for none. The engine's own counts tell whether ids were in
// them.
func (c *call) unread() string {
	var parts []string
	if n := c.answer.Garbled; n > 0 {
		parts = append(parts, fmt.Sprintf("%d parts of the answer looked like JSON and are none", n))
	}
	if n := c.answer.Overflow; n > 0 {
		parts = append(parts, fmt.Sprintf("%d pieces of the answer belong to events larger than %d MiB", n, engine.MaxEvent>>20))
	}
	if len(parts) > 0 {
		c.conflict("%s", strings.Join(parts, "; "))
	}
	return strings.Join(parts, "; ")
}

// finished is the outcome that a choice's finish reason stands for.
func (c *call) finished(ch *record.Choice) record.Outcome {
	var a *engine.Choice
	for _, x := range c.answer.Choices {
		if x.Index == ch.Index {
			a = x
		}
	}
	switch {
	case ch.FinishReason == "abort":
		return record.Aborted
	case ch.FinishReason == "content_filter" || a.Refused():
		return record.Filtered
	case ch.FinishReason == "length":
		return record.Length
	case ch.FinishReason == "tool_calls" && c.rec.MaxTokens > 0 && len(ch.SampledIDs) == c.rec.MaxTokens && a.UnfinishedCall():
		return record.Length // cut in mid-call, though a streaming parser says tool_calls (WIRE 1)
	}
	return record.Complete
}
