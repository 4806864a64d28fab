package control

import (
	"context"
	"errors"
	"strings"
	"sync"

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
	harness        string
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

// derive counts a session's graph.
func (a *API) derive(ctx context.Context, v session.Standing) (derived, error) {
	now := circumstances(v)
	if have, ok := a.derived.get(v.Record.Instance); ok && have.calls == now.calls && have.level == now.level && have.failed == now.failed {
		return have.derived, nil
	}
	rec, calls, err := a.log(ctx, v)
	if err != nil {
		return derived{}, err
	}
	return a.remember(v, now, calls, export.Build(rec, calls, export.Options{IncludeDiscarded: true})), nil
}

// circumstances are those under which what is derived now holds. They are taken before the log is read, which is then at
// least as new.
func circumstances(v session.Standing) remembered {
	now := remembered{calls: ended, level: v.Record.CaptureLevel, failed: v.Record.CaptureFailed != ""}
	if v.Counts != nil {
		now.calls = v.Counts.Calls - v.Counts.InFlight
	}
	return now
}

// remember keeps what lists show of a document.
func (a *API) remember(v session.Standing, now remembered, calls []*record.Call, doc *export.Rollout) derived {
	now.derived = derived{stats: doc.Stats, trainable: doc.Trainable, budgetStops: doc.BudgetStops}
	for _, c := range calls {
		if c.Outcome == record.UpstreamError {
			now.upstreamErrors++
		}
		if now.harness == "" {
			now.harness = strings.TrimSpace(c.Harness.Name + " " + c.Harness.Version)
		}
	}
	a.derived.put(v.Record.Instance, now)
	return now.derived
}

// log returns what documents are derived from. Calls that can no longer be read are a fact about the session.
func (a *API) log(ctx context.Context, v session.Standing) (*record.Session, []*record.Call, error) {
	calls, err := a.Store.Calls(ctx, v.Record.ID)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return nil, nil, err
	}
	for _, c := range calls {
		if c.Instance != v.Record.Instance { // deleted, and created again, since the view was taken
			return nil, nil, session.ErrUnknown
		}
	}
	if err == nil || v.Record.CaptureFailed != "" {
		return v.Record, calls, nil
	}
	damaged := *v.Record
	damaged.CaptureFailed = err.Error()
	return &damaged, calls, nil
}
