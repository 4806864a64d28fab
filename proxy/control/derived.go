package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// derived is what lists show of a session's calls.
type derived struct {
	stats          export.Stats
	trainable      bool
	upstreamErrors int
	budgetStops    int
}

// derivedCache remembers it, so that whoever polls does not pay for linking the same calls again.
type derivedCache struct {
	mu     *sync.Mutex
	byInst map[string]remembered // by the session's instance
}

// remembered holds under which circumstances it was derived.
type remembered struct {
	calls  int // that had ended, ended for a session that takes no more
	level  record.Level
	failed bool
	derived
}

// ended stands in for the number of calls of a session that has ended.
const ended = -1

// maxRemembered bounds the cache.
const maxRemembered = 8192

func newDerivedCache() derivedCache {
	return derivedCache{mu: new(sync.Mutex), byInst: map[string]remembered{}}
}

func (c derivedCache) get(instance string) (remembered, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.byInst[instance]
	return r, ok
}

func (c derivedCache) put(instance string, r remembered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byInst) >= maxRemembered {
		for some := range c.byInst { // any
			delete(c.byInst, some)
			break
		}
	}
	c.byInst[instance] = r
}

// sessionView is a session in one moment.
type sessionView struct {
	rec    *record.Session
	counts *session.Counts // nil when the session has ended
	idle   time.Duration
}

// view returns a session as it stands: from memory while it runs, from the store once it has ended.
func (a *API) view(ctx context.Context, id string) (*sessionView, error) {
	if live, err := a.Sessions.Get(id); err == nil {
		return viewOf(live), nil
	}
	if !session.ValidID(id) {
		return nil, session.ErrUnknown
	}
	rec, err := a.Store.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.current(rec), nil
}

func viewOf(live *session.Live) *sessionView {
	counts, idle := live.Counts() // before the record, which is then at least as new
	return &sessionView{rec: live.Record(), counts: &counts, idle: idle}
}

// current is the view of a record that was read from the store.
func (a *API) current(rec *record.Session) *sessionView {
	if live, err := a.Sessions.Get(rec.ID); err == nil && live.Record().Instance == rec.Instance {
		return viewOf(live)
	}
	return &sessionView{rec: rec}
}

// derive counts a session's graph.
func (a *API) derive(ctx context.Context, v *sessionView) (derived, error) {
	now := remembered{calls: ended, level: v.rec.CaptureLevel, failed: v.rec.CaptureFailed != ""}
	if v.counts != nil {
		now.calls = v.counts.Calls - v.counts.InFlight
	}
	if have, ok := a.derived.get(v.rec.Instance); ok && have.calls == now.calls && have.level == now.level && have.failed == now.failed {
		return have.derived, nil
	}
	rec, calls, err := a.log(ctx, v)
	if err != nil {
		return derived{}, err
	}
	doc := export.Build(rec, calls, export.Options{IncludeDiscarded: true})
	now.derived = derived{stats: doc.Stats, trainable: doc.Trainable, budgetStops: doc.BudgetStops}
	for _, c := range calls {
		if c.Outcome == record.UpstreamError {
			now.upstreamErrors++
		}
	}
	a.derived.put(v.rec.Instance, now)
	return now.derived, nil
}

// log returns what documents are derived from. Calls that can no longer be read are a fact about the session.
func (a *API) log(ctx context.Context, v *sessionView) (*record.Session, []*record.Call, error) {
	calls, err := a.Store.Calls(ctx, v.rec.ID)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return nil, nil, err
	}
	for _, c := range calls {
		if c.Instance != v.rec.Instance { // deleted, and created again, since the view was taken
			return nil, nil, session.ErrUnknown
		}
	}
	if err == nil || v.rec.CaptureFailed != "" {
		return v.rec, calls, nil
	}
	damaged := *v.rec
	damaged.CaptureFailed = err.Error()
	return &damaged, calls, nil
}
