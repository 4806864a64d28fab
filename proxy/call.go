package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/continuity"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

// call is one model call on its way along the line. One goroutine owns it; what others touch is grouped apart.
type call struct {
	s      *Server
	r      *http.Request
	out    output
	live   *session.Live
	up     *engine.Upstream
	ticket *session.Ticket

	body   []byte
	route  route
	req    *dialect.Request
	way    *translation   // back into the harness's dialect; nil when the engine speaks it
	native dialect.Reader // of an answer in a dialect other than chat that the engine speaks itself; else nil
	past   past
	// turns is the index of the session's turns, nil unless the call may carry on an earlier one.
	turns  *continuity.Index
	plan   plan
	sent   prepared
	answer engine.Answer
	rec    record.Call
	// failure is why the call is no node, in words; "" while nothing went wrong. outcome is the kind of failure.
	failure string
	outcome record.Outcome
	refusal []byte               // the engine's answer to our capture parameters, nil when it took them
	fixes   []engine.Fix         // edits that the engine asked for on this very call
	derived <-chan derivedPrompt // prompt ids from the engine's own tokenizer, nil when they come with the answer
	noted   bool                 // what was asked and sent is in the record
	settled bool                 // the record is written, or being written
	aborted bool                 // the connection to the harness is to be cut
	resent  int                  // attempts that the engine had not worked on
	at      moments

	ctx    context.Context // ends when the engine must stop: the harness is gone, or the session was cancelled
	cancel context.CancelCauseFunc

	gone atomic.Bool // the harness hung up; set by watch
}

var errClientGone = errors.New("the harness hung up")

// serveCall walks one call along the line.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, rt route, prefix string) {
	d := rt.dialect
	c := &call{s: s, r: r, route: rt, out: newOutput(w, s.Idle)}
	defer c.out.close()
	c.rec = record.Call{Dialect: d, RequestID: w.Header().Get(requestIDHeader), Timing: record.Timing{Received: s.now()}}

	keys := candidates(r, prefix)
	live, conflicts, err := s.find(r.Context(), keys)
	if err != nil {
		s.refuse(w, d, keys, err)
		return
	}
	c.live, c.rec.Conflicts = live, conflicts
	c.rec.Session, c.rec.Instance = live.ID(), live.Record().Instance
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer c.cancel(nil)

	body, bad := s.readBody(w, r)
	c.at.taken = s.now()
	admitting, hash := r.Context(), c.rec.RequestID
	if bad == nil {
		sum := sha256.Sum256(body)
		c.rec.BodyHash = hex.EncodeToString(sum[:16])
		hash = c.rec.BodyHash
	} else { // nobody knows what was asked, so it repeats nothing; it is recorded though its sender may be gone
		admitting = c.ctx
		c.gone.Store(bad.Status != http.StatusRequestTimeout && r.Context().Err() != nil) // it ended in mid-body
	}
	if c.ticket, err = live.Admit(admitting, hash, saysRetry(r), c.cancel); err != nil {
		s.refuse(w, d, keys, err)
		return
	}
	c.rec.Number, c.rec.RetryOf = c.ticket.Number, c.ticket.RetryOf
	// From here on the call is recorded, whatever happens.
	defer c.commit()

	if bad == nil {
		stop := context.AfterFunc(r.Context(), c.watch)
		defer stop()
		c.body = body
		bad = c.decode()
	}
	if bad == nil {
		bad = c.makePlan()
	}
	if bad == nil {
		c.sent, bad = c.prepare()
	}
	if bad != nil {
		c.reject(bad)
		return
	}
	if c.ticket.BudgetSpent {
		c.say(budgetText)
		return
	}
	if resp := c.forward(); resp != nil {
		c.relay(resp)
		resp.Body.Close()
	}
	if c.aborted {
		panic(http.ErrAbortHandler) // how net/http cuts a connection
	}
}

// decode reads the request in its dialect.
func (c *call) decode() *dialect.Error {
	c.up = c.live.Engine()
	if c.speaksNatively() {
		return c.decodeNative()
	}
	var err error
	switch c.route.dialect {
	case record.OpenAICompletions:
		c.req, err = dialect.DecodeCompletions(c.body)
	case record.OpenAIResponses:
		c.req, err = dialect.DecodeResponses(c.body, c.earlier)
	case record.AnthropicMessages:
		c.req, err = dialect.DecodeAnthropic(c.body)
	case record.Google:
		c.req, err = dialect.DecodeGoogle(c.body, c.route.model, c.route.stream)
	default:
		c.req, err = dialect.DecodeChat(c.body)
	}
	if bad := asError(err); bad != nil {
		return bad
	}
	c.translate()
	return nil
}

// asError is a decoder's error as an answer.
func asError(err error) *dialect.Error {
	var bad *dialect.Error
	if err == nil || errors.As(err, &bad) {
		return bad
	}
	return &dialect.Error{Status: http.StatusBadRequest, Text: err.Error()}
}

// note puts what was asked and what is sent into the record, once: while the engine works, or else at the end.
func (c *call) note() {
	if c.noted || c.req == nil {
		return
	}
	c.noted = true
	r := &c.rec
	r.Body, r.Cuts, r.Messages, r.Tools = c.body, c.req.Cuts, c.req.Messages, c.req.Tools
	r.Stream, r.Model = c.req.Stream, c.req.Model
	r.RequestedSampling, r.Constraints = c.req.Sampling, c.req.Constraints
	own := c.req.Doc
	if c.req.Translated() {
		if doc, err := jsonscan.ParseDoc(c.req.Original); err == nil {
			own = doc
		}
	}
	r.Harness, r.HarnessSessionID = harnessOf(c.r.Header, own)
	c.noteSent()
}

func (c *call) noteSent() {
	r := &c.rec
	r.Served, r.SubmittedSampling, r.Edits, r.MaxTokens, r.UsageAsked = c.sent.model, c.sent.submitted(), c.sent.edits, c.sent.maxTokens, c.sent.usage
}

// reject answers a request that is not forwarded because of what it is.
func (c *call) reject(bad *dialect.Error) {
	c.outcome, c.failure = record.Rejected, bad.Text
	if bad.Status >= 500 {
		c.outcome = record.UpstreamError
	}
	c.ticket.NotForwarded()
	c.error(bad.Status, bad.Param, bad.Text)
}

// error answers with an error of the proxy's own, in the caller's dialect. What happened is durable first.
func (c *call) error(status int, param, text string) {
	body := dialect.ErrorBody(c.rec.Dialect, status, param, text)
	if c.out.started() { // a harness that was shown life while its whole answer was made
		c.lateError(status, text, body)
		return
	}
	c.out.w.Header().Set("Content-Type", "application/json")
	c.answerWhole(status, body)
}

// watch runs when the harness's connection has ended, at least towards us.
func (c *call) watch() {
	if c.out.stillReads() { // a half-closed connection is no hang-up (BC39 C)
		return
	}
	c.gone.Store(true)
	c.ticket.Gone()
	c.cancel(errClientGone)
}

func (s *Server) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// requestIDHeader carries an id that the harness, the engine and the log lines share.
const requestIDHeader = "X-Request-Id"

// requestID returns a fresh id for one request; the harness gets it too.
func requestID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails (Go 1.24)
	return hex.EncodeToString(b[:])
}

// saysRetry says whether the caller itself calls this a retry.
func saysRetry(r *http.Request) bool {
	n, err := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0
}
