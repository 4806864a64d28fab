package events

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func publish(h *Hub, calls ...int) {
	for _, n := range calls {
		h.Publish(Event{Kind: CallStarted, Session: "s", Call: n})
	}
}

// read takes n events.
func read(t *testing.T, f *Follower, n int) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var all []Event
	for buf := make([]Event, 3); len(all) < n; {
		got, err := f.Next(ctx, buf[:min(len(buf), n-len(all))])
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(all), n, err)
		}
		all = append(all, buf[:got]...)
	}
	return all
}

func TestFollowersSeeAllInOrder(t *testing.T) {
	h := NewHub()
	publish(h, 1) // nobody follows
	a := h.Follow(ID{})
	publish(h, 2, 3)
	b := h.Follow(ID{})
	publish(h, 4, 5, 6)
	for name, c := range map[string]struct {
		f    *Follower
		want []int
	}{"the first": {a, []int{2, 3, 4, 5, 6}}, "the second": {b, []int{4, 5, 6}}} {
		for i, e := range read(t, c.f, len(c.want)) {
			if e.Call != c.want[i] {
				t.Errorf("%s follower: event %d is of call %d, want %d", name, i, e.Call, c.want[i])
			}
		}
	}
}

func TestResume(t *testing.T) {
	h := NewHub()
	f := h.Follow(ID{})
	publish(h, 1, 2, 3)
	seen := read(t, f, 2)
	f.Close()
	publish(h, 4)
	back := h.Follow(ParseID(seen[1].ID.String()))
	for i, e := range read(t, back, 2) {
		if e.Call != 3+i {
			t.Errorf("after a resume: call %d, want %d", e.Call, 3+i)
		}
	}
	for name, id := range map[string]ID{"of another process": {"other", 2}, "of the future": {seen[0].ID.Origin, 99}, "without form": ParseID("x-y")} {
		f := h.Follow(id)
		publish(h, 5)
		want := []Kind{Gap, CallStarted}
		if id == (ID{}) {
			want = want[1:]
		}
		for i, e := range read(t, f, len(want)) {
			if e.Kind != want[i] {
				t.Errorf("resumed behind an id %s: event %d is %s, want %s", name, i, e.Kind, want[i])
			}
		}
	}
}

func TestSlowFollowerIsDropped(t *testing.T) {
	h := NewHub()
	slow, quick := h.Follow(ID{}), h.Follow(ID{})
	publish(h, 1)
	first := read(t, quick, 1)[0].ID
	for n := range ringSize {
		publish(h, n)
		read(t, quick, 1)
	}
	if _, err := slow.Next(t.Context(), make([]Event, 1)); !errors.Is(err, ErrSlow) {
		t.Errorf("a follower that the ring has passed: %v, want ErrSlow", err)
	}
	if e := read(t, h.Follow(first), 1)[0]; e.Kind != Gap {
		t.Errorf("resumed behind an overwritten event: %s, want a gap", e.Kind)
	}
}

func TestCloseEndsFollowersBehindTheLastEvent(t *testing.T) {
	h := NewHub()
	f := h.Follow(ID{})
	publish(h, 1)
	done := make(chan error, 1)
	read(t, f, 1)
	go func() {
		_, err := f.Next(context.Background(), make([]Event, 1))
		done <- err
	}()
	h.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("a follower of a closed hub: %v", err)
	}
	publish(h, 2)
	h.Close()
}

func TestSleepForgets(t *testing.T) {
	h := NewHub()
	f := h.Follow(ID{})
	publish(h, 1)
	id := read(t, f, 1)[0].ID
	h.sleep()
	if !h.Awake() {
		t.Fatal("asleep although somebody follows")
	}
	f.Close()
	h.sleep()
	if h.Awake() {
		t.Fatal("awake although nobody follows")
	}
	publish(h, 2)
	if e := read(t, h.Follow(id), 1)[0]; e.Kind != Gap {
		t.Errorf("after a sleep: %s, want a gap", e.Kind)
	}
}

// Nobody pays for what nobody reads, and little for what somebody does.
func TestPublishingTakesNoMemory(t *testing.T) {
	h := NewHub()
	e := Event{Kind: CallStarted, Session: "s"}
	if n := testing.AllocsPerRun(100, func() { h.Publish(e) }); n != 0 {
		t.Errorf("asleep: %v allocations", n)
	}
	h.Follow(ID{})
	if n := testing.AllocsPerRun(100, func() { h.Publish(e) }); n != 0 {
		t.Errorf("awake: %v allocations", n)
	}
}

// Hubs that share their events show all of them in one order, and an event's id is good at each of them.
func TestSharedEvents(t *testing.T) {
	hubs := []*Hub{NewHub(), NewHub(), NewHub()}
	var order sync.Mutex
	for _, h := range hubs {
		h.Share(func(e Event) {
			go func() { // as through a database: later, and in one order
				order.Lock()
				defer order.Unlock()
				for _, other := range hubs {
					other.Deliver(e)
				}
			}()
		}, func() {
			for _, other := range hubs {
				other.Wake()
			}
		})
	}
	followers := []*Follower{hubs[0].Follow(ID{}), hubs[1].Follow(ID{}), hubs[2].Follow(ID{})}
	for n := range 30 {
		publish(hubs[n%3], n)
	}
	want := read(t, followers[0], 30)
	for i, f := range followers[1:] {
		for at, e := range read(t, f, 30) {
			if e != want[at] {
				t.Fatalf("hub %d shows %v at place %d, want %v", i+1, e.ID, at, want[at].ID)
			}
		}
	}
	for at, e := range read(t, hubs[2].Follow(want[9].ID), 20) {
		if e != want[10+at] {
			t.Fatalf("resumed at another hub: %v, want %v", e.ID, want[10+at].ID)
		}
	}
}

func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID{newOrigin(), rapid.Uint64().Draw(t, "seq")}
		if got := ParseID(id.String()); got != id {
			t.Fatalf("%v reads as %v", id, got)
		}
		ParseID(rapid.String().Draw(t, "anything"))
	})
}

func TestFilter(t *testing.T) {
	e := &Event{Kind: Scored, Session: "s", Group: "g", Run: "r"}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true}, {Filter{Session: "s"}, true}, {Filter{Group: "g", Run: "r"}, true},
		{Filter{Session: "x"}, false}, {Filter{Group: "x"}, false}, {Filter{Session: "s", Run: "x"}, false},
	} {
		if c.f.Match(e) != c.want {
			t.Errorf("%+v: %t", c.f, !c.want)
		}
		if !c.f.Match(&Event{Kind: Gap}) {
			t.Errorf("%+v leaves out a gap", c.f)
		}
	}
}
