// Package validate checks captured calls, rows and rollouts, one small function per check, and says what it found as
// [Finding] values with codes from a closed set.
//
// [Turn] needs no graph: the proxy calls it (through [CaptureProblem]) as soon as an answer is assembled, to tell
// whether ids, logprobs and the engine's own counts agree. [Row] checks a flattened path, [Rollout] a whole session.
//
// A FATAL finding on a turn makes that turn context, on a row it makes the row untrainable, on a rollout all of it.
//
// The package is pure: no I/O, no clock. It never repairs anything.
package validate

import (
	"fmt"
	"strings"
)

// Level says what a finding means for training.
type Level string

// Levels of findings.
const (
	Fatal Level = "FATAL" // not trainable
	Warn  Level = "WARN"  // trainable, and somebody should look
	Info  Level = "INFO"
)

// Code names what was found.
type Code string

// Codes of turns.
const (
	NoPromptIDs         Code = "no_prompt_ids"
	NoLogprobs          Code = "no_logprobs"
	NoSampledIDs        Code = "no_sampled_ids"
	InvalidTokenID      Code = "invalid_token_id"
	InvalidLogprob      Code = "invalid_logprob"
	PositiveLogprob     Code = "positive_logprob"
	LogprobMisalign     Code = "logprob_misalign"
	IDCountMismatch     Code = "id_count_mismatch"
	TruncatedTurn       Code = "truncated_turn"
	ConstrainedSampling Code = "constrained_sampling"
	NotTrainableOutcome Code = "not_trainable_outcome"
	EmptyCompletion     Code = "empty_completion"
	CaptureConflict     Code = "capture_conflict"
	NoUsage             Code = "no_usage"
)

// Codes of rows.
const (
	LengthMismatch   Code = "length_mismatch"
	TrainablePrompt  Code = "trainable_prompt"
	MaskedHasLogprob Code = "masked_has_logprob"
	NothingTrainable Code = "nothing_trainable"
	AllShared        Code = "all_shared"
	EmptyResponse    Code = "empty_response"
	UntrainedTurn    Code = "untrained_turn"
	CertainTokens    Code = "certain_tokens"
)

// Codes of rollouts.
const (
	NoTurns                Code = "no_turns"
	DegenerateRollout      Code = "degenerate_rollout"
	PerTurnCaptureOnly     Code = "per_turn_capture_only"
	PerTurnTraceOnly       Code = "per_turn_trace_only"
	MultipleRoots          Code = "multiple_roots"
	Forks                  Code = "forks"
	DiscardedTurns         Code = "discarded_turns"
	AmbiguousRetry         Code = "ambiguous_retry"
	SamplingNeutralised    Code = "sampling_neutralised"
	SamplingPolicyChanged  Code = "sampling_policy_changed"
	LogprobsMode           Code = "logprobs_mode"
	BehaviourChanged       Code = "behaviour_changed"
	ContextBudgetExhausted Code = "context_budget_exhausted"
	UpstreamErrors         Code = "upstream_errors"
	CaptureFailed          Code = "capture_failed"
)

// InconsistentDocument is found only in a document that is checked again from disk: its parts contradict each other.
const InconsistentDocument Code = "inconsistent_document"

// Finding is one remark of a check.
type Finding struct {
	Level  Level
	Code   Code
	Detail string
}

// String is the finding as documents carry it: [LEVEL] code: detail.
func (f Finding) String() string {
	if f.Code == "" {
		return f.Detail
	}
	return "[" + string(f.Level) + "] " + string(f.Code) + ": " + f.Detail
}

// MarshalText writes the finding as a string.
func (f Finding) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a finding back. A remark of another producer that has not its form is kept as bare detail.
func (f *Finding) UnmarshalText(text []byte) error {
	s := string(text)
	*f = Finding{Detail: s}
	level, rest, ok := strings.Cut(strings.TrimPrefix(s, "["), "] ")
	code, detail, colon := strings.Cut(rest, ": ")
	if !strings.HasPrefix(s, "[") || !ok || !colon || strings.ContainsAny(code, " ") {
		return nil
	}
	switch Level(level) {
	case Fatal, Warn, Info:
		*f = Finding{Level: Level(level), Code: Code(code), Detail: detail}
	}
	return nil
}

// AnyFatal reports whether one of the findings is FATAL.
func AnyFatal(findings []Finding) bool {
	for _, f := range findings {
		if f.Level == Fatal {
			return true
		}
	}
	return false
}

func finding(level Level, code Code, format string, args ...any) Finding {
	return Finding{Level: level, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// report collects findings, each once.
type report []Finding

func (r *report) add(level Level, code Code, format string, args ...any) {
	f := finding(level, code, format, args...)
	for _, have := range *r {
		if have == f {
			return
		}
	}
	*r = append(*r, f)
}
