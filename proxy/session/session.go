// Package session keeps the sessions that are alive: which keys exist, what runs under them, what their budgets leave,
// and how they end. One [Registry] serves a proxy process; what has to survive it goes through the [Store] at once.
//
// A call enters a session with [Live.Admit], which numbers it, finds retries and reserves budget, and leaves it with
// [Ticket.End]. Between the two the session cannot be torn down: close waits for it, cancel aborts it.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/events"
	"captureproxy/store"
)

// Errors to branch on.
var (
	// ErrUnknown: no session has this id.
	ErrUnknown = errors.New("no such session")
	// ErrEnded: the session takes no calls any more.
	ErrEnded = errors.New("the session has ended")
	// ErrConflict: the id is taken by a session that was created otherwise.
	ErrConflict = errors.New("the session id is taken by a session that has ended or was created with another body")
	// ErrBadID: the id is not of the allowed form.
	ErrBadID = errors.New("a session id is 1 to 128 of A-Z a-z 0-9 _ . -, the first a letter or digit")
	// ErrDraining: the proxy is shutting down.
	ErrDraining = errors.New("the proxy is shutting down")
)

// Store is the part of store.Store that a registry needs.
type Store interface {
	CreateSession(ctx context.Context, s *record.Session) error
	PutSession(ctx context.Context, s *record.Session) error
	Session(ctx context.Context, id string) (*record.Session, error)
	Sessions(ctx context.Context, f store.Filter) ([]*record.Session, string, error)
	DeleteSession(ctx context.Context, id string) error
	Append(c *record.Call) <-chan error
	Calls(ctx context.Context, id string) ([]*record.Call, error)
}

// PolicyStore is a Store that keeps the version of the weights that are live, for the processes to come.
type PolicyStore interface {
	SetPolicy(ctx context.Context, version int64) error
	Policy(ctx context.Context) (*int64, error) // nil when nobody has said
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// ValidID reports whether a caller may name a session so.
func ValidID(id string) bool { return validID.MatchString(id) }

// NewID returns a random session id of 160 bits.
func NewID() string { return "s-" + randomHex(20) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (Go 1.24)
	return hex.EncodeToString(b)
}

// Registry is the set of this process's live sessions. It is safe for concurrent use.
type Registry struct {
	store   Store
	now     func() time.Time
	records recordLocks
	events  *events.Hub
	cluster *cluster // nil unless other proxies share the store
	closing sync.Once
	hooks   hooks

	naming sync.Mutex // orders calls of SetPolicy

	mu       sync.Mutex
	live     map[string]*Live // running sessions
	draining bool
	policy   *int64 // the version of the weights that the trainer named last
}

// Open returns a registry with the store's running sessions in it: they go on where they were. engineOf names the engine
// of a session that was read from the store, nil when it is not known any more. When the store is one that proxies share,
// the registry takes up a session when it first has to do with it; it must be closed then.
func Open(ctx context.Context, st Store, now func() time.Time, engineOf func(*record.Session) *engine.Upstream) (*Registry, error) {
	r := &Registry{store: st, now: now, records: newRecordLocks(), events: events.NewHub(), live: map[string]*Live{}}
	if shared, ok := st.(store.Shared); ok {
		return r, r.join(ctx, shared, engineOf)
	}
	if keeper, ok := st.(PolicyStore); ok {
		version, err := keeper.Policy(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading which weights are live: %w", err)
		}
		r.policy = version
	}
	running, _, err := st.Sessions(ctx, store.Filter{Status: string(record.Running)})
	if err != nil && !errors.Is(err, store.ErrDamaged) { // a damaged session keeps no other one from going on
		return nil, fmt.Errorf("reading the running sessions: %w", err)
	}
	for _, s := range running {
		calls, err := st.Calls(ctx, s.ID)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return nil, fmt.Errorf("reading session %s: %w", s.ID, err)
		}
		l := newLive(r, s, engineOf(s))
		l.restore(calls)
		r.live[s.ID] = l
	}
	return r, nil
}

// Create registers a session. Spec.RequestHash tells a repeated request, which gets the same session again, from another
// one for the same id, which gets ErrConflict. The record is durable before the session can be used; when it cannot be
// written, nothing is left behind.
func (r *Registry) Create(ctx context.Context, s *record.Session, up *engine.Upstream) (*Live, error) {
	if s.ID == "" {
		s.ID = NewID()
	}
	if !ValidID(s.ID) {
		return nil, ErrBadID
	}
	if r.Draining() {
		return nil, ErrDraining
	}
	s.Instance = randomHex(8)
	s.Status = record.Running
	s.CreatedAt = r.now().UTC().Truncate(time.Microsecond)
	switch err := r.store.CreateSession(ctx, s); {
	case errors.Is(err, store.ErrExists):
		return r.again(ctx, s, up)
	case err != nil:
		return nil, fmt.Errorf("recording session %s: %w", s.ID, err)
	}
	l := newLive(r, s, up)
	r.mu.Lock()
	r.live[s.ID] = l
	r.mu.Unlock()
	r.Announce(events.SessionOpened, s)
	return l, nil
}

