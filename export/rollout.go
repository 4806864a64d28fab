// Package export derives the rollout document of a session from its log.
//
// [Build] is a pure function of the session and its calls: the same log gives the same bytes, and a newer version
// applies its rules to old logs. The line it walks is calls → turns → graph → rows → checks → gate:
//
//	doc := export.Build(session, calls, export.Options{IncludeMessages: true})
//	doc.WriteTo(w)
//
// [Read] takes a document from disk, [Check] looks whether its parts still agree, and [TraceEntries] gives the turns
// of a document as OpenEnv's trainers read them.
//
// The field names, and their order, are those of SPEC 5.
package export

import (
	"encoding/json"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

// SchemaVersion is the version of the document's form.
const SchemaVersion = 1

// Rollout types.
const (
	TypeTrain = "train"
	TypeEval  = "eval"
)

// Role says what a row is to the rollout.
type Role string

// Roles of rows.
const (
	Agent     Role = "agent"     // the task's own work
	Auxiliary Role = "auxiliary" // title calls and the like: no tools where others have some
	Discarded Role = "discarded" // ends in a turn that led nowhere while a sibling went on
)

// Rollout is the document of one session. Empty strings and zero times stand for null.
type Rollout struct {
	SchemaVersion int                        `json:"schema_version"`
	SessionID     string                     `json:"session_id"`
	Status        record.Status              `json:"status"`
	Outcome       *record.Verdict            `json:"outcome"`
	CreatedAt     Time                       `json:"created_at"`
	ClosedAt      Time                       `json:"closed_at"`
	Env           *Env                       `json:"env"`
	Group         *Group                     `json:"group"`
	Run           json.RawMessage            `json:"run"`
	Policy        *Policy                    `json:"policy"`
	Reward        *float64                   `json:"reward"`
	Rewards       map[string]float64         `json:"rewards"`
	Metadata      map[string]json.RawMessage `json:"metadata"`
	BudgetStops   int                        `json:"budget_stop_count"`
	Turns         []Turn                     `json:"turns"`
	FailedCalls   []FailedCall               `json:"failed_calls"`
	Stats         Stats                      `json:"stats"`
	Sequences     []Row                      `json:"sequences"`
	Shared        record.Shared              `json:"shared"`
	Validation    []validate.Finding         `json:"validation"`
	Trainable     bool                       `json:"trainable"`
	CaptureLevel  record.Level               `json:"capture_level"`
	RolloutType   string                     `json:"rollout_type"`
	Engine        Engine                     `json:"engine"`
	ProxyVersion  string                     `json:"proxy_version"`
}

// Env is the environment that the rollout ran in.
type Env struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Group names the sessions planned together from one task.
type Group struct {
	ID   string `json:"id"`
	Size *int   `json:"size"`
}

// Policy is how far the weights moved during and around the rollout.
type Policy struct {
	Start          *int64 `json:"start"`
	End            *int64 `json:"end"`
	Drift          *int64 `json:"drift"`
	OffPolicySteps *int64 `json:"off_policy_steps"`
}

// Turn is one node of the graph.
type Turn struct {
	NodeID            string              `json:"node_id"`
	Index             int                 `json:"index"`
	Call              int                 `json:"call"`
	ParentID          string              `json:"parent_id"`
	RootID            string              `json:"root_id"`
	Link              string              `json:"link"`
	NPrompt           int                 `json:"n_prompt"`
	NSampled          int                 `json:"n_sampled"`
	NTools            int                 `json:"n_tools"`
	FinishReason      string              `json:"finish_reason"`
	FinishReasonRaw   string              `json:"finish_reason_raw"`
	Outcome           record.Outcome      `json:"outcome"`
	HarnessSessionID  string              `json:"harness_session_id"`
	Harness           Harness             `json:"harness"`
	Dialect           record.Dialect      `json:"dialect"`
	Model             string              `json:"model"`
	SamplingParams    json.RawMessage     `json:"sampling_params"`
	RequestedSampling json.RawMessage     `json:"requested_sampling_params"`
	SampledLogprobs   Logprobs            `json:"sampled_logprobs"`
	Discarded         bool                `json:"discarded"`
	DiscardReason     string              `json:"discard_reason"`
	Continues         string              `json:"continues"`
	Break             *Break              `json:"break"`
	RetryOf           int                 `json:"retry_of"` // 0 for none
	PromptSource      record.PromptSource `json:"prompt_source"`
	Edits             []Edit              `json:"edits"`
	Policy            record.CallPolicy   `json:"policy"`
	Usage             json.RawMessage     `json:"usage"`
	Timing            Timing              `json:"timing"`
	Validation        []validate.Finding  `json:"validation"`

	// With include_messages only; nil RequestMessages stand for a document without them.
	RequestMessages []json.RawMessage `json:"request_messages"`
	RequestTools    []json.RawMessage `json:"request_tools"`
	ResponseMessage json.RawMessage   `json:"response_message"`
}

// Harness is what the caller's headers told.
type Harness struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	AgentID       string `json:"agent_id"`
	ParentAgentID string `json:"parent_agent_id"`
}

