package store

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"captureproxy/internal/record"
)

// index knows where everything stands in the log. Log.mu guards it; only the writer goroutine changes it, so that one
// may read it without the lock.
type index struct {
	sessions map[string]*session
	byNumber map[uint32]*session
	order    []*session // by creation, then id
	segments []*segment // by number
	graves   map[uint32]*grave
}

// session is what the index holds of one session.
type session struct {
	id       string
	instance string
	number   uint32
	created  time.Time

	// Owned by the writer goroutine.
	nextVersion uint32 // of the record
	nextSeq     uint32 // of the next call
	dictionary  *dictionary

	// Guarded by Log.mu.
	status, group, run, env string
	at                      location   // the record
	calls                   []callAt   // by number
	holds                   []*segment // that have frames of it, dead ones too
	damage                  *DamageError
}

type callAt struct {
	number int32
	seq    uint32
	at     location
}

// grave is a deletion that must be remembered as long as another segment has frames of the session.
type grave struct {
	at    location
	holds []*segment
	live  bool
}

func newIndex() *index {
	return &index{sessions: map[string]*session{}, byNumber: map[uint32]*session{}, graves: map[uint32]*grave{}}
}

// describe takes over what lists are filtered by.
func (s *session) describe(r *record.Session) {
	l := LabelsOf(r)
	s.status, s.group, s.env, s.run = string(r.Status), l.Group, l.Env, l.Run
}

func (s *session) hold(g *segment) {
	if !slices.Contains(s.holds, g) {
		s.holds = append(s.holds, g)
	}
}

// call finds a call by number.
func (s *session) call(number int) (i int, found bool) {
	return slices.BinarySearchFunc(s.calls, int32(number), func(c callAt, n int32) int { return cmp.Compare(c.number, n) })
}

func byCreation(a, b *session) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id, b.id))
}

func (x *index) add(s *session) {
	x.sessions[s.id] = s
	x.byNumber[s.number] = s
	i, _ := slices.BinarySearchFunc(x.order, s, byCreation)
	x.order = slices.Insert(x.order, i, s)
}

// setRecord says where a session's record stands now.
func (x *index) setRecord(s *session, at location) {
	if s.at.segment != nil {
		s.at.segment.live -= int64(s.at.length)
	}
	s.at = at
	at.segment.live += int64(at.length)
	s.hold(at.segment)
}

// setCall says where a call stands now.
func (x *index) setCall(s *session, c callAt) {
	i, found := s.call(int(c.number))
	if found {
		old := s.calls[i].at
		old.segment.live -= int64(old.length)
		s.calls[i] = c
	} else {
		s.calls = slices.Insert(s.calls, i, c)
	}
	c.at.segment.live += int64(c.at.length)
	s.hold(c.at.segment)
}

// bury removes a session; at is where its deletion stands.
func (x *index) bury(s *session, at location) {
	x.forget(s)
	x.dig(s.number, at, s.holds)
}

// forget takes a session out of the lists; its frames are dead.
func (x *index) forget(s *session) {
	delete(x.sessions, s.id)
	delete(x.byNumber, s.number)
	if i, found := slices.BinarySearchFunc(x.order, s, byCreation); found {
		x.order = slices.Delete(x.order, i, i+1)
	}
	s.at.segment.live -= int64(s.at.length)
	for _, c := range s.calls {
		c.at.segment.live -= int64(c.at.length)
	}
}

// dig remembers a deletion, or says where it stands now.
func (x *index) dig(number uint32, at location, holds []*segment) {
	if old := x.graves[number]; old != nil && old.live {
		old.at.segment.live -= int64(old.at.length)
	}
	x.graves[number] = &grave{at: at, holds: slices.Clone(holds), live: true}
	at.segment.live += int64(at.length)
	x.settle(number)
}

// settle lets go of a deletion that nothing needs any more. One that stands in the last segment with frames of its
// session goes when that segment goes.
func (x *index) settle(number uint32) {
	g := x.graves[number]
	elsewhere := slices.ContainsFunc(g.holds, func(s *segment) bool { return s != g.at.segment })
	if !elsewhere && g.live {
		g.live = false
		g.at.segment.live -= int64(g.at.length)
	}
	if len(g.holds) == 0 {
		delete(x.graves, number)
	}
}

// drop forgets a segment that was removed from disk.
func (x *index) drop(s *segment) {
	is := func(o *segment) bool { return o == s }
	x.segments = slices.DeleteFunc(x.segments, is)
	for _, o := range x.sessions {
		o.holds = slices.DeleteFunc(o.holds, is)
	}
	for number, g := range x.graves {
		if n := len(g.holds); n > 0 {
			if g.holds = slices.DeleteFunc(g.holds, is); len(g.holds) < n {
				x.settle(number)
			}
		}
	}
}

// unused returns a segment of which nothing is needed, nil when there is none.
func (x *index) unused() *segment {
	for _, s := range x.segments {
		if s.sealed && !s.damaged && s.live == 0 {
			return s
		}
	}
	return nil
}
