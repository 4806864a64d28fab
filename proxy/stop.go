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
	h := c.out.w.Header()
	if !c.req.Stream {
		h.Set("Content-Type", "application/json")
		c.answerWhole(http.StatusOK, c.wholeText(text))
		return
	}
	h.Set("Content-Type", c.contentType())
	h.Set("Cache-Control", "no-cache")
	c.rec.Status = http.StatusOK
	c.commit()
	c.start(http.StatusOK, !c.route.array)
	c.out.write(c.streamText(text), true)
}

// wholeText and streamText write a message of the proxy's own in the harness's dialect.
func (c *call) wholeText(text string) []byte {
	if way := c.speaker(); way != nil {
		return c.wholeOf(way, &dialect.Said{Text: []byte(text), Finish: "stop"})
	}
	return dialect.Say(c.req, c.rec.RequestID, text, c.s.now().Unix())
}

func (c *call) streamText(text string) []byte {
	way := c.speaker()
	if way == nil {
		return dialect.SayStream(c.req, c.rec.RequestID, text, c.s.now().Unix())
	}
	said := &dialect.Said{Text: []byte(text), Finish: "stop"}
	opened := way.stream.Advance(nil, said)
	rest, terminal := way.stream.End(opened, said)
	return append(rest, terminal...)
}

// speaker is the way into the harness's dialect, also where the engine speaks it itself; nil for chat and completions.
func (c *call) speaker() *translation {
	if c.way == nil && c.native != nil {
		return c.newTranslation()
	}
	return c.way
}