// Break says where and probably why a root leaves the turn that it continues.
type Break struct {
	Position *int   `json:"position"`
	Cause    string `json:"cause"`
	Detail   string `json:"detail"`
}

// Edit is one difference between what the harness sent and what went upstream.
type Edit struct {
	Param string          `json:"param"`
	From  json.RawMessage `json:"from"`
	To    json.RawMessage `json:"to"`
	Why   string          `json:"why"`
}

// Timing holds a call's moments.
type Timing struct {
	Received   Time `json:"received"`
	Dispatched Time `json:"dispatched"`
	FirstToken Time `json:"first_token"`
	LastToken  Time `json:"last_token"`
	Recorded   Time `json:"recorded"`
}

// FailedCall is a call, or one of its choices, that became no turn.
type FailedCall struct {
	Call       int            `json:"call"`
	Outcome    record.Outcome `json:"outcome"`
	Status     int            `json:"status"` // 0 for none
	Detail     string         `json:"detail"`
	NPrompt    int            `json:"n_prompt"`
	NSampled   int            `json:"n_sampled"`
	SampledIDs []int32        `json:"sampled_ids"`
}

// Stats counts the document.
type Stats struct {
	Turns                   int `json:"n_turns"`
	Roots                   int `json:"n_roots"`
	Leaves                  int `json:"n_leaves"`
	Forks                   int `json:"n_forks"`
	Discarded               int `json:"n_discarded"`
	Sequences               int `json:"n_sequences"`
	TrainableSequences      int `json:"n_trainable_sequences"`
	TrainableTokens         int `json:"n_trainable_tokens"`
	DistinctTrainableTokens int `json:"n_distinct_trainable_tokens"`
	FailedCalls             int `json:"n_failed_calls"`
	// Forced counts the turns whose prompt carried on an earlier one by its ids (SPEC 3, continuity).
	Forced int `json:"n_forced"`
}

// Row is one root-to-leaf path, flattened.
type Row struct {
	RowID       string             `json:"row_id"`
	Role        Role               `json:"role"`
	RootID      string             `json:"root_id"`
	NodeIDs     []string           `json:"node_ids"`
	NTurns      int                `json:"n_turns"`
	PromptLen   int                `json:"prompt_len"`
	NTrainable  int                `json:"n_trainable"`
	TurnLengths []int              `json:"turn_lengths"`
	TurnSpans   [][2]int           `json:"turn_spans"`
	SharedSpans [][2]int           `json:"shared_spans"`
	InputIDs    []int32            `json:"input_ids"`
	LossMask    Mask               `json:"loss_mask"`
	Logprobs    Logprobs           `json:"logprobs"`
	Trainable   bool               `json:"trainable"`
	Validation  []validate.Finding `json:"validation"`
}

// Engine is what answered.
type Engine struct {
	URL        string  `json:"url"`
	Model      string  `json:"model"`
	Profile    Profile `json:"profile"`
	ParamEdits []Edit  `json:"param_edits"`
}

// Profile is the engine as measured.
type Profile struct {
	Provider       string              `json:"provider"`
	Version        string              `json:"version"`
	CaptureLevel   record.Level        `json:"capture_level"`
	StreamCapture  bool                `json:"stream_capture"`
	LogprobsMode   record.LogprobsMode `json:"logprobs_mode"`
	ForcedIDs      bool                `json:"forced_ids"`
	ReasoningField string              `json:"reasoning_field"`
	ToolSupport    bool                `json:"tool_support"`
}
