package control

import (
	"encoding/json"
	"slices"

	"captureproxy/internal/record"
	"captureproxy/proxy/session"
)

// Sampling pins how a training session samples. Only the temperature is free: the others would make another
// distribution than the policy's own, and may be named at the values at which they do nothing.
type Sampling struct {
	Temperature       *float64 `json:"temperature,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	TopK              *Whole   `json:"top_k,omitempty"`
	MinP              *float64 `json:"min_p,omitempty"`
	PresencePenalty   *float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64 `json:"frequency_penalty,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
}

func (s *Sampling) check() error {
	if s == nil {
		return nil
	}
	if s.Temperature == nil || *s.Temperature <= 0 {
		return invalid("sampling.temperature", "a number above 0 is needed")
	}
	for _, knob := range []struct {
		name    string
		value   *float64
		nothing float64
	}{
		{"top_p", s.TopP, 1}, {"min_p", s.MinP, 0},
		{"presence_penalty", s.PresencePenalty, 0}, {"frequency_penalty", s.FrequencyPenalty, 0}, {"repetition_penalty", s.RepetitionPenalty, 1},
	} {
		if knob.value != nil && *knob.value != knob.nothing {
			return invalid("sampling."+knob.name, "training needs the policy's own distribution: only %v, where it does nothing, is possible", knob.nothing)
		}
	}
	if s.TopK != nil && *s.TopK != -1 && *s.TopK != 0 {
		return invalid("sampling.top_k", "training needs the policy's own distribution: only -1, where it does nothing, is possible")
	}
	return nil
}

// json spells all seven out, so that each is pinned whether or not it was named.
func (s *Sampling) json() json.RawMessage {
	if s == nil {
		return nil
	}
	one, none, all := 1.0, 0.0, Whole(-1)
	return encode(Sampling{
		Temperature: s.Temperature, TopP: &one, TopK: &all, MinP: &none,
		PresencePenalty: &none, FrequencyPenalty: &none, RepetitionPenalty: &one,
	})
}

// EvalSampling is how an eval session samples where the harness does not say.
type EvalSampling struct {
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	TopK        *Whole   `json:"top_k,omitempty"`
}

func (s *EvalSampling) check() error {
	switch {
	case s == nil:
		return nil
	case s.Temperature != nil && (*s.Temperature < 0 || *s.Temperature > 2):
		return invalid("eval_sampling.temperature", "it lies between 0 and 2")
	case s.TopP != nil && (*s.TopP <= 0 || *s.TopP > 1):
		return invalid("eval_sampling.top_p", "it lies above 0 and is 1 at most")
	case s.TopK != nil && *s.TopK != -1 && *s.TopK < 1:
		return invalid("eval_sampling.top_k", "it is -1 or at least 1")
	}
	return nil
}

func (s *EvalSampling) json() json.RawMessage {
	if s == nil {
		return nil
	}
	return encode(s)
}

// Run says which run a rollout belongs to: {train, id, {train, step}} in training, {train, id, {eval, step}} in the eval
// of a training run, {eval, id} for one of its own.
type Run struct {
	Kind     string       `json:"kind"`
	ID       string       `json:"id"`
	Metadata *RunMetadata `json:"metadata,omitempty"`
}

// RunMetadata places a rollout within a training run. Its step is often known only later; see ScoreRequest.
type RunMetadata struct {
	Kind string `json:"kind"`
	Step *Whole `json:"step,omitempty"`
}

func (r *Run) check() error {
	switch {
	case r == nil:
		return nil
	case r.Kind != "train" && r.Kind != "eval":
		return invalid("run.kind", "it is train or eval")
	case r.ID == "":
		return invalid("run.id", "a run has an id")
	case r.Metadata == nil:
		return nil
	case r.Kind == "eval":
		return invalid("run.metadata", "a run of kind eval has none; the eval of a training run is {kind: train, id, metadata: {kind: eval, step}}")
	case r.Metadata.Kind != "train" && r.Metadata.Kind != "eval":
		return invalid("run.metadata.kind", "it is train or eval")
	case r.Metadata.Step != nil && *r.Metadata.Step < 0:
		return invalid("run.metadata.step", "steps count from 0")
	}
	return nil
}

func (r *Run) json() json.RawMessage {
	if r == nil {
		return nil
	}
	return encode(r)
}

// encode writes numbers and strings that were decoded from JSON, which cannot fail.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("control: " + err.Error())
	}
	return text
}

var (
	purposes        = []record.Purpose{"", record.PurposeAuto, record.PurposeTrain, record.PurposeEval}
	sharedModes     = []record.Shared{"", record.SharedEvery, record.SharedOnce}
	continuities    = []string{"", "auto", "on", "off"}
	reasoningFields = []string{"", "reasoning", "reasoning_content"}
	providers       = []string{"", "auto", "vllm", "sglang", "llamacpp", "openai", "anthropic", "google"}
)

// check looks at each field of a request by itself and at what goes together. The engine is looked at in engines.go.
func (req *CreateRequest) check() error {
	switch {
	case req.SessionID != nil && !session.ValidID(*req.SessionID):
		return session.ErrBadID
	case req.Env != nil && req.Env.ID == "":
		return invalid("env.id", "an environment has an id")
	case req.Group != nil && req.Group.ID == "":
		return invalid("group.id", "a group has an id")
	case req.Group != nil && req.Group.Size != nil && *req.Group.Size < 1:
		return invalid("group.size", "a group has at least one session")
	case !slices.Contains(purposes, req.Purpose):
		return invalid("purpose", "it is auto, train or eval")
	case !slices.Contains(continuities, req.Continuity):
		return invalid("continuity", "it is auto, on or off")
	case !slices.Contains(reasoningFields, req.ReasoningField):
		return invalid("reasoning_field", "it is reasoning or reasoning_content")
	case !slices.Contains(sharedModes, req.Shared):
		return invalid("shared", "it is every or once")
	case req.MaxModelCalls != nil && *req.MaxModelCalls < 0:
		return invalid("max_model_calls", "it is a whole number, 0 or more")
	case req.MaxOutputTokens != nil && *req.MaxOutputTokens < 1:
		return invalid("max_output_tokens", "it is a whole number, 1 or more")
	case req.MinTurns != nil && *req.MinTurns < 0:
		return invalid("min_turns", "it is a whole number, 0 or more")
	case req.Sampling != nil && req.EvalSampling != nil:
		return invalid("eval_sampling", "a session has sampling or eval_sampling, not both")
	case req.EvalSampling != nil && req.Purpose != record.PurposeEval:
		return invalid("eval_sampling", "it goes with purpose eval only")
	case req.Sampling != nil && req.Purpose == record.PurposeEval:
		return invalid("sampling", "it is for training: with purpose eval use eval_sampling")
	}
	for _, check := range []func() error{req.Run.check, req.Sampling.check, req.EvalSampling.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// outputCap is the session's cap on output tokens: the smaller one where both the field and the metadata name one.
func (req *CreateRequest) outputCap() (*int, error) {
	outputCap := req.MaxOutputTokens.int()
	const key = "max_output_tokens"
	raw, named := req.Metadata[key]
	if !named || string(raw) == "null" {
		return outputCap, nil
	}
	var n Whole
	if err := n.UnmarshalJSON(raw); err != nil || n < 1 {
		return nil, invalid("metadata."+key, "it caps the output and is a whole number, 1 or more")
	}
	return smaller(outputCap, int(n)), nil
}
