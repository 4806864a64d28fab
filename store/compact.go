package store

import (
	"errors"
	"fmt"
)

// moveAtOnce is how many bytes of frames a compaction has under way: few enough that calls do not wait behind it.
const moveAtOnce = 1 << 20

// movedFrame is a frame that is written again at the end of the log.
type movedFrame struct {
	frameAt
	from location
}

// reclaim removes segments of which nothing is needed any more, and has the compactor look for mostly dead ones. The
// writer goroutine calls it. A segment that cannot be removed costs space and nothing else; it is tried again later.
func (l *Log) reclaim() {
	for {
		l.mu.RLock()
		g := l.index.unused()
		l.mu.RUnlock()
		if g == nil {
			break
		}
		// The name must be gone for good before deletions of its sessions are forgotten, lest they come back.
		err := l.fs.remove(g.path)
		if err == nil {
			err = l.fs.syncDir(l.dir)
		}
		l.mu.Lock()
		l.reclaimErr = err
		if err == nil {
			l.index.drop(g)
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
		_ = g.release() // of a file that is gone
	}
	select {
	case l.wakeCompactor <- struct{}{}:
	default: // it will look anyway
	}
}

// compactor copies the live frames out of mostly dead segments until stop is closed.
func (l *Log) compactor(stop <-chan struct{}) {
	defer close(l.compacted)
	for {
		select {
		case <-stop:
			return
		case <-l.wakeCompactor:
		}
		for g := l.mostlyDead(); g != nil; g = l.mostlyDead() {
			if err := l.compact(g, stop); err != nil {
				break // the next deletion wakes us again
			}
		}
	}
}

// mostlyDead returns a segment that is worth copying, for its reader.
func (l *Log) mostlyDead() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, g := range l.index.segments {
		if g.sealed && !g.damaged && g.live > 0 && g.live < g.end/4 {
			g.refs.Add(1)
			return g
		}
	}
	return nil
}

var errStopped = errors.New("stopped")

func (l *Log) compact(g *segment, stop <-chan struct{}) (err error) {
	defer func() { err = errors.Join(err, g.release()) }()
	data := make([]byte, g.end)
	if _, err := g.f.ReadAt(data, 0); err != nil {
		return l.keep(g, err)
	}
	found := scan(data, g.salt, true)
	if len(found.bad) > 0 {
		return l.keep(g, ErrDamaged)
	}
	for frames := found.frames; len(frames) > 0; {
		select {
		case <-stop:
			return errStopped
		default:
		}
		var moves []*op
		var bytes int
		for len(frames) > 0 && bytes < moveAtOnce {
			f := frames[0]
			frames = frames[1:]
			m := &movedFrame{f, location{g, uint32(f.offset), uint32(f.end() - f.offset)}}
			if l.isLive(m) {
				moves = append(moves, &op{kind: opMove, moved: m, size: int64(len(f.payload)), done: make(chan error, 1)})
				bytes += len(f.payload)
			}
		}
		if err := l.doAll(moves); err != nil {
			return err
		}
	}
	l.mu.RLock()
	left := g.live
	l.mu.RUnlock()
	if left > 0 { // not to be tried for ever
		return l.keep(g, fmt.Errorf("%d bytes of it cannot be found", left))
	}
	return nil
}

// keep marks a segment as one that is never removed.
func (l *Log) keep(g *segment, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.damaged = true
	return fmt.Errorf("store: %s is not compacted: %w", g.path, err)
}

func (l *Log) doAll(ops []*op) error {
	var errs []error
	for i, o := range ops {
		if err := l.queue.put(o); err != nil {
			errs, ops = append(errs, err), ops[:i]
			break
		}
	}
	for _, o := range ops {
		errs = append(errs, <-o.done)
	}
	return errors.Join(errs...)
}

func (l *Log) isLive(m *movedFrame) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.index.where(m) == m.from
}

// where returns the place of the frame that counts in place of m; nowhere when none does.
func (x *index) where(m *movedFrame) location {
	if m.typ == frameDelete {
		if g := x.graves[m.session]; g != nil && g.live {
			return g.at
		}
		return location{}
	}
	s := x.byNumber[m.session]
	switch {
	case s == nil:
	case m.typ == frameSession:
		return s.at
	case m.typ == frameCall:
		if i, found := s.call(callNumber(m.payload)); found {
			return s.calls[i].at
		}
	}
	return location{}
}

// moved enters the new place of a frame, unless it died meanwhile.
func (x *index) moved(m *movedFrame, at location) {
	if x.where(m) != m.from {
		return
	}
	switch s := x.byNumber[m.session]; m.typ {
	case frameSession:
		x.setRecord(s, at)
	case frameCall:
		x.setCall(s, callAt{int32(callNumber(m.payload)), m.seq, at})
	case frameDelete:
		x.dig(m.session, at, x.graves[m.session].holds)
	}
}

// callNumber reads the number at the start of a call's payload; -1 when there is none.
func callNumber(payload []byte) int {
	r := reader{b: payload}
	if n := r.number(); r.err == nil {
		return n
	}
	return -1
}

func (b *batch) move(o *op, s *staged) error {
	m := o.moved
	if b.index.where(m) != m.from {
		return nil
	}
	if owner := b.index.byNumber[m.session]; owner != nil {
		if now, staged := b.sessions[owner.id]; staged && now != owner {
			return nil // deleted in this batch: a frame behind its deletion would outlive it
		}
	}
	b.frame(s, m.typ, m.session, m.seq)
	b.buf = append(b.buf, m.payload...)
	return nil
}
