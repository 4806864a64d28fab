package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
	"captureproxy/store"
)

var ctx = context.Background()

func wantErr(t TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func get(t TB, s store.Store, id string) *record.Session {
	t.Helper()
	r, err := s.Session(ctx, id)
	if err != nil {
		t.Fatalf("Session(%q): %v", id, err)
	}
	return r
}

func testCreateAndGet(t *testing.T, s store.Store) {
	Create(t, s, Session(1), Session(2))
	same(t, "session", get(t, s, Session(1).ID), Session(1))
	same(t, "session", get(t, s, Session(2).ID), Session(2))
	CheckCalls(t, s, Session(1).ID)
	if err := s.Healthy(); err != nil {
		t.Fatalf("Healthy: %v", err)
	}
}

func testCreateTwice(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	other := Session(1)
	other.Instance = "other"
	wantErr(t, "second create", s.CreateSession(ctx, other), store.ErrExists)
	same(t, "session", get(t, s, other.ID), Session(1))
}

func testPut(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	closed, reward := start.Add(time.Hour), -0.25
	r := Session(1)
	r.Status, r.ClosedAt, r.Outcome, r.Reward = record.Completed, &closed, &record.Verdict{Status: "completed"}, &reward
	r.Metadata = map[string]json.RawMessage{"task": json.RawMessage(`{"n": 1.0}`)}
	if err := s.PutSession(ctx, r); err != nil {
		t.Fatal(err)
	}
	same(t, "session", get(t, s, r.ID), r)

	r.Metadata = nil
	if err := s.PutSession(ctx, r); err != nil {
		t.Fatal(err)
	}
	same(t, "session after the second put", get(t, s, r.ID), r)
}

func testNotFound(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	_, err := s.Session(ctx, "none")
	wantErr(t, "Session", err, store.ErrNotFound)
	_, err = s.Calls(ctx, "none")
	wantErr(t, "Calls", err, store.ErrNotFound)
	_, err = s.Body(ctx, "none", 1)
	wantErr(t, "Body", err, store.ErrNotFound)
	_, err = s.Body(ctx, Session(1).ID, 1)
	wantErr(t, "Body of no call", err, store.ErrNotFound)
	wantErr(t, "PutSession", s.PutSession(ctx, Session(2)), store.ErrNotFound)
	wantErr(t, "DeleteSession", s.DeleteSession(ctx, "none"), store.ErrNotFound)
	wantErr(t, "Append", <-s.Append(Call(Session(2), 1)), store.ErrNotFound)
}

func testSessionIsACopy(t *testing.T, s store.Store) {
	r := Session(1)
	r.Metadata = map[string]json.RawMessage{"a": json.RawMessage(`1`)}
	Create(t, s, r)
	r.Metadata["a"][0] = '2'
	got := get(t, s, r.ID)
	got.Metadata["a"][0] = '3'
	got.Status = record.Failed
	want := Session(1)
	want.Metadata = map[string]json.RawMessage{"a": json.RawMessage(`1`)}
	same(t, "session", get(t, s, r.ID), want)
}

func testAnySession(t *testing.T, s store.Store) {
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		r := AnySession(n).Draw(t, "session")
		Create(t, s, r)
		same(t, "session", get(t, s, r.ID), r)
		again := AnySession(n).Draw(t, "new record")
		if err := s.PutSession(ctx, again); err != nil {
			t.Fatal(err)
		}
		same(t, "session", get(t, s, r.ID), again)
	})
}

func list(t TB, s store.Store, f store.Filter) (ids []string, next string) {
	t.Helper()
	sessions, next, err := s.Sessions(ctx, f)
	if err != nil {
		t.Fatalf("Sessions(%+v): %v", f, err)
	}
	for _, r := range sessions {
		ids = append(ids, r.ID)
	}
	return ids, next
}

