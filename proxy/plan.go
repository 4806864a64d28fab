package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// plan is what is to be done with a call, decided before anything is: the only step that may ask the store or the engine.
type plan struct {
	// model is the served name, "" to leave the harness's.
	model string
	// tokens and logprobs say what the engine is asked for beside the answer; topLogprobs is what makes it give rows.
	tokens, logprobs bool
	topLogprobs      int
	// trains says that the rollout is to be trained on: sampling is made neutral.
	trains bool
	// pinned is the sampling of a session that trains, asked that of one that evaluates; nil for none.
	pinned, asked map[string]json.RawMessage
	// reasoningUp is the field in which the engine reads the history's reasoning, reasoningDown the one that the harness
	// knows; "" leaves it as it is.
	reasoningUp, reasoningDown string
	// cap is the output cap in tokens, 0 for none.
	cap int
}

// measureFor bounds how long a call waits for the measurement of an engine that was not there before.
const measureFor = 2 * time.Minute

// makePlan decides from the session, the engine's profile and the request.
func (c *call) makePlan() *dialect.Error {
	c.up = c.live.Engine()
	if c.up == nil {
		return &dialect.Error{Status: http.StatusServiceUnavailable,
			Text: "no engine is known for this session: start the proxy with --upstream, or create the session with llm_url (and its api_key again after a restart)"}
	}
	profile := c.measured()
	rec := c.live.Record()
	p := plan{model: profile.Served, topLogprobs: profile.TopLogprobs, cap: smallest(c.s.MaxOutputTokens, rec.Spec.MaxOutputTokens)}
	if rec.Spec.Model != "" {
		p.model = rec.Spec.Model
	}
	p.reasoningUp, p.reasoningDown = profile.ReasoningField, rec.Spec.ReasoningField
	if p.reasoningDown == "" {
		p.reasoningDown = c.s.ReasoningField
	}
	if profile.Captures(engine.Shape{Stream: c.req.Stream, Tools: len(c.req.Tools) > 0}) {
		p.tokens = profile.Level == record.LevelTokens
		p.logprobs = profile.Level == record.LevelTokens || profile.Level == record.LevelLogprobs
	}
	p.trains = rec.Trains()
	for _, s := range []struct {
		raw     json.RawMessage
		applies bool
		into    *map[string]json.RawMessage
	}{{rec.Spec.Sampling, p.trains, &p.pinned}, {rec.Spec.EvalSampling, rec.Spec.Purpose == record.PurposeEval, &p.asked}} {
		if !s.applies || len(s.raw) == 0 {
			continue
		}
		if err := json.Unmarshal(s.raw, s.into); err != nil {
			return &dialect.Error{Status: http.StatusInternalServerError, Text: "the session's sampling cannot be read"}
		}
	}
	c.plan = p
	c.rec.PromptSource = record.PromptEngine
	return nil
}

// measured returns the engine's profile, measuring it when nobody has. An engine that was down when its session was
// created is measured when it first answers; the session then learns its level.
func (c *call) measured() *engine.Profile {
	profile := c.up.Profile()
	if !profile.Measured {
		ctx, cancel := context.WithTimeout(c.ctx, measureFor)
		defer cancel()
		profile = c.up.Measure(ctx)
	}
	if rec := c.live.Record(); rec.CaptureLevel == "" && profile.Level != "" {
		_, err := c.live.Update(c.ctx, func(s *record.Session) {
			s.CaptureLevel, s.Engine = profile.Level, c.up.Record()
		})
		if err != nil { // the record in memory has it; the next write of the session brings it to disk
			c.s.Logger.Warn("could not record the session's capture level", errField(err))
		}
	}
	return profile
}

func smallest(server int, session *int) int {
	if session != nil && *session > 0 && (server <= 0 || *session < server) {
		return *session
	}
	return server
}
