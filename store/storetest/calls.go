package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
	"captureproxy/store"
)

func testAppend(t *testing.T, s store.Store) {
	a, b := Session(1), Session(2)
	Create(t, s, a, b)
	Append(t, s, Call(a, 1), Call(b, 1), Call(a, 2))
	Append(t, s, Call(a, 3))
	CheckCalls(t, s, a.ID, Call(a, 1), Call(a, 2), Call(a, 3))
	CheckCalls(t, s, b.ID, Call(b, 1))
}

func testAppendTwice(t *testing.T, s store.Store) {
	a := Session(1)
	Create(t, s, a)
	other := Call(a, 1)
	other.Detail = "another attempt at recording the same call"
	Append(t, s, Call(a, 1), other) // while the first is under way
	Append(t, s, other)             // and after it
	CheckCalls(t, s, a.ID, Call(a, 1))
}

func testAppendOutOfOrder(t *testing.T, s store.Store) {
	a := Session(1)
	Create(t, s, a)
	for _, n := range []int{5, 1, 3, 1000, 2} {
		Append(t, s, Call(a, n))
	}
	CheckCalls(t, s, a.ID, Call(a, 1), Call(a, 2), Call(a, 3), Call(a, 5), Call(a, 1000))
}

func testAppendRefused(t *testing.T, s store.Store) {
	a := Session(1)
	Create(t, s, a)
	for _, number := range []int{0, -1} {
		if err := <-s.Append(Call(a, number)); err == nil {
			t.Errorf("a call numbered %d was taken", number)
		}
	}
	stranger := Call(a, 1)
	stranger.Instance = "another"
	wantErr(t, "a call of another instance", <-s.Append(stranger), store.ErrNotFound)
	anonymous := Call(a, 1)
	anonymous.Instance = ""
	Append(t, s, anonymous)
	CheckCalls(t, s, a.ID, Call(a, 1))
}

func testAnyCall(t *testing.T, s store.Store) {
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		session := Session(n)
		Create(t, s, session)
		var calls []*record.Call
		for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
			calls = append(calls, AnyCall(session, i+1).Draw(t, "call"))
		}
		Append(t, s, calls...)
		CheckCalls(t, s, session.ID, calls...)
	})
}

// testConversation grows a conversation in which each call repeats the one before, then goes back and takes another
// way, then samples several choices.
func testConversation(t *testing.T, s store.Store) {
	session := Session(1)
	Create(t, s, session)
	var calls []*record.Call
	var messages []json.RawMessage
	var prompt []int32
	for n := 1; n <= 30; n++ {
		if n == 20 {
			messages, prompt = messages[:15:15], prompt[:700:700]
		}
		messages = append(messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"message %d, long enough to be kept once"}`, n)))
		for range 90 {
			prompt = append(prompt, int32(len(prompt)*n))
		}
		c := Call(session, n)
		c.Messages = append([]json.RawMessage{}, messages...)
		c.Body, c.Cuts = Body(c.Messages)
		c.Choices[0].PromptIDs = append([]int32{}, prompt...)
		if n == 25 {
			second := c.Choices[0]
			second.Index = 1
			second.SampledIDs = []int32{7}
			c.Choices = append(c.Choices, second)
		}
		prompt = append(prompt, c.Choices[0].SampledIDs...)
		calls = append(calls, c)
		Append(t, s, c)
	}
	CheckCalls(t, s, session.ID, calls...)
}

// testSamePieceManyPlaces has one piece stand in the body, in messages, in tools and as an answer.
func testSamePieceManyPlaces(t *testing.T, s store.Store) {
	session := Session(1)
	Create(t, s, session)
	piece := json.RawMessage(`{"role":"assistant","content":"the very same bytes, many times"}`)
	var calls []*record.Call
	for n := 1; n <= 3; n++ {
		c := Call(session, n)
		c.Messages = []json.RawMessage{piece, piece, piece}
		c.Tools = []json.RawMessage{piece, piece}
		c.Body, c.Cuts = Body([]json.RawMessage{piece, piece})
		c.Choices[0].Message = piece
		calls = append(calls, c)
	}
	Append(t, s, calls...)
	CheckCalls(t, s, session.ID, calls...)
}

// testChangingBeginnings has parameters and a system prompt that change with every call, or with every other, in
// conversations that go on behind them, fork and start over.
func testChangingBeginnings(t *testing.T, s store.Store) {
	session := Session(1)
	Create(t, s, session)
	said := func(role string, n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"role":%q,"content":"what was said at %d, which is long enough"}`, role, n))
	}
	var calls []*record.Call
	var history []json.RawMessage
	for n := 1; n <= 24; n++ {
		history = append(history, said("user", n), said("assistant", n))
		switch n {
		case 9:
			history = append(history[:6:6], said("user", -n)) // a fork
		case 17:
			history = nil
		}
		c := Call(session, n)
		c.Messages = append([]json.RawMessage{said("system", n/2)}, history...)
		body, cuts := Body(c.Messages)
		head := fmt.Sprintf(`{"user":"call %d of many that differ in this",`, n)
		c.Body, c.Cuts = append([]byte(head), body[1:]...), nil
		for _, cut := range cuts {
			c.Cuts = append(c.Cuts, cut+len(head)-1)
		}
		for i := range c.Messages {
			c.Messages[i] = c.Body[c.Cuts[2*i]:c.Cuts[2*i+1]:c.Cuts[2*i+1]]
		}
		c.Tools = history[:min(n, len(history))]
		calls = append(calls, c)
	}
	Append(t, s, calls...)
	CheckCalls(t, s, session.ID, calls...)
	CheckPast(t, s, session.ID, calls...)
	_, err := s.Past(context.Background(), "nobody")
	wantErr(t, "the past of a session that is not there", err, store.ErrNotFound)
}

