package validate

import (
	"strings"

	"captureproxy/internal/record"
)

// Options are the facts of the session that a turn's checks depend on.
type Options struct {
	// Trains says that the session trains: capture level tokens and purpose not eval. Checks on token data apply
	// only there.
	Trains       bool
	TrainAborted bool
	// Vocab is the number of token ids of the model, 0 when unknown.
	Vocab int
}

// OptionsOf takes the facts from a session.
func OptionsOf(s *record.Session) Options {
	return Options{Trains: s.Trains(), TrainAborted: s.TrainAborted, Vocab: s.Engine.Profile.VocabSize}
}

// Turn checks one choice of a call.
func Turn(c *record.Call, ch *record.Choice, o Options) []Finding {
	var r report
	if o.Trains {
		r = tokenChecks(c, ch, o.Vocab)
		checkConstraints(&r, c)
		checkOutcome(&r, c, ch, o)
	} else {
		addWarnings(&r, c.Remarks)
		addWarnings(&r, ch.Remarks)
	}
	checkTruncation(&r, c, ch, o)
	checkEmpty(&r, ch)
	checkCandidates(&r, c)
	checkPromptsAgree(&r, c, ch)
	checkUsage(&r, c)
	return r
}

// OutcomeOf returns the outcome of a choice, which is the call's where the choice names none.
func OutcomeOf(c *record.Call, ch *record.Choice) record.Outcome {
	if ch.Outcome == "" {
		return c.Outcome
	}
	return ch.Outcome
}

// MayTrain reports whether a turn with this outcome may be trained on.
func MayTrain(o record.Outcome, trainAborted bool) bool {
	switch o {
	case record.Complete, record.Length:
		return true
	case record.Aborted:
		return trainAborted
	}
	return false
}

// addWarnings takes over what was remarked in a session that does not train: remarks on token data do not apply.
func addWarnings(r *report, remarks []record.Remark) {
	for _, m := range remarks {
		if Code(m.Code) == CaptureConflict {
			addRemarks(r, []record.Remark{m})
		}
	}
}

func checkConstraints(r *report, c *record.Call) {
	if len(c.Constraints) > 0 {
		r.add(Fatal, ConstrainedSampling, "the request masks logits: %s", strings.Join(c.Constraints, ", "))
	}
}

func checkOutcome(r *report, c *record.Call, ch *record.Choice, o Options) {
	outcome := OutcomeOf(c, ch)
	if MayTrain(outcome, o.TrainAborted) {
		return
	}
	if c.Detail != "" {
		r.add(Fatal, NotTrainableOutcome, "outcome %s: %s", outcome, c.Detail)
		return
	}
	r.add(Fatal, NotTrainableOutcome, "outcome %s", outcome)
}

func checkTruncation(r *report, c *record.Call, ch *record.Choice, o Options) {
	if OutcomeOf(c, ch) != record.Length {
		return
	}
	level := Info
	if o.Trains {
		level = Warn
	}
	r.add(level, TruncatedTurn, "stopped by the output cap or the context window after %d sampled ids; its ending is the cap's, not the model's", len(ch.SampledIDs))
}

func checkEmpty(r *report, ch *record.Choice) {
	if len(ch.SampledIDs) == 0 && !says(ch.Message) {
		r.add(Warn, EmptyCompletion, "no text, no tool call, nothing sampled (finish reason %q)", ch.FinishReason)
	}
}

func checkCandidates(r *report, c *record.Call) {
	if len(c.Conflicts) > 0 {
		r.add(Warn, CaptureConflict, "the request also named the session %s", strings.Join(c.Conflicts, ", "))
	}
}

func checkPromptsAgree(r *report, c *record.Call, ch *record.Choice) {
	if len(c.Choices) == 0 {
		return
	}
	if first := &c.Choices[0]; !equalIDs(first.PromptIDs, ch.PromptIDs) {
		r.add(Warn, CaptureConflict, "the prompt ids of choice %d (%d) differ from those of choice %d (%d)",
			ch.Index, len(ch.PromptIDs), first.Index, len(first.PromptIDs))
	}
}

func equalIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) == 0 || &a[0] == &b[0] {
		return true // shared, as the choices of one call should be
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func checkUsage(r *report, c *record.Call) {
	if c.UsageAsked && c.Usage.Completion == nil {
		r.add(Warn, NoUsage, "usage was asked for and not given; the counts stand unchecked")
	}
}
