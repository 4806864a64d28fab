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

// Claim is what a caller says of how its session ended. The zero value claims nothing.
type Claim struct {
	Status record.Status // completed, failed, or empty for the default
	Error  string        // for failed
	// Cancelled is the reason of a cancellation, Expired says that the session was idle for too long.
	Cancelled string
	Expired   bool
}

// facts is what a session's calls say about its end.
type facts struct {
	nodes     int
	lastError string // of the last model call, when it failed and none succeeded after it
}

// verdict decides a session's terminal status. It is the one function that does, for every way in which a session ends
// (SPEC 6): cancel beats all; an explicit failure stands; a claimed or default `completed` becomes `failed` when no turn
// was recorded or when the last model call failed.
func verdict(c Claim, f facts) (record.Status, *string) {
	said := func(format string, args ...any) *string {
		s := fmt.Sprintf(format, args...)
		return &s
	}
	switch {
	case c.Cancelled != "":
		return record.SessionCanceled, said("%s", c.Cancelled)
	case c.Status == record.Failed && c.Error != "":
		return record.Failed, said("%s", c.Error)
	case c.Status == record.Failed:
		return record.Failed, said("Failed: the caller gave no reason")
	case c.Expired:
		return record.Expired, said("Expired: idle for too long")
	case f.nodes == 0 && f.lastError != "":
		return record.Failed, said("%s", f.lastError)
	case f.nodes == 0:
		return record.Failed, said("NoTurns: no model call was recorded")
	case f.lastError != "":
		return record.Failed, said("%s", f.lastError)
	}
	return record.Completed, nil
}

// decisive reduces a call to what verdict needs of it.
func decisive(c *record.Call) *record.Call {
	return &record.Call{Number: c.Number, Outcome: c.Outcome, Status: c.Status, Detail: c.Detail}
}

// keepDecisive drops what a later call makes irrelevant. Calls end in another order than they were accepted, so all
// since the last good one are kept.
func keepDecisive(calls []*record.Call) []*record.Call {
	last := 0
	for _, c := range calls {
		if c.Outcome.IsNode() {
			last = max(last, c.Number)
		}
	}
	kept := calls[:0]
	for _, c := range calls {
		if c.Number >= last {
			kept = append(kept, c)
		}
	}
	return kept
}

// facts says what the calls so far mean for the verdict. The caller holds l.mu.
func (l *Live) facts() facts { return factsOf(l.counts.Nodes, l.final) }

// factsOf says what calls mean for the verdict: all since the last good one, in any order.
func factsOf(nodes int, calls []*record.Call) facts {
	f := facts{nodes: nodes}
	last := 0
	for _, c := range calls {
		if c.Number < last {
			continue
		}
		switch c.Outcome {
		case record.UpstreamError, record.Rejected:
			last, f.lastError = c.Number, "UpstreamError: "+c.Detail
			if c.Outcome == record.Rejected {
				f.lastError = "Rejected: " + c.Detail
			}
		case record.BudgetStop, record.ClientGone, record.Cancelled: // no model call that failed
		default:
			last, f.lastError = c.Number, ""
		}
	}
	return f
}

// Close ends the session: new calls are refused at once, those under way are waited for until ctx is done and aborted
// then. change, which may be nil, is applied to the record in the same write that makes the status terminal. Closing
// twice is ErrEnded the second time, once the first is through.
func (l *Live) Close(ctx context.Context, claim Claim, change func(*record.Session)) (*record.Session, error) {
	if err := l.stopAdmitting(ctx); err != nil {
		return nil, err
	}
	change = l.registry.hooks.marking(change)
	if l.registry.cluster != nil {
		return l.closeShared(ctx, claim, change)
	}
	if claim.Cancelled != "" {
		l.abort(ErrCancelled)
	}
	if l.wait(ctx) != nil {
		l.abort(errClosed)
	}
	// What was aborted still has to be recorded: the terminal status comes after the session's teardown.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := l.wait(grace); err != nil {
		l.resumeAdmitting()
		return nil, fmt.Errorf("session %s: calls under way do not end: %w", l.id, err)
	}
	rec, err := l.Update(grace, func(s *record.Session) {
		if change != nil {
			change(s)
		}
		if l.cancelReason != "" { // a cancel that came while a close was waiting
			claim.Cancelled = l.cancelReason
		}
		status, problem := verdict(claim, l.facts())
		now := l.registry.now().UTC().Truncate(time.Microsecond)
		s.Status, s.ClosedAt = status, &now
		s.Outcome = &record.Verdict{Status: string(status), Error: problem}
	})
	if err != nil {
		l.Update(grace, func(s *record.Session) { s.Status, s.ClosedAt, s.Outcome = record.Running, nil, nil }) //nolint:errcheck // the store has just failed
		l.resumeAdmitting()
		return nil, err
	}
	l.finish()
	l.registry.Announce(events.SessionEnded, rec)
	return rec, nil
}

// errClosed ends the calls that a close no longer waits for. It counts as a cancellation: the engine did nothing wrong.
var errClosed error = closedEarly{}

type closedEarly struct{}

func (closedEarly) Error() string        { return "the session was closed before the call ended" }
func (closedEarly) Is(target error) bool { return target == ErrCancelled }

// Cancel ends the session at once: calls under way are aborted upstream now.
func (l *Live) Cancel(ctx context.Context, reason string) (*record.Session, error) {
	if reason == "" {
		reason = "no reason given"
	}
	l.mu.Lock()
	l.cancelReason = reason
	l.mu.Unlock()
	// A close that waits for calls must not keep a cancel from ending them.
	l.abort(ErrCancelled)
	if c := l.registry.cluster; c != nil {
		if _, err := c.BeginEnd(ctx, l.id, l.Record().Instance, reason); err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return l.Close(ctx, Claim{Cancelled: reason}, nil)
}

// stopAdmitting makes the caller the one that ends the session, or waits for the one that does.
func (l *Live) stopAdmitting(ctx context.Context) error {
	l.mu.Lock()
	first := !l.ending
	l.ending = true
	l.mu.Unlock()
	if first {
		return nil
	}
	select {
	case <-l.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Live) resumeAdmitting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = false
}
