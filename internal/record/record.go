// Package record holds the types that every layer stores and passes: a [Call] (what was asked, what came back,
// with ids, logprobs, outcome and provenance), a [Session], and the small closed vocabularies around them.
//
// Types only: no I/O, no clock, no HTTP, no rule. The log of a session is its Session and its Calls; everything else
// (graph, rows, findings, document) is derived from these two by pure functions.
package record

import (
	"encoding/json"
	"time"
)

// Dialect is the wire format that a harness spoke.
type Dialect string

// The wire dialects.
const (
	OpenAIChat        Dialect = "openai_chat"
	OpenAICompletions Dialect = "openai_completions"
	OpenAIResponses   Dialect = "openai_responses"
	AnthropicMessages Dialect = "anthropic_messages"
	Google            Dialect = "google"
)

// Outcome is how a call ended. Every call ends with exactly one (SPEC 3).
type Outcome string

// The outcomes. The first five make a node of the graph, the others are failed calls.
const (
	Complete          Outcome = "complete"
	Length            Outcome = "length"
	Aborted           Outcome = "aborted"
	Filtered          Outcome = "filtered"
	IncompleteCapture Outcome = "incomplete_capture"

	ClientGone    Outcome = "client_gone"
	UpstreamError Outcome = "upstream_error"
	Rejected      Outcome = "rejected"
	Cancelled     Outcome = "cancelled"
	BudgetStop    Outcome = "budget_stop"
)

// precedence orders the outcomes for a call to which several apply (SPEC 3): the earlier one wins.
var precedence = map[Outcome]int{
	Cancelled: 0, ClientGone: 1, UpstreamError: 2, Rejected: 3, BudgetStop: 4,
	Aborted: 5, Filtered: 6, IncompleteCapture: 7, Length: 8, Complete: 9,
}

// IsNode reports whether a call with this outcome becomes a turn of the graph.
func (o Outcome) IsNode() bool {
	switch o {
	case Complete, Length, Aborted, Filtered, IncompleteCapture:
		return true
	}
	return false
}

// Wins returns the one of o and p that takes precedence.
func (o Outcome) Wins(p Outcome) Outcome {
	if precedence[p] < precedence[o] {
		return p
	}
	return o
}

// Level is what an endpoint lets us capture.
type Level string

// Capture levels; the empty string means that the engine has not been measured yet.
const (
	LevelTokens   Level = "tokens"
	LevelLogprobs Level = "logprobs"
	LevelText     Level = "text"
)

// Purpose is what a session is for.
type Purpose string

// Purposes of a session.
const (
	PurposeAuto  Purpose = "auto"
	PurposeTrain Purpose = "train"
	PurposeEval  Purpose = "eval"
)

// Status is a session's place in its life: running, then exactly one of the others.
type Status string

// Session statuses.
const (
	Running         Status = "running"
	Completed       Status = "completed"
	Failed          Status = "failed"
	SessionCanceled Status = "cancelled"
	Expired         Status = "expired"
)

// PromptSource says where a turn's prompt ids come from.
type PromptSource string

// Prompt sources.
const (
	PromptEngine  PromptSource = "engine"  // the engine rendered the messages and returned its ids
	PromptForced  PromptSource = "forced"  // we sent ids, the engine returned the same
	PromptDerived PromptSource = "derived" // asked of the engine's own tokenizer, counts checked
)

// LogprobsMode says whether an engine's logprobs are those of the distribution that was sampled from.
type LogprobsMode string

// Logprob modes, as measured.
const (
	LogprobsProcessed LogprobsMode = "processed"
	LogprobsRaw       LogprobsMode = "raw"
	LogprobsUnknown   LogprobsMode = "unknown"
)

// Shared says how a turn that lies on several rows is masked.
type Shared string

// Modes of masking shared turns.
const (
	SharedEvery Shared = "every"
	SharedOnce  Shared = "once"
)

// EditKind groups edits by what made them, so that checks need not read prose.
type EditKind string

