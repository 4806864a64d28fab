package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"captureproxy/internal/pgtest"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/events"
	"captureproxy/store/postgres"
)

var server *pgtest.Server // of all tests of this package

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if server, err = pgtest.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// peers are registries of proxies that share a database.
func peers(t *testing.T, n int) ([]*Registry, []*postgres.Store) {
	t.Helper()
	url, err := server.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []*Registry
	var stores []*postgres.Store
	for range n {
		st, err := postgres.Open(t.Context(), url, postgres.Options{Patience: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(r.Close(), st.Close()); err != nil {
				t.Error(err)
			}
		})
		list, stores = append(list, r), append(stores, st)
	}
	return list, stores
}

func find(t *testing.T, r *Registry, id string) *Live {
	t.Helper()
	l, err := r.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in 20 s it did not come about that %s", what)
		}
	}
}

func TestSharedVerdicts(t *testing.T) {
	rs, st := peers(t, 2)
	for i, c := range []struct {
		outcomes []record.Outcome
		want     record.Status
	}{
		{[]record.Outcome{record.Complete}, record.Completed},
		{[]record.Outcome{record.Complete, record.UpstreamError}, record.Failed},
		{[]record.Outcome{record.UpstreamError, record.Complete}, record.Completed},
		{[]record.Outcome{record.Complete, record.UpstreamError, record.ClientGone}, record.Failed},
		{nil, record.Failed},
	} {
		id := fmt.Sprint("s", i)
		create(t, rs[0], id)
		for n, o := range c.outcomes {
			call(t, st[n%2], find(t, rs[n%2], id), o, fmt.Sprint(n))
		}
		rec, err := find(t, rs[1], id).Close(t.Context(), Claim{}, nil)
		if err != nil || rec.Status != c.want {
			t.Errorf("%v: %v, %v, want %s", c.outcomes, rec, err, c.want)
		}
		if _, err := rs[0].Find(t.Context(), id); err == nil {
			eventually(t, "the other proxy knows of the end", func() bool { _, err := rs[0].Get(id); return err != nil })
		}
		if _, err := rs[0].Find(t.Context(), id); !errors.Is(err, ErrEnded) {
			t.Errorf("looked for at the other proxy: %v", err)
		}
	}
}

