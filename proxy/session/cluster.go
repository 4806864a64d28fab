package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/store"
)

// cluster is what a registry has besides when several proxies share its store: the registry's sessions are then only
// those that this proxy has had to do with, and what must hold for all proxies is decided in the store.
type cluster struct {
	store.Shared
	registry *Registry
	engineOf func(*record.Session) *engine.Upstream
	leave    func(context.Context) error

	work       context.Context // of what runs in the background
	stop       context.CancelFunc
	background sync.WaitGroup

	outbox outbox // of events
	// outage says that the store did not answer the last admission in time.
	outage atomic.Bool

	mu          sync.Mutex
	stale       map[string]bool // sessions whose record, or end, has to be read again
	stalePolicy bool
	reread      chan struct{} // room for one

	policy sync.Mutex // orders readings of the policy
}

const (
	// janitorEvery is how often what is left undone is looked after.
	janitorEvery = 2 * time.Second
	// lookForIdle is how often one who waits for a session's last call asks, should a notice be lost.
	lookForIdle = 300 * time.Millisecond
)

// join makes the registry one of the proxies that share st.
func (r *Registry) join(ctx context.Context, st store.Shared, engineOf func(*record.Session) *engine.Upstream) error {
	work, stop := context.WithCancel(context.Background())
	c := &cluster{
		Shared: st, registry: r, engineOf: engineOf, work: work, stop: stop, outbox: newOutbox(),
		stale: map[string]bool{}, reread: make(chan struct{}, 1),
	}
	r.cluster = c
	r.events.Share(c.outbox.put, c.outbox.followed)
	leave, err := st.Join(ctx, randomHex(8), c.hear)
	if err != nil {
		stop()
		return err
	}
	c.leave = leave
	if err := c.readPolicy(ctx); err != nil {
		return errors.Join(err, r.Close())
	}
	c.background.Go(c.readStale)
	c.background.Go(c.sendEvents)
	c.background.Go(c.janitor)
	return nil
}

// Close takes the registry out of the proxies that share its store. The store is closed after it.
func (r *Registry) Close() error {
	r.events.Close()
	c := r.cluster
	if c == nil {
		return nil
	}
	var err error
	r.closing.Do(func() {
		c.stop()
		c.background.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err = c.leave(ctx)
	})
	return err
}

// hear takes what other proxies tell. It must not wait: what needs the store is done by others.
func (c *cluster) hear(n store.Notice) {
	switch n.Kind {
	case store.NoticeAbort:
		if l, err := c.registry.Get(n.Session); err == nil {
			cause := ErrCancelled
			if n.Text != "cancelled" {
				cause = errClosed
			}
			l.abort(cause)
		}
	case store.NoticeIdle:
		if l, err := c.registry.Get(n.Session); err == nil {
			l.nudge()
		}
	case store.NoticeChanged:
		c.readAgain(n.Session)
	case store.NoticePolicy:
		c.readAgain("")
	case store.NoticeEvents:
		c.deliver(n.Text)
	case store.NoticeFollowed:
		c.registry.events.Wake()
	case store.NoticeMissed:
		c.registry.events.Lose(c.registry.now())
		c.readAgain("")
		for _, l := range c.registry.Running() {
			c.readAgain(l.id)
			l.nudge()
		}
	}
}

// readAgain has a session read again, or with "" the policy.
func (c *cluster) readAgain(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" {
		c.stalePolicy = true
	} else {
		c.stale[id] = true
	}
	select {
	case c.reread <- struct{}{}:
	default:
	}
}

// readStale reads what has changed elsewhere.
func (c *cluster) readStale() {
	for {
		select {
		case <-c.work.Done():
			return
		case <-c.reread:
		}
		c.mu.Lock()
		ids, policy := c.stale, c.stalePolicy
		c.stale, c.stalePolicy = map[string]bool{}, false
		c.mu.Unlock()
		if policy && c.readPolicy(c.work) != nil {
			c.later("")
		}
		for id := range ids {
			if l, err := c.registry.Get(id); err == nil && l.reload(c.work) != nil {
				c.later(id)
			}
		}
	}
}

// later has something read again when the store may have come back.
func (c *cluster) later(id string) {
	time.AfterFunc(time.Second, func() {
		if c.work.Err() == nil {
			c.readAgain(id)
		}
	})
}

// readPolicy takes over which weights are live. Readings come one after the other, so the last one stands.
func (c *cluster) readPolicy(ctx context.Context) error {
	c.policy.Lock()
	defer c.policy.Unlock()
	version, err := c.Policy(ctx)
	if err != nil {
		return err
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	c.registry.policy = version
	return nil
}

// janitor looks after what could not be done at once, here or by a proxy that died.
func (c *cluster) janitor() {
	ticker := time.NewTicker(janitorEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-c.work.Done():
			return
		case <-ticker.C:
		}
		if c.Healthy() != nil {
			continue
		}
		for _, l := range c.registry.Running() {
			l.saveUnsaved(c.work)
		}
		if n%5 == 0 {
			c.adoptOrphans()
		}
		if c.registry.events.Followed() {
			c.outbox.followed()
		}
	}
}

// adoptOrphans brings to an end what a dead proxy was about to cancel; what it was about to close takes calls again, until
// somebody closes it: how it was to be closed died with it.
func (c *cluster) adoptOrphans() {
	ids, err := c.Orphans(c.work)
	if err != nil {
		return // the store is away: in the next round
	}
	for _, id := range ids {
		l, err := c.registry.Find(c.work, id)
		if err != nil {
			continue
		}
		st, err := c.state(c.work, l)
		switch {
		case err != nil:
		case st.Cancelled != "":
			l.Cancel(c.work, st.Cancelled) //nolint:errcheck // another proxy may be quicker; else the next round tries again
		default:
			c.AbandonEnd(c.work, id, l.Record().Instance) //nolint:errcheck // as above
		}
	}
}

// state tells how a session stands.
func (c *cluster) state(ctx context.Context, l *Live) (store.State, error) {
	states, err := c.States(ctx, l.id)
	if err != nil {
		return store.State{}, err
	}
	st, there := states[l.id]
	if !there || st.Instance != l.Record().Instance {
		return store.State{}, ErrUnknown
	}
	return st, nil
}

// adopt enters a running session that was read from the store.
func (r *Registry) adopt(s *record.Session) *Live {
	l := newLive(r, s, r.cluster.engineOf(s))
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.live[s.ID]; old != nil && old.Record().Instance == s.Instance {
		return old
	}
	r.live[s.ID] = l
	return l
}