// Kinds of edits.
const (
	EditModel      EditKind = "model"      // the served name in place of the client's
	EditCapture    EditKind = "capture"    // a parameter that makes the engine return token data
	EditSampling   EditKind = "sampling"   // training sessions: neutral or pinned sampling
	EditBudget     EditKind = "budget"     // output cap
	EditNegotiated EditKind = "negotiated" // the engine refused a parameter
	EditTranslate  EditKind = "translate"  // the other dialect cannot say it
	EditHistory    EditKind = "history"    // reasoning fields of the history, continuity
)

// Edit is one difference between what the harness sent and what went upstream.
type Edit struct {
	Kind  EditKind        `json:"kind"`
	Param string          `json:"param"`
	From  json.RawMessage `json:"from"` // JSON null when absent
	To    json.RawMessage `json:"to"`   // JSON null when removed
	Why   string          `json:"why"`
	// Behaviour marks an edit that changes what the model does (a temperature dropped, reasoning off).
	Behaviour bool `json:"behaviour,omitempty"`
}

// ParamPromptIDs is the Param of the edit that says how a call carries on an earlier turn by that turn's own ids: To is then
// a Continued. Where To is null it does not, although its messages go on with something, and Why begins with the reason.
const ParamPromptIDs = "prompt_token_ids"

// Continued is how a prompt was made of an earlier turn's ids and what is new.
type Continued struct {
	// Field is the one that the ids went upstream in.
	Field string `json:"field"`
	// Call and Choice name the turn that is carried on.
	Call   int `json:"call"`
	Choice int `json:"choice"`
	// NPrompt and NSampled count that turn's ids, NMarker the end markers put behind them (0 or 1), NAdded the ids of what is
	// new, as the engine renders it.
	NPrompt  int `json:"n_prompt"`
	NSampled int `json:"n_sampled"`
	NMarker  int `json:"n_marker"`
	NAdded   int `json:"n_added"`
	// Echo says in what the turn's answer came back otherwise than it was given; "same" for in nothing.
	Echo string `json:"echo"`
	// BreaksAt is the position at which the prompt would leave the turn's ids if its answer were rendered from the messages,
	// nil where it would not or nobody asked.
	BreaksAt *int `json:"breaks_at"`
}

// Harness is what the caller's headers and metadata tell about it.
type Harness struct {
	Name          string `json:"name,omitempty"`
	Version       string `json:"version,omitempty"`
	AgentID       string `json:"agent_id,omitempty"`
	ParentAgentID string `json:"parent_agent_id,omitempty"`
}

// Timing holds a call's moments, UTC; the zero time means that it did not happen.
type Timing struct {
	Received   time.Time `json:"received"`
	Dispatched time.Time `json:"dispatched"`
	FirstToken time.Time `json:"first_token"`
	LastToken  time.Time `json:"last_token"`
	Recorded   time.Time `json:"recorded"`
}

// CallPolicy holds the version of the weights at four moments of a call; nil means that no version was known.
type CallPolicy struct {
	Dispatch   *int64 `json:"dispatch"`
	FirstToken *int64 `json:"first_token"`
	End        *int64 `json:"end"`
	// Engine is what the engine itself reported, verbatim JSON, or nil.
	Engine json.RawMessage `json:"engine"`
}

// Usage is the engine's own count.
type Usage struct {
	// Raw is the usage object as the engine gave it, or nil.
	Raw json.RawMessage `json:"raw"`
	// Prompt and Completion are its prompt_tokens and completion_tokens; nil when absent or null, never 0 for missing.
	Prompt     *int64 `json:"prompt"`
	Completion *int64 `json:"completion"`
}

