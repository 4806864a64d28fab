package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

// maxResends is how often a call is sent again that cannot have been processed: no connection, 429, 503.
const maxResends = 2

// longestRetryAfter is the longest an engine can make a call wait before it is sent again.
const longestRetryAfter = 60 * time.Second

var enginePaths = map[record.Dialect]string{record.OpenAIChat: "/chat/completions", record.OpenAICompletions: "/completions"}

// forward sends the call to its engine. It returns the answer when there is one to relay, or nil when the call has been
// answered otherwise.
func (c *call) forward() *engine.Response {
	c.rec.Timing.Dispatched = c.s.now()
	c.rec.Policy.Dispatch = c.s.Sessions.Policy()
	query, header := withoutKey(c.r), c.r.Header
	if c.req.Translated() { // what the harness's dialect has in its query and headers is not chat's
		query, header = "", http.Header{"Content-Type": {"application/json"}, "User-Agent": c.r.Header["User-Agent"]}
	}
	resent := 0
	for {
		resp, err := c.up.Do(c.ctx, &engine.Request{
			Method: http.MethodPost, Path: enginePaths[c.req.Wire()], Query: query, Header: header, RequestID: c.rec.RequestID, Body: c.sent.body,
		})
		switch {
		case err != nil && errors.Is(err, engine.ErrNotSent) && resent < maxResends && c.ctx.Err() == nil:
			resent++
			if c.pause(time.Duration(resent) * 100 * time.Millisecond) {
				continue
			}
			c.unreachable(err)
			return nil
		case err != nil:
			c.unreachable(err)
			return nil
		case resp.Status == http.StatusTooManyRequests || resp.Status == http.StatusServiceUnavailable:
			wait, ok := retryAfter(resp.Header.Get("Retry-After"), resent)
			if !ok || resent >= maxResends {
				return c.refusedByEngine(resp)
			}
			resp.Body.Close()
			if resent++; !c.pause(wait) {
				c.unreachable(context.Cause(c.ctx))
				return nil
			}
		case resp.Status == http.StatusBadRequest || resp.Status == http.StatusUnprocessableEntity:
			if c.withoutCapture(resp) {
				continue
			}
			return c.refusedByEngine(resp)
		case resp.Status != http.StatusOK:
			return c.refusedByEngine(resp)
		default:
			return resp
		}
	}
}

// pause waits, and says whether the call is still wanted then.
func (c *call) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// retryAfter reads the header in seconds or as a date; without one the wait grows with the attempts. ok is false when the
// engine asks for more patience than a harness has.
func retryAfter(header string, attempt int) (wait time.Duration, ok bool) {
	if header == "" {
		return time.Duration(attempt+1) * 250 * time.Millisecond, true
	}
	if s, err := strconv.ParseFloat(header, 64); err == nil && s >= 0 {
		wait = time.Duration(s * float64(time.Second))
	} else if t, err := http.ParseTime(header); err == nil {
		wait = max(time.Until(t), 0)
	}
	return wait, wait <= longestRetryAfter
}

// withoutKey is the caller's query without ?key=, which is the session and not the engine's business (BC41).
func withoutKey(r *http.Request) string {
	if r.URL.RawQuery == "" || !strings.Contains(r.URL.RawQuery, "key=") {
		return r.URL.RawQuery
	}
	q := r.URL.Query()
	q.Del("key")
	return q.Encode()
}

// withoutCapture prepares a call again without what only we asked for, after the engine refused it, and says whether
// that makes a difference. The harness never sees a 400 for a field that it did not send (BC11). If the plain call goes
// through, the profile remembers.
func (c *call) withoutCapture(resp *engine.Response) bool {
	if !c.sent.injected || c.refusal != nil {
		return false
	}
	plain := c.plan
	plain.tokens, plain.logprobs = false, false
	sent, bad := prepare(c.req, plain)
	if bad != nil {
		return false
	}
	why := c.readError(resp)
	c.s.Logger.Info("the engine refused a call with capture parameters, sending it without",
		sessionField(c.live.ID()), callField(c.rec.Number), answerField(why))
	c.refusal = why
	c.plan, c.sent = plain, sent
	c.noteSent()
	return true
}

// readError reads an error answer's body, within bounds.
func (c *call) readError(resp *engine.Response) []byte {
	defer resp.Body.Close()
	body, err := engine.ReadAll(resp.Body, 0)
	if err != nil {
		return []byte("(the answer could not be read: " + err.Error() + ")")
	}
	return body
}

// refusedByEngine answers with the engine's refusal: its own bytes and status, except that its quarrels over our
// credentials are no business of the harness, and that a full context window ends the conversation in good order.
func (c *call) refusedByEngine(resp *engine.Response) *engine.Response {
	body := c.readError(resp)
	excerpt := engine.Excerpt(body)
	c.outcome, c.failure = record.UpstreamError, fmt.Sprintf("the engine answered %d: %s", resp.Status, excerpt)
	switch {
	case resp.Status == http.StatusUnauthorized || resp.Status == http.StatusForbidden:
		c.error(http.StatusBadGateway, "", fmt.Sprintf("the engine refused the proxy's own credentials with %d: check --upstream-key and --auth-header", resp.Status))
		return nil
	case resp.Status < 400: // a redirect is not followed: it would carry the credentials elsewhere
		c.error(http.StatusBadGateway, "", fmt.Sprintf("the engine answered %d, which is no model answer: check --upstream", resp.Status))
		return nil
	case engine.ContextOverflow(resp.Status, body):
		c.outcome, c.failure = "", ""
		c.rec.ContextOverflow, c.rec.Detail = true, excerpt
		c.say(contextText)
		return nil
	case resp.Status == http.StatusBadRequest || resp.Status == http.StatusUnprocessableEntity:
		c.outcome = record.Rejected
	}
	engine.CopyHeader(c.out.w.Header(), resp.Header)
	if c.req.Translated() {
		c.error(resp.Status, "", engine.ErrorText(body))
		return nil
	}
	c.answerWhole(resp.Status, body)
	return nil
}

// unreachable answers a call that got no answer from the engine.
func (c *call) unreachable(err error) {
	if errors.Is(err, engine.ErrNotSent) {
		c.ticket.NotForwarded()
	}
	cause := context.Cause(c.ctx)
	switch {
	case errors.Is(cause, session.ErrCancelled):
		c.outcome, c.failure = record.Cancelled, "the session was cancelled"
		c.error(http.StatusConflict, "", "this session was cancelled")
	case c.gone.Load():
		c.outcome, c.failure = record.ClientGone, "the harness hung up before the engine answered"
	case cause != nil:
		c.outcome, c.failure = record.UpstreamError, cause.Error()
		c.error(http.StatusBadGateway, "", cause.Error())
	case engine.IsTimeout(err):
		c.outcome, c.failure = record.UpstreamError, "the engine sent nothing within the idle limit (--first-byte-timeout)"
		c.error(http.StatusBadGateway, "", c.failure)
	default:
		c.outcome, c.failure = record.UpstreamError, "the engine cannot be reached: "+err.Error()
		c.error(http.StatusBadGateway, "", c.failure)
	}
}