func testDelete(t *testing.T, s store.Store) {
	a, b := Session(1), Session(2)
	Create(t, s, a, b)
	Append(t, s, Call(a, 1), Call(b, 1))
	if err := s.DeleteSession(ctx, a.ID); err != nil {
		t.Fatal(err)
	}
	_, err := s.Session(ctx, a.ID)
	wantErr(t, "Session", err, store.ErrNotFound)
	_, err = s.Calls(ctx, a.ID)
	wantErr(t, "Calls", err, store.ErrNotFound)
	wantErr(t, "Append", <-s.Append(Call(a, 2)), store.ErrNotFound)
	wantErr(t, "PutSession", s.PutSession(ctx, a), store.ErrNotFound)
	wantErr(t, "DeleteSession", s.DeleteSession(ctx, a.ID), store.ErrNotFound)
	if ids, _ := list(t, s, store.Filter{}); len(ids) != 1 || ids[0] != b.ID {
		t.Fatalf("listed: %v, want %s alone", ids, b.ID)
	}
	CheckCalls(t, s, b.ID, Call(b, 1))
}

func testDeleteThenCreate(t *testing.T, s store.Store) {
	old := Session(1)
	Create(t, s, old)
	Append(t, s, Call(old, 1), Call(old, 2))
	if err := s.DeleteSession(ctx, old.ID); err != nil {
		t.Fatal(err)
	}
	again := Session(1)
	again.Instance = "again"
	Create(t, s, again)
	CheckCalls(t, s, again.ID)
	wantErr(t, "a call of the deleted session", <-s.Append(Call(old, 3)), store.ErrNotFound)
	wantErr(t, "the record of the deleted session", s.PutSession(ctx, old), store.ErrNotFound)
	Append(t, s, Call(again, 1))
	CheckCalls(t, s, again.ID, Call(again, 1))
}

func testConcurrency(t *testing.T, s store.Store) {
	const sessions, calls = 6, 8
	var wg sync.WaitGroup
	for n := range sessions {
		Create(t, s, Session(n))
		for i := range calls {
			wg.Go(func() {
				session := Session(n)
				done := s.Append(Call(session, i+1))
				if err := <-done; err != nil {
					t.Errorf("append: %v", err)
					return
				}
				got, err := s.Calls(ctx, session.ID)
				if err != nil {
					t.Errorf("calls: %v", err)
				}
				for _, c := range got {
					if c.Number == i+1 {
						return
					}
				}
				t.Errorf("call %d of %s is not read after it was acknowledged", i+1, session.ID)
			})
		}
		wg.Go(func() {
			for range 5 {
				if err := s.PutSession(ctx, Session(n)); err != nil {
					t.Errorf("put: %v", err)
				}
				if _, _, err := s.Sessions(ctx, store.Filter{Limit: 3}); err != nil {
					t.Errorf("list: %v", err)
				}
			}
		})
	}
	for n := sessions; n < 2*sessions; n++ { // others come and go meanwhile
		wg.Go(func() {
			session := Session(n)
			if err := s.CreateSession(ctx, session); err != nil {
				t.Errorf("create: %v", err)
			}
			first := s.Append(Call(session, 1))
			if err := s.DeleteSession(ctx, session.ID); err != nil {
				t.Errorf("delete: %v", err)
			}
			if err := <-first; err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("append beside a delete: %v", err)
			}
		})
	}
	wg.Wait()
	for n := range sessions {
		var want []*record.Call
		for i := range calls {
			want = append(want, Call(Session(n), i+1))
		}
		CheckCalls(t, s, Session(n).ID, want...)
	}
	if ids, _ := list(t, s, store.Filter{}); len(ids) != sessions {
		t.Errorf("%d sessions are listed, want %d", len(ids), sessions)
	}
}

func testConcurrentCreate(t *testing.T, s store.Store) {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = s.CreateSession(ctx, Session(1)) })
	}
	wg.Wait()
	created := 0
	for _, err := range errs {
		switch {
		case err == nil:
			created++
		case !errors.Is(err, store.ErrExists):
			t.Errorf("create: %v", err)
		}
	}
	if created != 1 {
		t.Errorf("%d of %d concurrent creates succeeded, want 1", created, len(errs))
	}
}
