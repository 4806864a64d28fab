package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

type reader = io.Reader

// events is a stream of an engine, split.
type events interface {
	// Next returns the next event, whose slices are valid until the following call.
	Next() (engine.Event, error)
	// Buffered says whether the next event may be there without waiting.
	Buffered() bool
}

// showLife keeps a harness that waits for a stream from giving up while the engine makes a whole answer: after a while the
// head of the stream leaves, and a comment from time to time. stop ends it; nothing is written after it has returned. It costs
// nothing where the harness asked for no stream.
func (c *call) showLife() (stop func()) {
	if !c.plan.buffered {
		return func() {}
	}
	if !c.out.started() {
		c.out.w.Header().Set("Content-Type", c.contentType())
		c.out.w.Header().Set("Cache-Control", "no-cache")
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(c.s.KeepAlive)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				c.out.comment(!c.route.array)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
		if c.out.started() {
			c.rec.Status = http.StatusOK
		}
	}
}

// lateError ends an answer whose 200 is out already: with the dialect's error event, and a cut connection.
func (c *call) lateError(status int, text string, body []byte) {
	switch {
	case c.way != nil:
		body = c.way.stream.Fail(nil, status, text)
	default:
		body = append(append([]byte("data: "), body...), "\n\n"...)
	}
	c.commit()
	c.aborted = true
	c.out.write(body, true)
	c.out.flush()
}

// replay gives a harness that asked for a stream the whole answer that it was captured from.
func (c *call) replay(answer []byte) {
	events, terminal, ok := dialect.Replay(c.rec.Dialect, answer, c.req.Asks.Usage)
	if !ok {
		c.fail("no model answer: " + engine.Excerpt(answer))
		c.giveUp()
		return
	}
	c.out.w.Header().Set("Content-Type", c.contentType())
	c.start(http.StatusOK, true)
	c.out.write(events, true)
	c.out.flush()
	c.commit()
	if c.failure != "" || !c.answer.Finished() {
		c.aborted = true
		return
	}
	c.out.write(terminal, true)
}

// derivedPrompt are the prompt ids that the engine's own tokenizer gives of a call's prompt.
type derivedPrompt struct {
	ids []int32
	err error
}

// derive asks the engine for the prompt's ids while it answers, where the answer does not carry them.
func (c *call) derive() {
	if !c.plan.way.Derive || c.derived != nil {
		return
	}
	into := make(chan derivedPrompt, 1)
	c.derived = into
	body, up := c.sent.body, c.up
	ctx, cancel := context.WithTimeout(c.ctx, measureFor)
	go func() {
		defer cancel()
		ids, err := up.DerivePrompt(ctx, body)
		into <- derivedPrompt{ids: ids, err: err}
	}()
}

// takeDerived adds derived prompt ids to the answer. What is checked later is that their count is the engine's own (WIRE 3).
// They are waited for as long as the disk would be.
func (c *call) takeDerived() {
	if c.derived == nil || !c.answer.Finished() {
		return
	}
	patience := time.NewTimer(c.s.Patience)
	defer patience.Stop()
	var problem string
	select {
	case d := <-c.derived:
		if d.err == nil {
			c.answer.PromptIDs = d.ids
			c.rec.PromptSource = record.PromptDerived
			return
		}
		problem = d.err.Error()
	case <-patience.C:
		problem = fmt.Sprintf("the engine's tokenizer did not answer within %s", c.s.Patience)
	}
	c.log(zap.WarnLevel, "the prompt's ids could not be derived", answerField([]byte(problem)))
}
