package record

import (
	"encoding/json"
	"time"
)

// Session is one rollout's capture: what its creator asked for, where it stands, and what is needed to derive its
// document from the log alone.
type Session struct {
	ID string `json:"session_id"`
	// Instance tells this session from an earlier one of the same id; 16 hex digits, random.
	Instance string `json:"instance"`

	Status    Status     `json:"status"`
	Outcome   *Verdict   `json:"outcome"` // set when the session ended
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at"`

	Spec Spec `json:"spec"`
	// SealedKey is the credential of the session's own engine, encrypted; empty when it lives in memory only. It is no part
	// of any answer or document.
	SealedKey []byte `json:"sealed_key,omitempty"`

	Metadata map[string]json.RawMessage `json:"metadata"`
	Reward   *float64                   `json:"reward"`
	Rewards  map[string]float64         `json:"rewards"`

	CaptureLevel Level  `json:"capture_level"` // empty until measured
	Engine       Engine `json:"engine"`
	// CaptureFailed says that a call was answered that could not be recorded, and why.
	CaptureFailed string `json:"capture_failed,omitempty"`
	// Webhook is how far the document's way to the operator's webhook has come; empty when there was none at the end.
	Webhook Delivery `json:"webhook,omitempty"`
	// Settings of the proxy at creation that rules depend on.
	TrainAborted     bool `json:"train_aborted,omitempty"`
	AllowRawLogprobs bool `json:"allow_raw_logprobs,omitempty"`
}

// Delivery says how far a document has come.
type Delivery string

// The states of a delivery.
const (
	DeliveryPending Delivery = "pending" // to be sent, also by a later process
	Delivered       Delivery = "delivered"
	DeliveryFailed  Delivery = "failed" // given up
)

// Verdict is a session's terminal outcome.
type Verdict struct {
	Status string  `json:"status"` // completed, failed, cancelled, expired
	Error  *string `json:"error"`
}

// Spec is what the creator of a session asked for (SPEC 6), kept so that a repeated create can be told from another.
type Spec struct {
	Env             *Env            `json:"env,omitempty"`
	Group           *Group          `json:"group,omitempty"`
	Run             json.RawMessage `json:"run,omitempty"`
	Purpose         Purpose         `json:"purpose"`
	Frozen          bool            `json:"frozen,omitempty"`
	Sampling        json.RawMessage `json:"sampling,omitempty"`
	EvalSampling    json.RawMessage `json:"eval_sampling,omitempty"`
	Continuity      string          `json:"continuity,omitempty"`
	ReasoningField  string          `json:"reasoning_field,omitempty"`
	Shared          Shared          `json:"shared,omitempty"`
	MaxModelCalls   *int            `json:"max_model_calls,omitempty"`
	MaxOutputTokens *int            `json:"max_output_tokens,omitempty"`
	MinTurns        *int            `json:"min_turns,omitempty"`
	LLMURL          string          `json:"llm_url,omitempty"`
	Model           string          `json:"model,omitempty"`
	// Keyed says that LLMURL needs a credential, which is stored sealed or not at all; see Session.SealedKey.
	Keyed      bool   `json:"keyed,omitempty"`
	AuthHeader string `json:"auth_header,omitempty"`
	Provider   string `json:"provider,omitempty"`
	// RequestHash is the hash of the create request, so that the same one again is the same answer.
	RequestHash string `json:"request_hash,omitempty"`
}

// Env is the environment that a rollout ran in.
type Env struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// Group is a set of sessions planned together from one task.
type Group struct {
	ID   string `json:"id"`
	Size *int   `json:"size,omitempty"`
}

// Engine is what was known of the session's engine, as the document shows it. It never holds a credential.
type Engine struct {
	URL        string  `json:"url"`
	Model      string  `json:"model"`
	Profile    Profile `json:"profile"`
	ParamEdits []Edit  `json:"param_edits"`
}

// Profile is the part of an engine's measured profile that travels with every document.
type Profile struct {
	Provider       string       `json:"provider"`
	Version        string       `json:"version"`
	CaptureLevel   Level        `json:"capture_level"`
	StreamCapture  bool         `json:"stream_capture"`
	LogprobsMode   LogprobsMode `json:"logprobs_mode"`
	ForcedIDs      bool         `json:"forced_ids"`
	ReasoningField string       `json:"reasoning_field"`
	ToolSupport    bool         `json:"tool_support"`
	// VocabSize is the number of token ids of the model, 0 when unknown.
	VocabSize int `json:"vocab_size,omitempty"`
}

// Trains reports whether a document of this session is a train rollout: its level is tokens and its purpose not eval.
func (s *Session) Trains() bool {
	return s.CaptureLevel == LevelTokens && s.Spec.Purpose != PurposeEval
}
