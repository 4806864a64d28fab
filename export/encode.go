package export

import (
	"bytes"
	"io"
	"maps"
	"slices"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

// WriteTo writes the document as one line of JSON. It streams: what is held is one buffer, not the text.
func (r *Rollout) WriteTo(w io.Writer) (int64, error) {
	e := &encoder{w: w, buf: make([]byte, 0, 2*flushAt)}
	r.encode(e)
	return e.close()
}

// MarshalJSON gives the bytes that WriteTo writes.
func (r *Rollout) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	_, err := r.WriteTo(&b)
	return b.Bytes(), err
}

func (r *Rollout) encode(e *encoder) {
	e.open('{')
	e.int("schema_version", r.SchemaVersion)
	e.text("session_id", r.SessionID)
	e.text("status", string(r.Status))
	e.verdict(r.Outcome)
	e.time("created_at", r.CreatedAt)
	e.time("closed_at", r.ClosedAt)
	r.encodePlace(e)
	r.encodeReward(e)
	e.int("budget_stop_count", r.BudgetStops)
	e.key("turns")
	e.open('[')
	for i := range r.Turns {
		r.Turns[i].encode(e)
	}
	e.shut(']')
	e.key("failed_calls")
	e.open('[')
	for i := range r.FailedCalls {
		r.FailedCalls[i].encode(e)
	}
	e.shut(']')
	r.Stats.encode(e)
	e.key("sequences")
	e.open('[')
	for i := range r.Sequences {
		r.Sequences[i].encode(e)
	}
	e.shut(']')
	e.name("shared", string(r.Shared))
	e.findings(r.Validation)
	e.bool("trainable", r.Trainable)
	e.name("capture_level", string(r.CaptureLevel))
	e.text("rollout_type", r.RolloutType)
	r.Engine.encode(e)
	e.name("proxy_version", r.ProxyVersion)
	e.shut('}')
}

func (e *encoder) verdict(v *record.Verdict) {
	if v == nil {
		e.null("outcome")
		return
	}
	e.key("outcome")
	e.open('{')
	e.text("status", v.Status)
	if v.Error == nil {
		e.null("error")
	} else {
		e.text("error", *v.Error)
	}
	e.shut('}')
}

func (r *Rollout) encodePlace(e *encoder) {
	if r.Env == nil {
		e.null("env")
	} else {
		e.key("env")
		e.open('{')
		e.text("id", r.Env.ID)
		e.name("name", r.Env.Name)
		e.shut('}')
	}
	if r.Group == nil {
		e.null("group")
	} else {
		e.key("group")
		e.open('{')
		e.text("id", r.Group.ID)
		if r.Group.Size == nil {
			e.null("size")
		} else {
			e.int("size", *r.Group.Size)
		}
		e.shut('}')
	}
	e.raw("run", r.Run)
	if p := r.Policy; p == nil {
		e.null("policy")
	} else {
		e.key("policy")
		e.open('{')
		e.version("start", p.Start)
		e.version("end", p.End)
		e.version("drift", p.Drift)
		e.version("off_policy_steps", p.OffPolicySteps)
		e.shut('}')
	}
}

func (r *Rollout) encodeReward(e *encoder) {
	if r.Reward == nil {
		e.null("reward")
	} else {
		e.float("reward", *r.Reward)
	}
	e.key("rewards")
	e.open('{')
	for _, k := range slices.Sorted(maps.Keys(r.Rewards)) {
		e.comma()
		e.buf = appendString(e.buf, k)
		e.buf = append(e.buf, ':')
		e.buf = appendFloat(e.buf, r.Rewards[k])
	}
	e.shut('}')
	e.key("metadata")
	e.open('{')
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		e.comma()
		e.buf = appendString(e.buf, k)
		e.buf = append(e.buf, ':')
		e.value(r.Metadata[k])
	}
	e.shut('}')
}

