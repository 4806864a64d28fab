package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/store"
)

func open(t *testing.T) (*Registry, *store.Log, string) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	return restart(t, st), st, dir
}

func restart(t *testing.T, st Store) *Registry {
	t.Helper()
	r, err := Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func create(t *testing.T, r *Registry, id string) *Live {
	t.Helper()
	l, err := r.Create(t.Context(), &record.Session{ID: id}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// call plays one call of a session to an outcome.
func call(t *testing.T, st Store, l *Live, outcome record.Outcome, detail string) {
	t.Helper()
	ticket, err := l.Admit(t.Context(), fmt.Sprint(outcome, detail), false, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	c := &record.Call{Session: l.ID(), Number: ticket.Number, Outcome: outcome, Detail: detail, Forwarded: true, BodyHash: fmt.Sprint(outcome, detail)}
	if outcome.IsNode() {
		c.Choices = []record.Choice{{Outcome: outcome}}
	}
	if err := <-st.Append(c); err != nil {
		t.Fatal(err)
	}
	ticket.End(c)
}

// The one function that decides a terminal status, over every way to end (SPEC 6).
func TestVerdict(t *testing.T) {
	good := facts{nodes: 3}
	failed := facts{nodes: 2, lastError: "UpstreamError: boom"}
	for name, c := range map[string]struct {
		claim  Claim
		facts  facts
		status record.Status
		says   string
	}{
		"by default":                    {Claim{}, good, record.Completed, ""},
		"claimed completed":             {Claim{Status: record.Completed}, good, record.Completed, ""},
		"no turns":                      {Claim{}, facts{}, record.Failed, "NoTurns: no model call was recorded"},
		"claimed completed, no turns":   {Claim{Status: record.Completed}, facts{}, record.Failed, "NoTurns: no model call was recorded"},
		"last call failed":              {Claim{Status: record.Completed}, failed, record.Failed, "UpstreamError: boom"},
		"only call failed":              {Claim{}, facts{lastError: "UpstreamError: boom"}, record.Failed, "UpstreamError: boom"},
		"explicit failure":              {Claim{Status: record.Failed, Error: "Timeout: 60 s"}, good, record.Failed, "Timeout: 60 s"},
		"explicit failure, call failed": {Claim{Status: record.Failed, Error: "Timeout: 60 s"}, failed, record.Failed, "Timeout: 60 s"},
		"failure without a reason":      {Claim{Status: record.Failed}, good, record.Failed, "Failed: the caller gave no reason"},
		"cancel":                        {Claim{Cancelled: "enough"}, good, record.SessionCanceled, "enough"},
		"cancel beats a failure":        {Claim{Cancelled: "enough", Status: record.Failed, Error: "x"}, failed, record.SessionCanceled, "enough"},
		"expired":                       {Claim{Expired: true}, good, record.Expired, "Expired: idle for too long"},
		"expired without turns":         {Claim{Expired: true}, facts{}, record.Expired, "Expired: idle for too long"},
	} {
		status, says := verdict(c.claim, c.facts)
		got := ""
		if says != nil {
			got = *says
		}
		if status != c.status || got != c.says {
			t.Errorf("%s: %s %q, want %s %q", name, status, got, c.status, c.says)
		}
	}
}

func TestFailedThenRecovered(t *testing.T) {
	r, st, _ := open(t)
	for i, c := range []struct {
		outcomes []record.Outcome
		want     record.Status
	}{
		{[]record.Outcome{record.Complete}, record.Completed},
		{[]record.Outcome{record.Complete, record.UpstreamError}, record.Failed},
		{[]record.Outcome{record.UpstreamError, record.Complete}, record.Completed},
		{[]record.Outcome{record.Complete, record.Rejected}, record.Failed},
		{[]record.Outcome{record.Complete, record.BudgetStop}, record.Completed},
		{[]record.Outcome{record.Complete, record.ClientGone}, record.Completed},
		{[]record.Outcome{record.Complete, record.UpstreamError, record.ClientGone}, record.Failed},
		{[]record.Outcome{record.ClientGone}, record.Failed},
		{nil, record.Failed},
	} {
		l := create(t, r, fmt.Sprint("s", i))
		for n, o := range c.outcomes {
			call(t, st, l, o, fmt.Sprint(n))
		}
		rec, err := l.Close(t.Context(), Claim{}, nil)
		if err != nil || rec.Status != c.want {
			t.Errorf("%v: %v %v", c.outcomes, rec, err)
		}
		if stored, err := st.Session(t.Context(), l.ID()); err != nil || stored.Status != c.want || stored.ClosedAt == nil {
			t.Errorf("%v: stored %+v, %v", c.outcomes, stored, err)
		}
	}
}

func TestCreateAgain(t *testing.T) {
	r, _, _ := open(t)
	a, err := r.Create(t.Context(), &record.Session{ID: "x", Spec: record.Spec{RequestHash: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.Create(t.Context(), &record.Session{ID: "x", Spec: record.Spec{RequestHash: "1"}}, nil); err != nil || a != b {
		t.Errorf("the same create again: %v", err)
	}
	if _, err := r.Create(t.Context(), &record.Session{ID: "x", Spec: record.Spec{RequestHash: "2"}}, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("another create for the id: %v", err)
	}
	for _, id := range []string{"-a", "a b", "../x", ".x", "ä", string(make([]byte, 200))} {
		if _, err := r.Create(t.Context(), &record.Session{ID: id}, nil); !errors.Is(err, ErrBadID) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// failing is a store that cannot write.
type failing struct{ Store }

func (failing) CreateSession(context.Context, *record.Session) error { return errors.New("disk full") }

func TestCreateThatFailsLeavesNothing(t *testing.T) {
	_, st, _ := open(t)
	r := restart(t, failing{st})
	if _, err := r.Create(t.Context(), &record.Session{ID: "x"}, nil); err == nil {
		t.Fatal("no error")
	}
	if _, err := r.Find(t.Context(), "x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("the session is known: %v", err)
	}
}

// Running sessions go on after a restart: numbers, budget and retries included.
func TestRestart(t *testing.T) {
	r, st, _ := open(t)
	two := 3
	l, err := r.Create(t.Context(), &record.Session{ID: "x", Spec: record.Spec{MaxModelCalls: &two}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	call(t, st, l, record.Complete, "a")
	call(t, st, l, record.UpstreamError, "b")
	ended := create(t, r, "y")
	if _, err := ended.Close(t.Context(), Claim{}, nil); err != nil {
		t.Fatal(err)
	}

	r = restart(t, st)
	if _, err := r.Find(t.Context(), "y"); !errors.Is(err, ErrEnded) {
		t.Errorf("an ended session: %v", err)
	}
	l, err = r.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := l.Admit(t.Context(), fmt.Sprint(record.UpstreamError, "b"), false, func(error) {})
	if err != nil || ticket.Number != 3 || ticket.RetryOf != 2 || ticket.BudgetSpent {
		t.Errorf("%+v %v", ticket, err)
	}
	if over, err := l.Admit(t.Context(), "z", false, func(error) {}); err != nil || !over.BudgetSpent {
		t.Errorf("%+v %v", over, err)
	}
	ticket.NotForwarded()
	if again, err := l.Admit(t.Context(), "z2", false, func(error) {}); err != nil || again.BudgetSpent {
		t.Errorf("budget that was given back is lost: %+v %v", again, err)
	}
}

// A close waits for calls under way, a cancel does not; what comes later is refused.
func TestCloseWaits(t *testing.T) {
	r, st, _ := open(t)
	l := create(t, r, "x")
	ticket, err := l.Admit(t.Context(), "a", false, func(error) { t.Error("aborted") })
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan *record.Session)
	go func() {
		rec, err := l.Close(t.Context(), Claim{}, nil)
		if err != nil {
			t.Error(err)
		}
		closed <- rec
	}()
	for {
		l.mu.Lock()
		ending := l.ending
		l.mu.Unlock()
		if ending {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := l.Admit(t.Context(), "b", false, func(error) {}); !errors.Is(err, ErrEnded) {
		t.Errorf("admitted while closing: %v", err)
	}
	select {
	case <-closed:
		t.Fatal("closed while a call was under way")
	case <-time.After(20 * time.Millisecond):
	}
	c := &record.Call{Session: "x", Number: 1, Outcome: record.Complete, Choices: []record.Choice{{}}}
	if err := <-st.Append(c); err != nil {
		t.Fatal(err)
	}
	ticket.End(c)
	if rec := <-closed; rec.Status != record.Completed {
		t.Errorf("%+v", rec)
	}
	if _, err := l.Close(t.Context(), Claim{}, nil); !errors.Is(err, ErrEnded) {
		t.Errorf("closing twice: %v", err)
	}
}

// A cancel beats a close that waits.
func TestCancelBeatsClose(t *testing.T) {
	r, _, _ := open(t)
	l := create(t, r, "x")
	var ticket *Ticket
	aborted := make(chan struct{})
	ticket, err := l.Admit(t.Context(), "a", false, func(cause error) {
		if !errors.Is(cause, ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
		close(aborted)
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-aborted
		ticket.End(&record.Call{Number: 1, Outcome: record.Cancelled})
	}()
	closed := make(chan *record.Session, 1)
	go func() {
		rec, _ := l.Close(t.Context(), Claim{}, nil)
		closed <- rec
	}()
	time.Sleep(20 * time.Millisecond)
	if _, err := l.Cancel(t.Context(), "enough"); err != nil && !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if rec := <-closed; rec != nil && rec.Status != record.SessionCanceled {
		t.Errorf("%+v", rec)
	}
	if stored, _ := r.store.Session(t.Context(), "x"); stored.Status != record.SessionCanceled || *stored.Outcome.Error != "enough" {
		t.Errorf("%+v", stored)
	}
}

// Concurrent calls are numbered without gaps and never overspend.
func TestAdmitConcurrently(t *testing.T) {
	r, _, _ := open(t)
	ten := 10
	l, err := r.Create(t.Context(), &record.Session{ID: "x", Spec: record.Spec{MaxModelCalls: &ten}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	numbers, forwarded := map[int]bool{}, 0
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ticket, err := l.Admit(t.Context(), fmt.Sprint(i), false, func(error) {})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			numbers[ticket.Number] = true
			if !ticket.BudgetSpent {
				forwarded++
			}
			mu.Unlock()
			ticket.End(nil)
		})
	}
	wg.Wait()
	if len(numbers) != 50 || !numbers[1] || !numbers[50] || forwarded != 10 {
		t.Errorf("%d numbers, %d forwarded", len(numbers), forwarded)
	}
}

func TestDrain(t *testing.T) {
	r, _, _ := open(t)
	l := create(t, r, "x")
	var ticket *Ticket
	ticket, err := l.Admit(t.Context(), "a", false, func(error) { go ticket.End(&record.Call{Outcome: record.UpstreamError}) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	r.Drain(ctx)
	if c, _ := l.Counts(); c.InFlight != 0 {
		t.Errorf("%d calls in flight after the drain", c.InFlight)
	}
	if _, err := l.Admit(t.Context(), "b", false, func(error) {}); !errors.Is(err, ErrDraining) {
		t.Errorf("admitted while draining: %v", err)
	}
}
