package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// plan is what is to be done with a call, decided before anything is: the only step that may ask the store or the engine.
type plan struct {
	// model is the served name, "" to leave the harness's.
	model string
	// way is what the engine is asked for beside the answer. buffered says that a streamed call is made as a whole one,
	// whose answer is replayed as the stream that the harness asked for.
	way      engine.Way
	buffered bool
	// systemAsUser gives system messages inside the conversation to the user.
	systemAsUser bool
	// fixes are the edits that the engine asked for by refusing calls.
	fixes []engine.Fix
	// trains says that the rollout is to be trained on: sampling is made neutral.
	trains bool
	// pinned is the sampling of a session that trains, asked that of one that evaluates; nil for none.
	pinned, asked sampling
	// reasoningUp is the field in which the engine reads the history's reasoning, reasoningDown the one that the harness
	// knows; "" leaves it as it is.
	reasoningUp, reasoningDown string
	// cap is the output cap in tokens, 0 for none.
	cap int
	// bridge carries on an earlier turn by its own ids; nil where there is none.
	bridge *bridge
}

// sampling is a set of sampling parameters and their values.
type sampling map[string]json.RawMessage

// measureFor bounds how long a call waits for the measurement of an engine that was not there before.
const measureFor = 2 * time.Minute

// makePlan decides from the session, the engine's profile and the request.
func (c *call) makePlan() *dialect.Error {
	if c.up == nil {
		return &dialect.Error{Status: http.StatusServiceUnavailable,
			Text: "no engine is known for this session: start the proxy with --upstream, or create the session with llm_url (and its api_key again after a restart)"}
	}
	profile := c.measured()
	rec := c.live.Record()
	p := plan{model: profile.Served, fixes: profile.Fixes, systemAsUser: profile.SystemAsUser, cap: smallest(c.s.MaxOutputTokens, rec.Spec.MaxOutputTokens)}
	if c.native != nil { // what a provider happens to serve changes no byte of the harness's
		p.model = c.up.Model()
	}
	if rec.Spec.Model != "" {
		p.model = rec.Spec.Model
	}
	p.reasoningUp, p.reasoningDown = profile.ReasoningField, rec.Spec.ReasoningField
	if p.reasoningDown == "" {
		p.reasoningDown = c.s.ReasoningField
	}
	p.way, p.buffered = profile.Way(c.shape())
	p.trains = rec.Trains()
	for _, s := range []struct {
		raw     json.RawMessage
		applies bool
		into    *sampling
	}{{rec.Spec.Sampling, p.trains, &p.pinned}, {rec.Spec.EvalSampling, rec.Spec.Purpose == record.PurposeEval, &p.asked}} {
		if !s.applies || len(s.raw) == 0 {
			continue
		}
		if err := json.Unmarshal(s.raw, s.into); err != nil {
			return &dialect.Error{Status: http.StatusInternalServerError, Text: "the session's sampling cannot be read"}
		}
	}
	c.rec.PromptSource = record.PromptEngine
	c.continueEarlier(&p)
	c.plan = p
	return nil
}

// shape is the kind of the call, as far as engines treat capture parameters differently on it.
func (c *call) shape() engine.Shape {
	return engine.Shape{Stream: c.req.Stream, Tools: len(c.req.Tools) > 0}
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
			c.log(zap.WarnLevel, "could not record the session's capture level", errField(err))
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