// Remark is a fact noticed while capturing that the stored data alone does not show, such as a `token_id:N` spelling
// that contradicts its id. Code is one of package validate's codes.
type Remark struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Call is one model call of a session: one request and its answer with one choice or more.
//
// A Call is immutable once appended. Slices may share memory with other calls; nobody writes to them.
type Call struct {
	Session string `json:"session"`
	// Instance is the session's Instance, so that a call of a deleted session never lands in a later one of the same id.
	Instance  string  `json:"instance,omitempty"`
	Number    int     `json:"number"` // from 1, in the order in which the session's requests were accepted
	Dialect   Dialect `json:"dialect"`
	Stream    bool    `json:"stream"`
	RequestID string  `json:"request_id"`
	Model     string  `json:"model"`  // as the harness asked
	Served    string  `json:"served"` // as sent upstream

	Harness          Harness  `json:"harness"`
	HarnessSessionID string   `json:"harness_session_id,omitempty"`
	Conflicts        []string `json:"conflicts,omitempty"` // other session candidates: ids of registered ones, hashes of unknown keys

	// Body is the request as the harness sent it, content encoding removed. Cuts are ascending offsets into Body at
	// which the parts that repeat from call to call begin and end (messages, tools), so that a store keeps each once.
	Body []byte `json:"-"`
	Cuts []int  `json:"-"`
	// Messages and Tools are the request's, each element one JSON value in OpenAI's chat format, whatever the dialect.
	Messages []json.RawMessage `json:"-"`
	Tools    []json.RawMessage `json:"-"`

	RequestedSampling json.RawMessage `json:"requested_sampling"` // object: what the harness sent
	SubmittedSampling json.RawMessage `json:"submitted_sampling"` // object: what went upstream
	// Template holds the arguments of the chat template that the request gives, as one JSON object, "" for none.
	Template string `json:"template,omitempty"`
	// Constraints names the request's parameters that mask logits (response_format, a forced tool_choice, …).
	Constraints []string `json:"constraints,omitempty"`
	// MaxTokens is the submitted output cap, 0 when none.
	MaxTokens int    `json:"max_tokens,omitempty"`
	Edits     []Edit `json:"edits,omitempty"`

	// RetryOf is the number of the earlier call that this one repeats, 0 for none.
	RetryOf int `json:"retry_of,omitempty"`
	// Forwarded says that the call left for the engine and counts against max_model_calls.
	Forwarded bool `json:"forwarded,omitempty"`
	// BodyHash is a hash of Body, hex, by which retries are found.
	BodyHash string `json:"body_hash,omitempty"`

	PromptSource PromptSource `json:"prompt_source,omitempty"`
	Timing       Timing       `json:"timing"`
	Policy       CallPolicy   `json:"policy"`

	Outcome Outcome  `json:"outcome"`
	Status  int      `json:"status"`           // HTTP status that the harness got, 0 for none
	Detail  string   `json:"detail,omitempty"` // what went wrong, in words, without secrets
	Usage   Usage    `json:"usage"`
	Remarks []Remark `json:"remarks,omitempty"`
	// UsageAsked says that usage was requested of the engine.
	UsageAsked bool `json:"usage_asked,omitempty"`
	// ContextOverflow says that the engine refused the call as longer than its context window.
	ContextOverflow bool `json:"context_overflow,omitempty"`

	Choices []Choice `json:"choices,omitempty"`
}

// Choice is one answer to a call. Each choice of a node call is a turn of the graph.
type Choice struct {
	Index   int     `json:"index"`
	Outcome Outcome `json:"outcome"`
	// FinishReason is in OpenAI's words, FinishReasonRaw the engine's own, StopReason the engine's stop_reason or
	// matched_stop as raw JSON.
	FinishReason    string          `json:"finish_reason,omitempty"`
	FinishReasonRaw string          `json:"finish_reason_raw,omitempty"`
	StopReason      json.RawMessage `json:"stop_reason,omitempty"`

	// PromptIDs are the engine's ids of the prompt; empty when it gave none. The choices of one call share them.
	PromptIDs []int32 `json:"-"`
	// SampledIDs are the ids that the engine sampled, Logprobs their log-probabilities in nats as the engine gave
	// them: NaN stands for a value that was null or not finite. The two are as long as what arrived, never padded:
	// differing lengths are a finding. HasLogprobs tells an empty list from none given.
	SampledIDs  []int32   `json:"-"`
	Logprobs    []float64 `json:"-"`
	HasIDs      bool      `json:"has_ids,omitempty"`
	HasLogprobs bool      `json:"has_logprobs,omitempty"`

	// Message is what the harness was given, as one OpenAI chat message; nil when nothing was.
	Message json.RawMessage `json:"-"`
	Remarks []Remark        `json:"remarks,omitempty"`
}