// A close waits for a call that another proxy holds, and aborts it when it has waited for long enough.
func TestSharedCloseWaits(t *testing.T) {
	rs, st := peers(t, 2)
	create(t, rs[0], "a")
	l := find(t, rs[1], "a")
	aborted := make(chan error, 1)
	ticket, err := l.Admit(t.Context(), "h", false, func(cause error) { aborted <- cause })
	if err != nil {
		t.Fatal(err)
	}
	if s, err := rs[0].Stand(t.Context(), "a"); err != nil || s.Counts == nil || s.Counts.InFlight != 1 || s.Counts.Calls != 1 {
		t.Errorf("standing, at the other proxy: %+v, %v", s, err)
	}
	patience, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() {
		rec, err := find(t, rs[0], "a").Close(patience, Claim{}, nil)
		if err == nil && rec.Status != record.Failed {
			err = fmt.Errorf("the session is %s", rec.Status)
		}
		closed <- err
	}()
	if cause := <-aborted; !errors.Is(cause, ErrCancelled) {
		t.Errorf("aborted because %v", cause)
	}
	if _, err := l.Admit(t.Context(), "x", false, func(error) {}); !errors.Is(err, ErrEnded) {
		t.Errorf("a call of a session that another proxy is ending: %v", err)
	}
	select {
	case err := <-closed:
		t.Fatalf("closed before the call was recorded: %v", err)
	default:
	}
	c := &record.Call{Session: "a", Number: ticket.Number, Outcome: record.Cancelled, Forwarded: true}
	if err := <-st[1].Append(c); err != nil {
		t.Fatal(err)
	}
	ticket.End(c)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// Of many that end a session at the same time, through several proxies, one does.
func TestSharedCloseOnce(t *testing.T) {
	rs, st := peers(t, 3)
	create(t, rs[0], "a")
	call(t, st[0], find(t, rs[0], "a"), record.Complete, "")
	var mu sync.Mutex
	var wg sync.WaitGroup
	ends := 0
	for i := range 9 {
		wg.Go(func() {
			l, err := rs[i%3].Find(t.Context(), "a")
			if err == nil {
				_, err = l.Close(t.Context(), Claim{}, nil)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ends++
			} else if !errors.Is(err, ErrEnded) {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	if ends != 1 {
		t.Errorf("%d of 9 ended it", ends)
	}
}

func TestSharedDuplicateIDs(t *testing.T) {
	rs, _ := peers(t, 2)
	spec := func(hash string) *record.Session {
		return &record.Session{ID: "a", Spec: record.Spec{RequestHash: hash}}
	}
	first, err := rs[0].Create(t.Context(), spec("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := rs[1].Create(t.Context(), spec("x"), nil)
	if err != nil || again.Record().Instance != first.Record().Instance {
		t.Errorf("the same request at another proxy: %v", err)
	}
	if _, err := rs[1].Create(t.Context(), spec("y"), nil); !errors.Is(err, ErrConflict) {
		t.Errorf("another request for the same id: %v", err)
	}
	if err := rs[1].Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first proxy forgets it", func() bool { _, err := rs[0].Get("a"); return errors.Is(err, ErrUnknown) })
	if _, err := rs[0].Create(t.Context(), spec("y"), nil); err != nil {
		t.Errorf("the id is free again: %v", err)
	}
}

func TestSharedPolicyRecordAndEvents(t *testing.T) {
	rs, st := peers(t, 2)
	f := rs[1].Events().Follow(events.ID{})
	defer f.Close()
	eventually(t, "the other proxy makes events", rs[0].Events().Awake)
	if err := rs[0].SetPolicy(t.Context(), 7); err != nil || *rs[0].Policy() != 7 {
		t.Fatal(err)
	}
	eventually(t, "the other proxy knows the weights", func() bool { v := rs[1].Policy(); return v != nil && *v == 7 })
	l := create(t, rs[0], "a")
	other := find(t, rs[1], "a")
	call(t, st[0], l, record.Complete, "")
	if _, err := rs[1].Update(t.Context(), "a", func(s *record.Session) error { s.CaptureFailed = "told"; return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the record is the same everywhere", func() bool { return l.Record().CaptureFailed == "told" && other.Record().CaptureFailed == "told" })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var kinds []events.Kind
	for buf := make([]events.Event, 1); len(kinds) < 3; {
		n, err := f.Next(ctx, buf)
		if err != nil {
			t.Fatalf("after %v: %v", kinds, err)
		}
		for _, e := range buf[:n] {
			kinds = append(kinds, e.Kind)
		}
	}
	if want := []events.Kind{events.SessionOpened, events.CallStarted, events.TurnRecorded}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("the other proxy shows %v, want %v", kinds, want)
	}
	if idle, err := rs[1].Idle(t.Context(), 0); err != nil || len(idle) != 1 {
		t.Errorf("idle: %d, %v", len(idle), err)
	}
}

// While the database is away, calls of a session that is known go on; that they could not be recorded is noted on it when
// the database is back.
func TestSharedOutage(t *testing.T) {
	rs, st := peers(t, 1)
	l := create(t, rs[0], "a")
	rs[0].cluster.outage.Store(true) // it has been away for a while: no call waits for long
	if err := server.Halt(true); err != nil {
		t.Fatal(err)
	}
	ticket, err := l.Admit(t.Context(), "h", false, func(error) {})
	if err != nil || ticket.Number != 0 || !ticket.Forwarded() {
		t.Fatalf("%+v, %v", ticket, err)
	}
	c := &record.Call{Session: "a", Number: ticket.Number, Outcome: record.Complete}
	if err := <-st[0].Append(c); err == nil {
		t.Error("a call without a number was recorded")
	}
	ticket.Lost()
	if _, err := l.Update(t.Context(), func(s *record.Session) { s.CaptureFailed = "lost" }); err == nil {
		t.Error("written, although the database is away")
	}
	ticket.End(c)
	if l.Record().CaptureFailed != "lost" {
		t.Error("the change does not stand in memory")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is marked", func() bool {
		s, err := st[0].Session(t.Context(), "a")
		return err == nil && s.CaptureFailed == "lost"
	})
}