// again answers a create for an id that exists.
func (r *Registry) again(ctx context.Context, s *record.Session, up *engine.Upstream) (*Live, error) {
	for range 100 { // the creator that came first may not have entered it yet
		l, err := r.Repeat(ctx, s.ID, s.Spec.RequestHash, up)
		if !errors.Is(err, ErrUnknown) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, ErrConflict
}

// Repeat returns the running session of that id when it was created by the same request and for the same engine,
// ErrConflict when it was not or has ended, and ErrUnknown when there is no such session. A session whose engine was
// forgotten (credentials do not survive the process) takes up again.
func (r *Registry) Repeat(ctx context.Context, id, requestHash string, up *engine.Upstream) (*Live, error) {
	l, err := r.Get(id)
	if err == nil {
		if l.Record().Spec.RequestHash != requestHash || !l.takeEngine(up) {
			return nil, ErrConflict
		}
		return l, nil
	}
	switch old, err := r.store.Session(ctx, id); {
	case errors.Is(err, store.ErrNotFound):
		return nil, ErrUnknown
	case err != nil:
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	case old.Status != record.Running:
		return nil, ErrConflict
	case r.cluster != nil:
		if l := r.adopt(old); old.Spec.RequestHash == requestHash && l.takeEngine(up) {
			return l, nil
		}
		return nil, ErrConflict
	}
	return nil, ErrUnknown // being created at this moment
}

// Get returns a running session: ErrUnknown when there is none of that id, or ErrEnded. It asks no store, so that a
// wrong key costs nothing; see Find for ended sessions.
func (r *Registry) Get(id string) (*Live, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.live[id]; l != nil {
		return l, nil
	}
	return nil, ErrUnknown
}

// Find returns a running session, ErrEnded when the id names one that has ended, else ErrUnknown.
func (r *Registry) Find(ctx context.Context, id string) (*Live, error) {
	if l, err := r.Get(id); err == nil {
		return l, nil
	}
	if !ValidID(id) {
		return nil, ErrUnknown
	}
	switch s, err := r.store.Session(ctx, id); {
	case errors.Is(err, store.ErrNotFound):
		return nil, ErrUnknown
	case err != nil:
		return nil, fmt.Errorf("looking for session %s: %w", id, err)
	case r.cluster != nil && s.Status == record.Running:
		return r.adopt(s), nil
	}
	return nil, ErrEnded
}

// Running returns the running sessions, in no order.
func (r *Registry) Running() []*Live {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Live, 0, len(r.live))
	for _, l := range r.live {
		out = append(out, l)
	}
	return out
}

// remove takes an ended session out.
func (r *Registry) remove(l *Live) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[l.id] == l {
		delete(r.live, l.id)
	}
}

// Delete cancels what is in flight, then removes the session and its calls for good.
func (r *Registry) Delete(ctx context.Context, id string) error {
	l, err := r.Get(id)
	if r.cluster != nil {
		if l, err = r.Find(ctx, id); err != nil && !errors.Is(err, ErrEnded) {
			return err
		}
	}
	if err == nil {
		if _, err := l.Cancel(ctx, "the session was deleted"); err != nil && !errors.Is(err, ErrEnded) {
			return err
		}
	}
	err = r.store.DeleteSession(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ErrUnknown
	case err == nil:
		r.Announce(events.SessionDeleted, &record.Session{ID: id})
	}
	return err
}

// SetPolicy notes the version of the weights that are live from now on. It holds for this process at once; the error says
// that it will not survive it, or where proxies share the store that it holds nowhere.
func (r *Registry) SetPolicy(ctx context.Context, version int64) error {
	if r.cluster != nil {
		if err := r.cluster.SetPolicy(ctx, version); err != nil {
			return err
		}
		return r.cluster.readPolicy(ctx)
	}
	r.naming.Lock()
	defer r.naming.Unlock()
	r.mu.Lock()
	r.policy = &version
	r.mu.Unlock()
	if keeper, ok := r.store.(PolicyStore); ok {
		return keeper.SetPolicy(ctx, version)
	}
	return nil
}

// Policy returns the version of the weights that are live, nil when none was named.
func (r *Registry) Policy() *int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy
}

// Drain refuses new calls from now on and waits until the running ones are done or ctx is. Those that are left are then
// aborted. Sessions stay running: they go on when the proxy starts again. Whoever follows the events sees the last one.
func (r *Registry) Drain(ctx context.Context) {
	defer r.events.Close()
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	for _, l := range r.Running() {
		if err := l.wait(ctx); err != nil {
			l.abort(errDrained)
		}
	}
	// Aborted calls still record themselves.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, l := range r.Running() {
		if l.wait(grace) != nil {
			return
		}
	}
}

var errDrained = errors.New("the proxy shut down before the call ended")

// Draining reports whether Drain was called.
func (r *Registry) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}
