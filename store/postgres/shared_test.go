package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/postgres"
	"captureproxy/store/storetest"
)

// member is a store that a proxy has joined.
type member struct {
	*postgres.Store
	mu    sync.Mutex
	heard []store.Notice
	leave func(context.Context) error
}

func join(t *testing.T, url, name string) *member {
	t.Helper()
	m := &member{Store: open(t, url, postgres.Options{})}
	leave, err := m.Join(t.Context(), name, func(n store.Notice) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.heard = append(m.heard, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	m.leave = leave
	t.Cleanup(func() {
		if err := m.leave(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *member) hears(t *testing.T, want store.Notice) {
	t.Helper()
	eventually(t, "the proxy hears of "+string(want.Kind), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Contains(m.heard, want)
	})
}

func admit(t *testing.T, m *member, s *record.Session, hash string, repeats bool) store.Admitted {
	t.Helper()
	a, err := m.Admit(ctx, store.Admission{Session: s.ID, Instance: s.Instance, BodyHash: hash, Repeats: repeats})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func limited(n, calls int) *record.Session {
	s := storetest.Session(n)
	s.Spec.MaxModelCalls = &calls
	return s
}

func TestBudgetHoldsAcrossProxies(t *testing.T) {
	url := database(t)
	proxies := []*member{join(t, url, "a"), join(t, url, "b"), join(t, url, "c")}
	s := limited(1, 10)
	storetest.Create(t, proxies[0], s)
	var mu sync.Mutex
	var wg sync.WaitGroup
	numbers := map[int]bool{}
	reserved := 0
	for i := range 50 {
		wg.Go(func() {
			a, err := proxies[i%3].Admit(ctx, store.Admission{Session: s.ID, Instance: s.Instance, BodyHash: "h"})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if numbers[a.Number] = true; a.Reserved {
				reserved++
			}
		})
	}
	wg.Wait()
	if reserved != 10 || len(numbers) != 50 || !numbers[1] || !numbers[50] {
		t.Errorf("%d calls of 10 are admitted, under %d numbers", reserved, len(numbers))
	}
}

// Budget that was not used comes back with the end of the call.
func TestBudgetComesBack(t *testing.T) {
	m := join(t, database(t), "a")
	s := limited(1, 1)
	storetest.Create(t, m, s)
	for round := range 3 {
		a := admit(t, m, s, "h", false)
		if !a.Reserved || admit(t, m, s, "x", false).Reserved {
			t.Fatalf("round %d: reserved %+v, and then another", round, a)
		}
		c := storetest.Call(s, a.Number)
		c.Forwarded, c.Outcome = false, record.Rejected
		if round == 1 {
			if err := m.Leave(ctx, s.ID, s.Instance, a.Number, false); err != nil {
				t.Fatal(err)
			}
			continue
		}
		storetest.Append(t, m, c)
		storetest.Append(t, m, c) // again, which gives nothing back
	}
	a := admit(t, m, s, "h", false)
	c := storetest.Call(s, a.Number)
	c.Forwarded = true
	storetest.Append(t, m, c)
	if admit(t, m, s, "h", false).Reserved {
		t.Error("what was forwarded came back")
	}
}

func TestRetriesAreFoundAcrossProxies(t *testing.T) {
	url := database(t)
	a, b := join(t, url, "a"), join(t, url, "b")
	s := storetest.Session(1)
	storetest.Create(t, a, s)
	record_ := func(n int, hash string, outcome record.Outcome) {
		c := storetest.Call(s, n)
		c.BodyHash, c.Outcome = hash, outcome
		storetest.Append(t, a, c)
	}
	want := func(what string, got store.Admitted, retryOf int) {
		t.Helper()
		if got.RetryOf != retryOf {
			t.Errorf("%s: call %d is a retry of %d, want %d", what, got.Number, got.RetryOf, retryOf)
		}
	}
	want("the first", admit(t, a, s, "h", false), 0)
	want("one beside it", admit(t, b, s, "h", false), 0)
	want("one that says so", admit(t, b, s, "h", true), 2)
	record_(3, "h", record.Complete)
	want("a new sample", admit(t, b, s, "h", false), 0)
	record_(4, "h", record.UpstreamError)
	want("after a failure", admit(t, b, s, "h", false), 4)
	if err := b.Gone(ctx, s.ID, s.Instance, 5); err != nil {
		t.Fatal(err)
	}
	want("after the harness hung up", admit(t, a, s, "h", false), 5)
	want("another body", admit(t, a, s, "x", true), 0)
}

func TestEnding(t *testing.T) {
	url := database(t)
	a, b := join(t, url, "a"), join(t, url, "b")
	s := storetest.Session(1)
	storetest.Create(t, a, s)
	admit(t, b, s, "h", false)
	st, err := a.BeginEnd(ctx, s.ID, s.Instance, "")
	if err != nil || !st.Mine || st.InFlight != 1 || st.Ended {
		t.Fatalf("the first that ends it: %+v, %v", st, err)
	}
	st, err = b.BeginEnd(ctx, s.ID, s.Instance, "enough")
	if err != nil || st.Mine || !st.Ending || st.Cancelled != "enough" {
		t.Fatalf("the second: %+v, %v", st, err)
	}
	for _, m := range []*member{a, b} {
		m.hears(t, store.Notice{Kind: store.NoticeAbort, From: "b", Session: s.ID, Text: "cancelled"})
	}
	if _, err := b.Admit(ctx, store.Admission{Session: s.ID, Instance: s.Instance}); !errors.Is(err, store.ErrEnding) {
		t.Errorf("a call of a session that is ending: %v", err)
	}
	storetest.Append(t, b, storetest.Call(s, 1))
	a.hears(t, store.Notice{Kind: store.NoticeIdle, From: "b", Session: s.ID})
	rec, err := a.UpdateSession(ctx, s.ID, func(r *record.Session) error {
		r.Status = record.Completed
		return nil
	})
	if err != nil || rec.Status != record.Completed {
		t.Fatalf("%+v, %v", rec, err)
	}
	b.hears(t, store.Notice{Kind: store.NoticeChanged, From: "a", Session: s.ID})
	if st, err = b.BeginEnd(ctx, s.ID, s.Instance, ""); err != nil || !st.Ended || st.Mine || st.Turns != 1 || st.Calls != 1 {
		t.Errorf("a session that has ended: %+v, %v", st, err)
	}
	if _, err := b.BeginEnd(ctx, "none", "", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
	if _, err := a.Admit(ctx, store.Admission{Session: s.ID, Instance: "another"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a call of an earlier session of that name: %v", err)
	}
}

// What a dead proxy held does not count: neither its calls nor its being about to end a session.
func TestDeadProxy(t *testing.T) {
	url := database(t)
	a, b := join(t, url, "a"), join(t, url, "b")
	s := storetest.Session(1)
	storetest.Create(t, a, s)
	admit(t, b, s, "h", false)
	if _, err := b.BeginEnd(ctx, s.ID, s.Instance, ""); err != nil {
		t.Fatal(err)
	}
	if ids, err := a.Orphans(ctx); err != nil || len(ids) != 0 {
		t.Fatalf("while it lives: %v, %v", ids, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	sql(t, url, "delete from capture_proxy.proxies where id = 'b' returning id")
	if ids, err := a.Orphans(ctx); err != nil || !slices.Equal(ids, []string{s.ID}) {
		t.Errorf("orphans: %v, %v", ids, err)
	}
	st, err := a.BeginEnd(ctx, s.ID, s.Instance, "")
	if err != nil || !st.Mine || st.InFlight != 0 {
		t.Errorf("ending what it was ending: %+v, %v", st, err)
	}
	if err := a.AbandonEnd(ctx, s.ID, s.Instance); err != nil {
		t.Fatal(err)
	}
	if got := admit(t, a, s, "h", false); got.Number != 2 {
		t.Errorf("the session goes on with call %d", got.Number)
	}
	if ids, err := a.Idle(ctx, 0); err != nil || len(ids) != 0 {
		t.Errorf("idle with a call under way: %v, %v", ids, err)
	}
	storetest.Append(t, a, storetest.Call(s, 2))
	if ids, err := a.Idle(ctx, 0); err != nil || !slices.Equal(ids, []string{s.ID}) {
		t.Errorf("idle: %v, %v", ids, err)
	}
	if ids, err := a.Idle(ctx, time.Hour); err != nil || len(ids) != 0 {
		t.Errorf("idle for an hour: %v, %v", ids, err)
	}
	b.leave = func(context.Context) error { return nil }
}

func TestVerdictFacts(t *testing.T) {
	m := join(t, database(t), "a")
	s := storetest.Session(1)
	storetest.Create(t, m, s)
	for n, o := range []record.Outcome{record.UpstreamError, record.Complete, record.Rejected, record.ClientGone} {
		c := storetest.Call(s, n+1)
		c.Outcome, c.Detail = o, "because"
		storetest.Append(t, m, c)
	}
	turns, calls, err := m.Decisive(ctx, s.ID, s.Instance)
	if err != nil || turns != 1 || len(calls) != 3 || calls[0].Outcome != record.Complete || calls[1].Number != 3 || calls[1].Detail != "because" {
		t.Errorf("%d turns, %d calls, %v", turns, len(calls), err)
	}
}

func TestUpdatesMeet(t *testing.T) {
	url := database(t)
	proxies := []*member{join(t, url, "a"), join(t, url, "b")}
	s := storetest.Session(1)
	storetest.Create(t, proxies[0], s)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := proxies[i%2].UpdateSession(ctx, s.ID, func(r *record.Session) error {
				r.CaptureFailed += "x"
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r, err := proxies[1].Session(ctx, s.ID); err != nil || len(r.CaptureFailed) != 20 {
		t.Errorf("%d of 20 changes are left, %v", len(r.CaptureFailed), err)
	}
	refusal := errors.New("no")
	if _, err := proxies[0].UpdateSession(ctx, s.ID, func(*record.Session) error { return refusal }); err != refusal {
		t.Errorf("a change that fails: %v", err)
	}
	if _, err := proxies[0].UpdateSession(ctx, "none", func(*record.Session) error { return nil }); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("no session: %v", err)
	}
}

func TestPolicyAndNotices(t *testing.T) {
	url := database(t)
	a, b := join(t, url, "a"), join(t, url, "b")
	if v, err := a.Policy(ctx); v != nil || err != nil {
		t.Errorf("before anybody has said: %v, %v", v, err)
	}
	for _, version := range []int64{7, 3} {
		if err := a.SetPolicy(ctx, version); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Policy(ctx); err != nil || *v != version {
			t.Errorf("%v, %v", v, err)
		}
	}
	b.hears(t, store.Notice{Kind: store.NoticePolicy, From: "a", Text: "3"})
	if err := a.Tell(ctx, store.Notice{Kind: store.NoticeEvents, Text: "[]"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{a, b} {
		m.hears(t, store.Notice{Kind: store.NoticeEvents, From: "a", Text: "[]"})
	}
	if err := server.Halt(true); err != nil {
		t.Fatal(err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	a.hears(t, store.Notice{Kind: store.NoticeMissed})
	if err := b.Tell(ctx, store.Notice{Kind: store.NoticeFollowed}); err != nil {
		t.Fatal(err)
	}
	a.hears(t, store.Notice{Kind: store.NoticeFollowed, From: "b"})
}
