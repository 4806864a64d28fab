package proxy

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"captureproxy/internal/record"
)

// Observer is told of every call, once, when its fate is known: it is on disk, or could not be written. Nothing is told of
// single chunks, so that watching costs nothing while an answer passes. Settled is called from many goroutines, before the
// end of the answer is released: it must not block. What it is given is read only.
type Observer interface {
	Settled(s *Settled)
	// Refused is told of a request that did not become a call: no session, an ended one, a wrong path.
	Refused(d record.Dialect, status int)
}

// Settled is what there is to know about a call beside its record.
type Settled struct {
	Call *record.Call
	// Level is the session's capture level, Trains says that it is for training.
	Level  record.Level
	Trains bool
	// Parent is the harness's own traceparent header, "" for none.
	Parent string
	// Before is the time from the last byte of the request to the first dispatch, After that from the last byte of the
	// engine's answer to the release of its end; negative where there was no such moment. Store is how long the store took.
	Before, After, Store time.Duration
	// Late says that the end was released before the call was durable, Lost that it could not be written.
	Late, Lost bool
	// Resends counts attempts that the engine had not worked on, Fixes the edits that it asked for.
	Resends, Fixes int
}

// SessionHash stands for the session in what others may see: its id is a key.
func (s *Settled) SessionHash() string { return hashKey(s.Call.Session) }

// moments are those that a record does not keep. One goroutine at a time owns them.
type moments struct {
	taken time.Time // the request had been read
	heard time.Time // the engine's answer had been read
	asked time.Time // the store was given the record
	freed time.Time // the end of the answer was released
	late  bool      // that was before the call was durable
}

// observe tells the observers.
func (c *call) observe(err error) {
	if len(c.s.Observers) == 0 {
		return
	}
	session := c.live.Record()
	s := Settled{
		Call: &c.rec, Level: session.CaptureLevel, Trains: session.Trains(), Parent: c.r.Header.Get(traceparent),
		Before: -1, After: -1, Store: time.Since(c.at.asked), Late: c.at.late, Lost: err != nil, Resends: c.resent, Fixes: len(c.fixes),
	}
	if !c.rec.Timing.Dispatched.IsZero() {
		s.Before = max(c.rec.Timing.Dispatched.Sub(c.at.taken), 0)
	}
	if !c.at.heard.IsZero() {
		s.After = max(c.at.freed.Sub(c.at.heard), 0)
	}
	for _, o := range c.s.Observers {
		o.Settled(&s)
	}
}

// The headers of W3C Trace Context. They go on to the engine as they came, whatever the dialect.
const traceparent, tracestate = "Traceparent", "Tracestate"

// log writes a line about this call. The harness has the same request id in X-Request-Id.
func (c *call) log(level zapcore.Level, text string, more ...zap.Field) {
	line := c.s.Logger.Check(level, text)
	if line == nil {
		return
	}
	line.Write(append([]zap.Field{requestField(c.rec.RequestID), sessionField(c.live.ID()), callField(c.rec.Number)}, more...)...)
}
