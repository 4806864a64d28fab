package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/events"
	"captureproxy/store"
)

// What a live session does when several proxies share the store.

const (
	// admitPatience is how long a call waits for a store that is away, before it goes on without being recorded: longer than
	// a database takes to restart, shorter than a harness waits. While the store stays away, later calls wait less.
	admitPatience  = 20 * time.Second
	outagePatience = time.Second
	// sharedGrace is how long a session's end waits for calls that were aborted; those of a dead proxy stop counting within.
	sharedGrace = 20 * time.Second
)

// admitShared is Admit for a session that other proxies serve too. A store that is away keeps no harness from its engine:
// the call goes on under no number, cannot be recorded, and the session is marked for it.
func (l *Live) admitShared(ctx context.Context, hash string, repeats bool, cancel context.CancelCauseFunc) (*Ticket, error) {
	c := l.registry.cluster
	t := &Ticket{live: l, hash: hash, cancel: cancel}
	l.mu.Lock()
	l.tickets[t] = struct{}{} // before it is admitted, so that an abort reaches it
	instance := l.rec.Instance
	l.mu.Unlock()

	patience := admitPatience
	if c.outage.Load() {
		patience = outagePatience
	}
	waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	a, err := c.Admit(waiting, store.Admission{Session: l.id, Instance: instance, BodyHash: hash, Repeats: repeats})
	switch {
	case errors.Is(err, store.ErrEnding), errors.Is(err, store.ErrNotFound):
		c.readAgain(l.id)
		l.drop(t)
		if errors.Is(err, store.ErrNotFound) {
			return nil, ErrUnknown
		}
		return nil, ErrEnded
	case errors.Is(err, store.ErrClosed):
		l.drop(t)
		return nil, ErrDraining
	}
	c.outage.Store(err != nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touched = l.registry.now()
	if err != nil {
		l.unnumbered++
		limit := l.rec.Spec.MaxModelCalls
		t.BudgetSpent = limit != nil && l.counts.Calls+l.unnumbered > *limit
		t.reserved = !t.BudgetSpent
		return t, nil
	}
	t.Number, t.RetryOf, t.BudgetSpent, t.reserved = a.Number, a.RetryOf, !a.Reserved, a.Reserved
	l.counts.Calls, l.counts.Nodes = max(l.counts.Calls, a.Number), max(l.counts.Nodes, a.Turns)
	if l.registry.events.Awake() {
		e := l.callEvent(events.CallStarted, t, nil)
		e.Calls, e.Turns, e.InFlight = a.Number, a.Turns, a.InFlight
		l.registry.events.Publish(e)
	}
	return t, nil
}

// drop forgets a ticket that was not admitted.
func (l *Live) drop(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(t)
}

// endShared is End. A call that was recorded has left the session in the store by that; one that was not still has to.
func (l *Live) endShared(t *Ticket, c *record.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(t)
	l.touched = l.registry.now()
	recorded := c != nil && !t.lost
	if recorded && l.registry.events.Awake() {
		// How many turns the session has by now is not known here: other proxies record some too.
		l.registry.events.Publish(l.callEvent(events.TurnRecorded, t, c))
	}
	if !recorded && t.Number > 0 {
		l.leaveLater(t.Number, l.rec.Instance, t.reserved)
	}
}

// leaveLater takes a call out of its session, as soon as the store lets it.
func (l *Live) leaveLater(number int, instance string, forwarded bool) {
	c := l.registry.cluster
	c.background.Go(func() {
		for c.work.Err() == nil {
			err := c.Leave(c.work, l.id, instance, number, forwarded)
			if err == nil || errors.Is(err, store.ErrClosed) {
				return
			}
			select {
			case <-c.work.Done():
			case <-time.After(janitorEvery):
			}
		}
	})
}

// goneShared tells all proxies that a harness does not wait for a call any more.
func (l *Live) goneShared(number int) {
	c := l.registry.cluster
	c.background.Go(func() {
		ctx, cancel := context.WithTimeout(c.work, 5*time.Second)
		defer cancel()
		c.Gone(ctx, l.id, l.Record().Instance, number) //nolint:errcheck // the same body again is then no retry: a remark is missing
	})
}

// nudge wakes the one who waits for the session's last call.
func (l *Live) nudge() { signal(l.nudged) }

// closeShared is Close.
func (l *Live) closeShared(ctx context.Context, claim Claim, change func(*record.Session)) (*record.Session, error) {
	c := l.registry.cluster
	instance := l.Record().Instance
	if err := l.takeOver(ctx, instance, claim); err != nil {
		return nil, err
	}
	giveUp := func(err error) error {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, c.AbandonEnd(undo, l.id, instance))
		l.resumeAdmitting()
		return err
	}
	st, err := l.waitShared(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedGrace)
		defer cancel()
		ctx = grace
		l.abort(errClosed)
		if err = c.Tell(ctx, store.Notice{Kind: store.NoticeAbort, Session: l.id, Text: "closed"}); err == nil {
			st, err = l.waitShared(ctx)
		}
	}
	if err != nil {
		return nil, giveUp(fmt.Errorf("session %s: calls under way do not end: %w", l.id, err))
	}
	if st.Cancelled != "" {
		claim.Cancelled = st.Cancelled
	}
	turns, calls, err := c.Decisive(ctx, l.id, instance)
	if err != nil {
		return nil, giveUp(err)
	}
	lock := l.registry.records.of(l.id)
	lock.Lock()
	defer lock.Unlock()
	rec, err := l.registry.updateShared(ctx, l.id, func(s *record.Session) error {
		if change != nil {
			change(s)
		}
		status, problem := verdict(claim, factsOf(turns, calls))
		now := l.registry.now().UTC().Truncate(time.Microsecond)
		s.Status, s.ClosedAt = status, &now
		s.Outcome = &record.Verdict{Status: string(status), Error: problem}
		return nil
	})
	if err != nil {
		return nil, giveUp(err)
	}
	l.finish()
	l.registry.Announce(events.SessionEnded, rec)
	return rec, nil
}

