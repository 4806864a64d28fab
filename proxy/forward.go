package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

// maxResends is how often a call is sent again that cannot have been processed: no connection, 429, 503.
const maxResends = 2

// longestRetryAfter is the longest an engine can make a call wait before it is sent again.
const longestRetryAfter = 60 * time.Second

// forward sends the call to its engine. It returns the answer when there is one to relay, or nil when the call has been
// answered otherwise.
func (c *call) forward() *engine.Response {
	c.rec.Timing.Dispatched = c.s.now()
	c.rec.Policy.Dispatch = c.s.Sessions.Policy()
	query, header := withoutKey(c.r), c.r.Header
	if c.req.Translated() { // what the harness's dialect has in its query and headers is not chat's
		query, header = "", http.Header{"Content-Type": {"application/json"}, "User-Agent": c.r.Header["User-Agent"],
			traceparent: c.r.Header[traceparent], tracestate: c.r.Header[tracestate]}
	}
	path, bearer := c.path()
	for {
		c.derive()
		stop := c.showLife()
		resp, err := c.up.Do(c.ctx, &engine.Request{
			Method: http.MethodPost, Path: path, Bearer: bearer, Query: query, Header: withHeaders(header, c.plan.way.Header), RequestID: c.rec.RequestID, Body: c.sent.body,
			Meanwhile: c.note,
		})
		stop()
		switch {
		case err != nil && errors.Is(err, engine.ErrNotSent) && c.resent < maxResends && c.ctx.Err() == nil:
			c.resent++
			if c.pause(time.Duration(c.resent) * 100 * time.Millisecond) {
				continue
			}
			c.unreachable(err)
			return nil
		case err != nil:
			c.unreachable(err)
			return nil
		case asksForPatience(resp.Status):
			wait, ok := retryAfter(resp.Header.Get("Retry-After"), c.resent)
			if !ok || c.resent >= maxResends {
				c.refusedByEngine(resp, c.readError(resp))
				return nil
			}
			resp.Body.Close()
			if c.resent++; !c.pause(wait) {
				c.unreachable(context.Cause(c.ctx))
				return nil
			}
		case resp.Status != http.StatusOK:
			body := c.readError(resp)
			if c.bridgeRefused(resp.Status, body) || c.systemRefused(resp.Status, body) || c.negotiate(resp.Status, body) ||
				c.withoutBridge(resp.Status, body) || c.withoutCapture(resp.Status, body) {
				continue
			}
			c.refusedByEngine(resp, body)
			return nil
		default:
			return resp
		}
	}
}

// asksForPatience says whether a status means that the engine has not worked on the call, and may do so later.
func asksForPatience(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529 // Anthropic's "overloaded"
}

// withHeaders adds headers that capture needs; h stays as it is.
func withHeaders(h http.Header, more [][2]string) http.Header {
	if len(more) == 0 {
		return h
	}
	out := h.Clone()
	for _, m := range more {
		out.Set(m[0], m[1])
	}
	return out
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
func (c *call) withoutCapture(status int, why []byte) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || !c.sent.injected || c.refusal != nil {
		return false
	}
	plain := c.plan
	plain.way, plain.buffered, plain.bridge = engine.Way{Level: record.LevelText}, false, nil
	sent, bad := prepare(c.req, plain)
	if bad != nil {
		return false
	}
	c.log(zap.InfoLevel, "the engine refused a call with capture parameters, sending it without", answerField(why))
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
func (c *call) refusedByEngine(resp *engine.Response, body []byte) {
	excerpt := engine.Excerpt(body)
	c.outcome, c.failure = record.UpstreamError, fmt.Sprintf("the engine answered %d: %s", resp.Status, excerpt)
	switch {
	case resp.Status == http.StatusUnauthorized || resp.Status == http.StatusForbidden:
		c.error(http.StatusBadGateway, "", fmt.Sprintf("the engine refused the proxy's own credentials with %d: check --upstream-key and --auth-header", resp.Status))
		return
	case resp.Status < 400: // a redirect is not followed: it would carry the credentials elsewhere
		c.error(http.StatusBadGateway, "", fmt.Sprintf("the engine answered %d, which is no model answer: check --upstream", resp.Status))
		return
	case engine.ContextOverflow(resp.Status, body):
		c.outcome, c.failure = "", ""
		c.rec.ContextOverflow, c.rec.Detail = true, excerpt
		c.say(contextText)
		return
	case resp.Status == http.StatusBadRequest || resp.Status == http.StatusUnprocessableEntity:
		c.outcome = record.Rejected
	}
	if c.out.started() {
		c.lateError(resp.Status, engine.ErrorText(body), body)
		return
	}
	engine.CopyHeader(c.out.w.Header(), resp.Header)
	if c.req.Translated() {
		c.error(resp.Status, "", engine.ErrorText(body))
		return
	}
	c.answerWhole(resp.Status, body)
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