func testFilters(t *testing.T, s store.Store) {
	for n := range 4 {
		r := Session(n)
		r.Spec.Group = &record.Group{ID: fmt.Sprintf("g%d", n/2)}
		r.Spec.Env = &record.Env{ID: fmt.Sprintf("e%d", n%2), Name: "g0"}
		r.Spec.Run = json.RawMessage(fmt.Sprintf(`{"kind": "train", "id": "r%d"}`, n%3))
		Create(t, s, r)
		if n == 3 {
			r.Status = record.Expired
			if err := s.PutSession(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	Create(t, s, Session(4)) // of no group, run or environment
	tests := []struct {
		filter store.Filter
		want   []string
	}{
		{store.Filter{}, []string{"s0004", "s0003", "s0002", "s0001", "s0000"}},
		{store.Filter{Status: "running"}, []string{"s0004", "s0002", "s0001", "s0000"}},
		{store.Filter{Status: "expired"}, []string{"s0003"}},
		{store.Filter{Status: "failed"}, nil},
		{store.Filter{Group: "g0"}, []string{"s0001", "s0000"}},
		{store.Filter{Env: "e1"}, []string{"s0003", "s0001"}},
		{store.Filter{Run: "r0"}, []string{"s0003", "s0000"}},
		{store.Filter{Run: "r0", Status: "running"}, []string{"s0000"}},
		{store.Filter{Since: Session(2).CreatedAt}, []string{"s0004", "s0003", "s0002"}},
		{store.Filter{Since: Session(2).CreatedAt.Add(time.Microsecond), Group: "g1"}, []string{"s0003"}},
		{store.Filter{Since: Session(9).CreatedAt}, nil},
		{store.Filter{Limit: 2}, []string{"s0004", "s0003"}},
		{store.Filter{Limit: 9}, []string{"s0004", "s0003", "s0002", "s0001", "s0000"}},
	}
	for _, test := range tests {
		if got, _ := list(t, s, test.filter); !slices.Equal(got, test.want) {
			t.Errorf("Sessions(%+v) = %v, want %v", test.filter, got, test.want)
		}
	}
}

func testPaging(t *testing.T, s store.Store) {
	var want []string
	for n := range 10 {
		r := Session(n)
		r.CreatedAt = start.Add(time.Duration(n/3) * time.Second) // ties go by id
		Create(t, s, r)
		want = append(want, r.ID)
	}
	slices.Reverse(want)
	for limit := 1; limit <= 11; limit++ {
		f := store.Filter{Limit: limit, Status: "running"}
		var got []string
		for {
			ids, next := list(t, s, f)
			got = append(got, ids...)
			if next == "" {
				break
			}
			if len(ids) != limit {
				t.Fatalf("limit %d: a page of %d that is not the last", limit, len(ids))
			}
			f.After = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

func testPagingWhileChanging(t *testing.T, s store.Store) {
	for n := range 6 {
		Create(t, s, Session(n))
	}
	first, next := list(t, s, store.Filter{Limit: 2})
	Create(t, s, Session(6))
	for _, id := range []string{first[1], Session(3).ID} { // the cursor's own session, and one to come
		if err := s.DeleteSession(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	rest, _ := list(t, s, store.Filter{After: next})
	if want := []string{"s0002", "s0001", "s0000"}; !slices.Equal(rest, want) {
		t.Fatalf("the rest is %v, want %v", rest, want)
	}
}

func testBadCursor(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	for _, after := range []string{"x", "..", "a.b.c", "1.x.s"} {
		_, _, err := s.Sessions(ctx, store.Filter{After: after})
		wantErr(t, "Sessions after "+after, err, store.ErrBadCursor)
	}
}

func testContexts(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Session(ended, Session(1).ID)
	wantErr(t, "Session", err, context.Canceled)
	_, _, err = s.Sessions(ended, store.Filter{})
	wantErr(t, "Sessions", err, context.Canceled)
	_, err = s.Calls(ended, Session(1).ID)
	wantErr(t, "Calls", err, context.Canceled)
	wantErr(t, "CreateSession", s.CreateSession(ended, Session(2)), context.Canceled)
	wantErr(t, "PutSession", s.PutSession(ended, Session(1)), context.Canceled)
	wantErr(t, "DeleteSession", s.DeleteSession(ended, Session(1).ID), context.Canceled)
}

func testClose(t *testing.T, s store.Store) {
	Create(t, s, Session(1))
	done := s.Append(Call(Session(1), 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("what was accepted before Close: %v", err)
	}
	wantErr(t, "CreateSession", s.CreateSession(ctx, Session(2)), store.ErrClosed)
	wantErr(t, "Append", <-s.Append(Call(Session(1), 2)), store.ErrClosed)
	_, err := s.Session(ctx, Session(1).ID)
	wantErr(t, "Session", err, store.ErrClosed)
	_, _, err = s.Sessions(ctx, store.Filter{})
	wantErr(t, "Sessions", err, store.ErrClosed)
	wantErr(t, "Healthy", s.Healthy(), store.ErrClosed)
}
