package session

import (
	"context"
	"errors"

	"captureproxy/internal/record"
	"captureproxy/proxy/events"
)

// ErrCancelled is the cause with which a call's context ends when its session was cancelled.
var ErrCancelled = errors.New("the session was cancelled")

// Ticket is a call's stay in its session.
type Ticket struct {
	// Number counts the session's calls from 1, in the order in which they were accepted. It is 0 for a call that cannot be
	// recorded because the store that proxies share is away.
	Number int
	// RetryOf is the number of the call that this one repeats, 0 for none.
	RetryOf int
	// BudgetSpent says that the call must not be forwarded: max_model_calls is used up.
	BudgetSpent bool

	live     *Live
	hash     string
	cancel   context.CancelCauseFunc
	reserved bool
	lost     bool
}

// Admit takes a call into the session, in one step: it numbers the call, finds out whether it repeats an earlier one,
// and reserves budget, so that concurrent calls never overspend. hash is that of the request body, repeats says that the
// caller itself calls it a retry. cancel is called with ErrCancelled when the session is cancelled.
//
// It fails with ErrEnded when the session takes no calls any more.
func (l *Live) Admit(ctx context.Context, hash string, repeats bool, cancel context.CancelCauseFunc) (*Ticket, error) {
	if l.registry.Draining() {
		return nil, ErrDraining
	}
	if l.registry.cluster != nil {
		return l.admitShared(ctx, hash, repeats, cancel)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return nil, ErrEnded
	}
	l.counts.Calls++
	t := &Ticket{Number: l.counts.Calls, live: l, hash: hash, cancel: cancel}
	t.RetryOf = l.recent.begin(hash, t.Number).retryOf(repeats)
	if limit := l.rec.Spec.MaxModelCalls; limit != nil && l.counts.Forwarded >= *limit {
		t.BudgetSpent = true
	} else {
		l.counts.Forwarded++
		t.reserved = true
	}
	l.tickets[t] = struct{}{}
	l.touched = l.registry.now()
	if l.registry.events.Awake() {
		l.announce(events.CallStarted, t, nil)
	}
	return t, nil
}

// NotForwarded gives the reserved budget back: the call never reached the engine.
func (t *Ticket) NotForwarded() {
	t.live.mu.Lock()
	defer t.live.mu.Unlock()
	if t.reserved {
		t.reserved = false
		t.live.counts.Forwarded--
	}
}

// Forwarded says whether the call counts against max_model_calls.
func (t *Ticket) Forwarded() bool {
	t.live.mu.Lock()
	defer t.live.mu.Unlock()
	return t.reserved
}

// Gone tells the session that the harness does not wait for this call any more, so that the same body again is a retry
// even while this one is still being wound up.
func (t *Ticket) Gone() {
	if t.live.registry.cluster != nil {
		t.live.goneShared(t.Number)
		return
	}
	t.live.mu.Lock()
	defer t.live.mu.Unlock()
	t.live.recent.end(t.hash, t.Number, false)
}

// Lost says that the call could not be recorded.
func (t *Ticket) Lost() {
	t.live.mu.Lock()
	defer t.live.mu.Unlock()
	t.lost = true
}

// End ends the stay. c is the call as recorded; nil when nothing was.
func (t *Ticket) End(c *record.Call) {
	l := t.live
	if l.registry.cluster != nil {
		l.endShared(t, c)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(t)
	l.touched = l.registry.now()
	if c != nil {
		l.recent.end(t.hash, t.Number, c.Outcome.IsNode())
		l.count(c)
	}
	if c != nil && !t.lost && l.registry.events.Awake() {
		l.announce(events.TurnRecorded, t, c)
	}
}

// recent remembers the bodies of a session's last calls, by hash, to tell retries from new samples (BC06): an equal body
// alone proves nothing.
type recent struct {
	byHash map[string]attempt
	order  []string
}

type attempt struct {
	number int
	ended  bool
	node   bool
}

// maxRecent bounds how many different bodies are remembered.
const maxRecent = 256

func newRecent() recent { return recent{byHash: map[string]attempt{}} }

// begin notes a call and returns the earlier attempt with the same body, if any.
func (r *recent) begin(hash string, number int) attempt {
	old, known := r.byHash[hash]
	if !known {
		r.order = append(r.order, hash)
		if len(r.order) > maxRecent {
			delete(r.byHash, r.order[0])
			r.order = r.order[1:]
		}
	}
	r.byHash[hash] = attempt{number: number}
	return old
}

func (r *recent) end(hash string, number int, node bool) {
	if a, ok := r.byHash[hash]; ok && a.number == number {
		r.byHash[hash] = attempt{number: number, ended: true, node: node}
	}
}

// retryOf returns the number of the earlier attempt when the new one is a retry of it: the caller says so, or the
// earlier one did not end as a node.
func (a attempt) retryOf(repeats bool) int {
	if a.number > 0 && (repeats || a.ended && !a.node) {
		return a.number
	}
	return 0
}
