package session

import (
	"context"
	"sync"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/continuity"
	"captureproxy/proxy/engine"
)

// Live is one running session.
type Live struct {
	id       string
	registry *Registry

	mu sync.Mutex
	// engine answers the session's calls; nil when none is known.
	engine *engine.Upstream
	rec    *record.Session // never changed in place: replaced, so that readers need no copy
	// ending says that no call is admitted any more; ended is closed once the terminal status is written.
	ending       bool
	ended        chan struct{}
	cancelReason string
	tickets      map[*Ticket]struct{}
	idle         chan struct{} // closed when tickets becomes empty while somebody waits
	counts       Counts
	recent       recent
	touched      time.Time
	turns        *continuity.Index // nil until somebody asks for it
	// Of a session that other proxies serve too: see shared.go.
	nudged     chan struct{} // room for one
	unsaved    []func(*record.Session)
	unnumbered int // calls that went on while the store was away
	once       sync.Once
	final      []*record.Call // what decides the verdict: see verdict
}

// Counts is what a session has done so far.
type Counts struct {
	Calls          int // accepted
	Forwarded      int // sent to the engine, those under way included
	Nodes          int // choices that became turns
	BudgetStops    int
	UpstreamErrors int
	InFlight       int
}

func newLive(r *Registry, s *record.Session, up *engine.Upstream) *Live {
	return &Live{
		id: s.ID, registry: r, engine: up, rec: s, ended: make(chan struct{}), tickets: map[*Ticket]struct{}{},
		recent: newRecent(), touched: r.now(), nudged: make(chan struct{}, 1),
	}
}

// restore counts the calls of an earlier process.
func (l *Live) restore(calls []*record.Call) {
	for _, c := range calls {
		l.counts.Calls = max(l.counts.Calls, c.Number)
		if c.Forwarded {
			l.counts.Forwarded++
		}
		l.count(c)
		l.recent.begin(c.BodyHash, c.Number)
		l.recent.end(c.BodyHash, c.Number, c.Outcome.IsNode())
	}
}

// count notes what an ended call was. The caller holds l.mu or owns l.
func (l *Live) count(c *record.Call) {
	switch {
	case c.Outcome.IsNode():
		l.counts.Nodes += len(c.Choices)
	case c.Outcome == record.BudgetStop:
		l.counts.BudgetStops++
	case c.Outcome == record.UpstreamError:
		l.counts.UpstreamErrors++
	}
	l.final = append(keepDecisive(l.final), decisive(c))
}

// ID is the session's id.
func (l *Live) ID() string { return l.id }

// Engine is what answers the session's calls, nil when none is known.
func (l *Live) Engine() *engine.Upstream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine
}

// Turns is the index of the session's turns, in which a call finds the one that it carries on. It holds those that were put
// into it; the record has the others.
func (l *Live) Turns() *continuity.Index {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns == nil {
		l.turns = continuity.NewIndex()
	}
	return l.turns
}

// takeEngine gives the session an engine where it has none, and reports whether up is its engine now.
func (l *Live) takeEngine(up *engine.Upstream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.engine == nil {
		l.engine = up
	}
	return l.engine == up
}

// Record returns the session's record as it stands. It must not be changed.
func (l *Live) Record() *record.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec
}

// Counts returns what the session has done so far, and how long it has been idle.
func (l *Live) Counts() (Counts, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	c.InFlight = len(l.tickets)
	if c.InFlight > 0 {
		return c, 0
	}
	return c, l.registry.now().Sub(l.touched)
}

// wait returns when no call is under way, or with ctx's error.
func (l *Live) wait(ctx context.Context) error {
	l.mu.Lock()
	if len(l.tickets) == 0 {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remove takes a ticket out. The caller holds l.mu.
func (l *Live) remove(t *Ticket) {
	delete(l.tickets, t)
	if len(l.tickets) == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// abort ends every call under way.
func (l *Live) abort(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.tickets {
		t.cancel(cause)
	}
}