// takeOver makes this proxy the one that ends the session. While another is at it, it waits for that one, and ErrEnded is
// what it gets.
func (l *Live) takeOver(ctx context.Context, instance string, claim Claim) error {
	c := l.registry.cluster
	for {
		st, err := c.BeginEnd(ctx, l.id, instance, claim.Cancelled)
		switch {
		case err == nil && st.Mine && !st.Ended:
			return nil
		case err == nil && st.Ended:
			err = ErrEnded
			l.finish()
		case errors.Is(err, store.ErrNotFound):
			err = ErrUnknown
			l.finish()
		}
		if err != nil {
			l.resumeAdmitting()
			return err
		}
		select {
		case <-l.ended:
		case <-time.After(lookForIdle):
		case <-ctx.Done():
			l.resumeAdmitting()
			return ctx.Err()
		}
	}
}

// waitShared waits until no proxy has a call of the session under way.
func (l *Live) waitShared(ctx context.Context) (store.State, error) {
	for {
		st, err := l.registry.cluster.state(ctx, l)
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil || st.InFlight == 0 {
			return st, err
		}
		select {
		case <-l.nudged:
		case <-time.After(lookForIdle):
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

// reload takes over what other proxies have made of the session.
func (l *Live) reload(ctx context.Context) error {
	lock := l.registry.records.of(l.id)
	lock.Lock()
	defer lock.Unlock()
	c := l.registry.cluster
	st, err := c.state(ctx, l)
	if errors.Is(err, ErrUnknown) { // deleted
		l.abort(ErrCancelled)
		l.finish()
		return nil
	}
	if err != nil {
		return err
	}
	s, err := c.Session(ctx, l.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil // deleted since, of which there will be a notice
	case err != nil:
		return err
	}
	l.mu.Lock()
	if s.Instance == l.rec.Instance {
		for _, change := range l.unsaved {
			change(s)
		}
		l.rec = s
	}
	l.mu.Unlock()
	switch {
	case st.Ended:
		l.finish()
	case st.Cancelled != "":
		l.abort(ErrCancelled)
	}
	return nil
}

// finish takes the session out of this proxy: it takes no calls any more.
func (l *Live) finish() {
	l.registry.remove(l)
	l.once.Do(func() { close(l.ended) })
}

// updateShared changes a session's record in the store, with what could not be written before.
func (r *Registry) updateShared(ctx context.Context, id string, change func(*record.Session) error) (*record.Session, error) {
	l, _ := r.Get(id) //nolint:errcheck // nil when this proxy has had nothing to do with it
	var unsaved []func(*record.Session)
	if l != nil {
		l.mu.Lock()
		unsaved = l.unsaved
		l.mu.Unlock()
	}
	s, err := r.cluster.UpdateSession(ctx, id, func(s *record.Session) error {
		for _, earlier := range unsaved {
			earlier(s)
		}
		return change(s)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, ErrUnknown
	case err != nil:
		return nil, err
	}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.rec.Instance == s.Instance {
			l.rec, l.unsaved = s, l.unsaved[len(unsaved):]
		}
	}
	return s, nil
}

// changeShared is Update: a change that the store does not take now stands in memory until it does.
func (l *Live) changeShared(ctx context.Context, change func(*record.Session)) (*record.Session, error) {
	s, err := l.registry.updateShared(ctx, l.id, func(s *record.Session) error {
		change(s)
		return nil
	})
	if err == nil {
		return s, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.rec
	change(&next)
	l.rec = &next
	if !errors.Is(err, ErrUnknown) {
		l.unsaved = append(l.unsaved, change)
	}
	return &next, fmt.Errorf("recording session %s: %w", l.id, err)
}

// saveUnsaved writes what could not be written when it happened.
func (l *Live) saveUnsaved(ctx context.Context) {
	l.mu.Lock()
	none := len(l.unsaved) == 0
	l.mu.Unlock()
	if none {
		return
	}
	lock := l.registry.records.of(l.id)
	lock.Lock()
	defer lock.Unlock()
	l.registry.updateShared(ctx, l.id, func(*record.Session) error { return nil }) //nolint:errcheck // the next round tries again
}