func (t *Turn) encode(e *encoder) {
	e.open('{')
	e.text("node_id", t.NodeID)
	e.int("index", t.Index)
	e.int("call", t.Call)
	e.name("parent_id", t.ParentID)
	e.text("root_id", t.RootID)
	e.name("link", t.Link)
	e.int("n_prompt", t.NPrompt)
	e.int("n_sampled", t.NSampled)
	e.int("n_tools", t.NTools)
	e.name("finish_reason", t.FinishReason)
	e.name("finish_reason_raw", t.FinishReasonRaw)
	e.text("outcome", string(t.Outcome))
	e.name("harness_session_id", t.HarnessSessionID)
	e.key("harness")
	e.open('{')
	e.name("name", t.Harness.Name)
	e.name("version", t.Harness.Version)
	e.name("agent_id", t.Harness.AgentID)
	e.name("parent_agent_id", t.Harness.ParentAgentID)
	e.shut('}')
	e.name("dialect", string(t.Dialect))
	e.name("model", t.Model)
	e.raw("sampling_params", t.SamplingParams)
	e.raw("requested_sampling_params", t.RequestedSampling)
	e.logprobs("sampled_logprobs", t.SampledLogprobs)
	e.bool("discarded", t.Discarded)
	e.name("discard_reason", t.DiscardReason)
	e.name("continues", t.Continues)
	t.Break.encode(e)
	e.count("retry_of", t.RetryOf)
	e.name("prompt_source", string(t.PromptSource))
	e.edits("edits", t.Edits)
	e.key("policy")
	e.open('{')
	e.version("dispatch", t.Policy.Dispatch)
	e.version("first_token", t.Policy.FirstToken)
	e.version("end", t.Policy.End)
	e.raw("engine", t.Policy.Engine)
	e.shut('}')
	e.raw("usage", t.Usage)
	e.key("timing")
	e.open('{')
	e.time("received", t.Timing.Received)
	e.time("dispatched", t.Timing.Dispatched)
	e.time("first_token", t.Timing.FirstToken)
	e.time("last_token", t.Timing.LastToken)
	e.time("recorded", t.Timing.Recorded)
	e.shut('}')
	e.findings(t.Validation)
	if t.RequestMessages != nil {
		e.raws("request_messages", t.RequestMessages)
		e.raws("request_tools", t.RequestTools)
		e.raw("response_message", t.ResponseMessage)
	}
	e.shut('}')
}

func (b *Break) encode(e *encoder) {
	if b == nil {
		e.null("break")
		return
	}
	e.key("break")
	e.open('{')
	if b.Position == nil {
		e.null("position")
	} else {
		e.int("position", *b.Position)
	}
	e.text("cause", b.Cause)
	e.text("detail", b.Detail)
	e.shut('}')
}

func (e *encoder) edits(name string, list []Edit) {
	e.key(name)
	e.open('[')
	for _, d := range list {
		e.open('{')
		e.text("param", d.Param)
		e.raw("from", d.From)
		e.raw("to", d.To)
		e.text("why", d.Why)
		e.shut('}')
	}
	e.shut(']')
}

func (e *encoder) findings(list []validate.Finding) {
	e.key("validation")
	e.open('[')
	for _, f := range list {
		e.comma()
		e.buf = appendString(e.buf, f.String())
	}
	e.shut(']')
}

func (f *FailedCall) encode(e *encoder) {
	e.open('{')
	e.int("call", f.Call)
	e.text("outcome", string(f.Outcome))
	e.count("status", f.Status)
	e.name("detail", f.Detail)
	e.int("n_prompt", f.NPrompt)
	e.int("n_sampled", f.NSampled)
	e.ids("sampled_ids", f.SampledIDs)
	e.shut('}')
}

func (s *Stats) encode(e *encoder) {
	e.key("stats")
	e.open('{')
	e.int("n_turns", s.Turns)
	e.int("n_roots", s.Roots)
	e.int("n_leaves", s.Leaves)
	e.int("n_forks", s.Forks)
	e.int("n_discarded", s.Discarded)
	e.int("n_sequences", s.Sequences)
	e.int("n_trainable_sequences", s.TrainableSequences)
	e.int("n_trainable_tokens", s.TrainableTokens)
	e.int("n_distinct_trainable_tokens", s.DistinctTrainableTokens)
	e.int("n_failed_calls", s.FailedCalls)
	e.int("n_forced", s.Forced)
	e.shut('}')
}

func (r *Row) encode(e *encoder) {
	e.open('{')
	e.text("row_id", r.RowID)
	e.text("role", string(r.Role))
	e.text("root_id", r.RootID)
	e.texts("node_ids", r.NodeIDs)
	e.int("n_turns", r.NTurns)
	e.int("prompt_len", r.PromptLen)
	e.int("n_trainable", r.NTrainable)
	e.ints("turn_lengths", r.TurnLengths)
	e.spans("turn_spans", r.TurnSpans)
	e.spans("shared_spans", r.SharedSpans)
	e.ids("input_ids", r.InputIDs)
	e.mask("loss_mask", r.LossMask)
	e.logprobs("logprobs", r.Logprobs)
	e.bool("trainable", r.Trainable)
	e.findings(r.Validation)
	e.shut('}')
}

func (g *Engine) encode(e *encoder) {
	e.key("engine")
	e.open('{')
	e.name("url", g.URL)
	e.name("model", g.Model)
	e.key("profile")
	e.open('{')
	e.name("provider", g.Profile.Provider)
	e.name("version", g.Profile.Version)
	e.name("capture_level", string(g.Profile.CaptureLevel))
	e.bool("stream_capture", g.Profile.StreamCapture)
	e.name("logprobs_mode", string(g.Profile.LogprobsMode))
	e.bool("forced_ids", g.Profile.ForcedIDs)
	e.name("reasoning_field", g.Profile.ReasoningField)
	e.bool("tool_support", g.Profile.ToolSupport)
	e.shut('}')
	e.edits("param_edits", g.ParamEdits)
	e.shut('}')
}
