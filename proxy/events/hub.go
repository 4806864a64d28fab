// Package events tells what happens to sessions as it happens, to whoever follows: pages and trainers, by way of
// GET /events.
//
// A [Hub] keeps the last events in a ring. Followers read from it, each at a place of its own, so one that is slow takes
// no memory and holds nobody up: when the ring has gone round it is told so and has to begin anew. One that comes back
// names the last event it saw and goes on behind it, as long as the ring still holds that event.
//
// Calls must not pay for what nobody reads. A hub sleeps until somebody follows, and again some minutes after the last
// follower left; publishing to a sleeping hub is one atomic load, see [Hub.Awake]. Publishing to one that is awake takes
// a short lock, and no memory.
//
// Several proxies that share a store share their events: [Hub.Share] has them sent through something that gives every
// proxy all events in one order, and [Hub.Deliver] takes them from there. An event's id then names its place in every
// proxy's ring.
package events

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of a follower.
var (
	// ErrSlow: events were overwritten before they were read.
	ErrSlow = errors.New("the follower is too slow")
	// ErrClosed: the proxy shuts down.
	ErrClosed = errors.New("no more events: the proxy is shutting down")
)

const (
	// ringSize is how many events are kept.
	ringSize = 4096
	// linger is how long after its last follower a hub stays awake, for him to come back.
	linger = 5 * time.Minute
)

// Hub gives events from those who make them to those who follow. It is safe for concurrent use.
type Hub struct {
	awake atomic.Bool

	mu        sync.Mutex
	origin    string // of the events made here; another one after each sleep, so that what was missed is noticed
	seq       uint64
	ring      []Event // nil while asleep
	next      uint64  // position of the next event; the ring holds those since next-ringSize
	first     uint64  // position of the oldest one that the ring ever held since it woke up
	more      chan struct{}
	followers int
	bedtime   *time.Timer
	share     func(Event)
	woken     func()
	closed    bool
}

// NewHub returns a hub that sleeps.
func NewHub() *Hub { return &Hub{origin: newOrigin()} }

func newOrigin() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (Go 1.24)
	return hex.EncodeToString(b[:])
}

// Share has events sent by send instead of being shown here at once; send must not block. woken is called whenever a
// follower comes, so that other proxies can be woken too.
func (h *Hub) Share(send func(Event), woken func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.share, h.woken = send, woken
}

// Awake reports whether events are wanted at all. Nobody needs to make one for a hub that sleeps.
func (h *Hub) Awake() bool { return h.awake.Load() }

// Publish shows an event to whoever follows.
func (h *Hub) Publish(e Event) {
	if !h.Awake() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	e.ID = ID{h.origin, h.seq}
	if h.share != nil {
		h.share(e)
		return
	}
	h.put(e)
}

// Deliver shows an event that came from some proxy, this one included.
func (h *Hub) Deliver(e Event) {
	if !h.Awake() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(e)
}

// Lose shows that events are missing here.
func (h *Hub) Lose(now time.Time) {
	if !h.Awake() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	h.put(Event{ID: ID{h.origin, h.seq}, Kind: Gap, Time: now})
}

func (h *Hub) put(e Event) {
	if h.ring == nil || h.closed {
		return
	}
	h.ring[h.next%ringSize] = e
	h.next++
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}

// Wake has events made for some minutes, as a follower does: there is one at another proxy.
func (h *Hub) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake()
}

func (h *Hub) wake() {
	if h.closed {
		return
	}
	if h.ring == nil {
		h.ring, h.first = make([]Event, ringSize), h.next
	}
	h.awake.Store(true)
	if h.bedtime == nil {
		h.bedtime = time.AfterFunc(linger, h.sleep)
		return
	}
	h.bedtime.Reset(linger)
}

func (h *Hub) sleep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers > 0 {
		h.bedtime.Reset(linger)
		return
	}
	h.awake.Store(false)
	h.ring, h.origin, h.seq = nil, newOrigin(), 0
}

// Followed reports whether somebody follows here.
func (h *Hub) Followed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.followers > 0
}

// Close ends all followers once they have seen what there is.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	h.awake.Store(false)
	if h.bedtime != nil {
		h.bedtime.Stop()
	}
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}

// Follower reads events at a place of its own. One goroutine owns it.
type Follower struct {
	hub  *Hub
	at   uint64
	lost bool // what it wanted to go on behind is not there any more
}

// Follow begins behind the event that after names; with a zero ID, or one that the ring does not hold, behind the
// newest. In the latter case a gap comes first.
func (h *Hub) Follow(after ID) *Follower {
	h.mu.Lock()
	h.wake()
	h.followers++
	f := &Follower{hub: h, at: h.next}
	if after != (ID{}) {
		at, found := h.find(after)
		if f.lost = !found; found {
			f.at = at + 1
		}
	}
	woken := h.woken
	h.mu.Unlock()
	if woken != nil {
		woken()
	}
	return f
}

// find returns an event's position. It looks from the newest on, which is where one who was gone for a moment was.
func (h *Hub) find(id ID) (uint64, bool) {
	for at := h.next; at > h.oldest(); at-- {
		if h.ring[(at-1)%ringSize].ID == id {
			return at - 1, true
		}
	}
	return 0, false
}

func (h *Hub) oldest() uint64 {
	if h.ring == nil {
		return h.next
	}
	return max(h.first, h.next-min(h.next, ringSize))
}

// Next waits for events and copies them into buf, oldest first. It fails with ctx's error, ErrSlow or ErrClosed.
func (f *Follower) Next(ctx context.Context, buf []Event) (int, error) {
	for {
		n, more, err := f.take(buf)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (f *Follower) take(buf []Event) (n int, more <-chan struct{}, err error) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.lost {
		f.lost = false
		buf[0] = Event{Kind: Gap, Time: time.Now()}
		return 1, nil, nil
	}
	if f.at < h.oldest() {
		return 0, nil, ErrSlow
	}
	for n < len(buf) && f.at < h.next {
		buf[n] = h.ring[f.at%ringSize]
		n, f.at = n+1, f.at+1
	}
	if n == 0 && h.closed {
		return 0, nil, ErrClosed
	}
	if n == 0 && h.more == nil {
		h.more = make(chan struct{})
	}
	return n, h.more, nil
}

// Close gives the follower back.
func (f *Follower) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.hub.followers--
	if f.hub.bedtime != nil && !f.hub.closed {
		f.hub.bedtime.Reset(linger)
	}
}
