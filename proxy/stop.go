package proxy

import (
	"net/http"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
)

// budgetText is the text that readers of OpenEnv trajectories know.
const budgetText = "Step budget exhausted; stopping."

// contextText ends a conversation that has filled the engine's context window.
const contextText = "Context window exhausted; stopping."

// say answers with a short assistant message of the proxy's own, so that the harness ends in good order. It is never a
// turn.
func (c *call) say(text string) {
	c.outcome, c.failure = record.BudgetStop, c.rec.Detail
	if c.failure == "" {
		c.failure = "max_model_calls is used up"
	}
	created := c.s.now().Unix()
	h := c.out.w.Header()
	if !c.req.Stream {
		h.Set("Content-Type", "application/json")
		c.answerWhole(http.StatusOK, dialect.Say(c.req, c.rec.RequestID, text, created))
		return
	}
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	c.rec.Status = http.StatusOK
	c.commit()
	c.start(http.StatusOK, true)
	c.out.write(dialect.SayStream(c.req, c.rec.RequestID, text, created), true)
}
