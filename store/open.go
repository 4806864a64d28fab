package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"captureproxy/internal/record"
)

// loader rebuilds the index from the segments.
type loader struct {
	log      *Log
	seals    map[uint64]int64 // where segments end, by their successors' headers
	sessions map[uint32]*loading
	first    *DamageError  // the first damage
	lost     []lostSegment // by number

	// A running session may have lost its latest calls in a stretch of which nothing can be read, and only what was
	// written of it later shows that it has not.
	place   int          // in the log, counted in frames and stretches
	unknown *DamageError // the last such stretch
	at      int          // its place
}

// lostSegment is a segment of which nothing can be read.
type lostSegment struct {
	number uint64
	damage *DamageError
}

// loading is what is found of one session while segments are read.
type loading struct {
	record   location
	version  uint32
	calls    []callAt
	holds    []*segment
	deletion location
	damage   *DamageError
	place    int    // of the last frame
	lostCall uint32 // 1 + the highest seq of a call that is known to be lost
}

// load reads the directory and leaves the writer ready to go on.
func (l *Log) load(w *writer) error {
	ld := &loader{log: l, seals: map[uint64]int64{}, sessions: map[uint32]*loading{}}
	if err := ld.openSegments(w); err != nil {
		return err
	}
	var data []byte
	for i, g := range l.index.segments {
		var err error
		if data, err = readAll(g.f, data); err != nil {
			return fmt.Errorf("store: cannot read %s: %w", g.path, err)
		}
		last := i == len(l.index.segments)-1
		if err := ld.readSegment(g, data, last, w); err != nil {
			return fmt.Errorf("store: cannot repair the end of %s: %w", g.path, err)
		}
	}
	ld.passLost(math.MaxUint64)
	for _, number := range slices.Sorted(maps.Keys(ld.sessions)) {
		w.nextSession = max(w.nextSession, number+1)
		ld.enter(number, ld.sessions[number])
	}
	l.reclaim()
	return nil
}

// openSegments opens the files and reads their headers.
func (ld *loader) openSegments(w *writer) error {
	l := ld.log
	names, err := l.fs.list(l.dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		if number, ok := parseSegmentName(name); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		w.lastNumber = number
		if err := ld.openSegment(number); err != nil {
			return err
		}
	}
	return nil
}

func (ld *loader) openSegment(number uint64) error {
	l := ld.log
	path := filepath.Join(l.dir, segmentName(number))
	f, err := l.fs.open(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	g := &segment{number: number, path: path, f: f}
	g.refs.Store(1)
	h, err := readSegmentHeader(f)
	var version errVersion
	switch {
	case errors.As(err, &version):
		return errors.Join(fmt.Errorf("store: %s: %w", path, err), f.Close())
	case err == nil && h.number != number:
		err = fmt.Errorf("it is segment %d by its header; give it its old name", h.number)
	}
	if err != nil {
		return ld.unusable(f, number, path, err)
	}
	g.salt, g.old = h.salt, h.version < formatVersion
	l.index.segments = append(l.index.segments, g)
	if h.prev != 0 {
		ld.seals[h.prev] = int64(h.prevEnd)
	}
	return nil
}

func readSegmentHeader(f file) (segmentHeader, error) {
	size, err := f.size()
	if err != nil {
		return segmentHeader{}, err
	}
	b := make([]byte, min(size, segmentHeaderSize))
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return segmentHeader{}, err
	}
	return parseSegmentHeader(b)
}

// unusable deals with a segment whose header cannot be used: reports it, or removes it when a crash happened while it
// was made. Frames are written only once the header is on disk, so then there is nothing behind it.
func (ld *loader) unusable(f file, number uint64, path string, why error) error {
	data, err := readAll(f, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("store: cannot read %s: %w", path, err), f.Close())
	}
	if zeros(data[min(len(data), segmentHeaderSize):]) {
		return errors.Join(f.Close(), ld.log.fs.remove(path))
	}
	e := &DamageError{File: path, Length: int64(len(data)), Reason: why.Error()}
	ld.report(e)
	ld.lost = append(ld.lost, lostSegment{number, e})
	return f.Close()
}

// passLost notes the lost segments before a segment.
func (ld *loader) passLost(number uint64) {
	for len(ld.lost) > 0 && ld.lost[0].number < number {
		ld.doubt(ld.lost[0].damage)
		ld.lost = ld.lost[1:]
	}
}

// doubt notes a stretch that may have held calls of any session that was running.
func (ld *loader) doubt(e *DamageError) {
	ld.place++
	ld.unknown, ld.at = e, ld.place
}

// readAll returns a file's bytes, in b if they fit.
func readAll(f file, b []byte) ([]byte, error) {
	size, err := f.size()
	if err != nil {
		return b, err
	}
	b = slices.Grow(b[:0], int(size))[:size]
	if size == 0 {
		return b, nil
	}
	n, err := f.ReadAt(b, 0)
	if int64(n) == size {
		return b, nil
	}
	return b, err
}

// readSegment takes over what a segment holds.
func (ld *loader) readSegment(g *segment, data []byte, last bool, w *writer) error {
	ld.passLost(g.number)
	seal, sealed := ld.seals[g.number]
	missing := seal - int64(len(data))
	if sealed {
		data = data[:min(seal, int64(len(data)))]
	}
	found := scan(data, g.salt, sealed)
	bad := found.bad
	for _, f := range found.frames {
		for ; len(bad) > 0 && bad[0].from < f.offset; bad = bad[1:] {
			ld.bad(g, bad[0])
		}
		ld.frame(g, f)
	}
	for _, b := range bad {
		ld.bad(g, b)
	}
	if sealed && missing > 0 {
		ld.bad(g, span{from: int64(len(data)), to: seal})
	}
	g.end, g.filled, g.sealed = found.end, int64(len(data)), true
	w.sealed, w.sealedEnd = g.number, g.end
	if !last || g.damaged || g.old {
		return nil // a damaged or an old segment is left as it is
	}
	g.sealed, w.active = false, g
	if zeros(data[g.end:]) {
		return nil
	}
	// What a crash left of a batch that nobody was told of.
	if err := g.trim(); err != nil {
		return err
	}
	return g.f.datasync()
}

func (ld *loader) session(number uint32) *loading {
	s := ld.sessions[number]
	if s == nil {
		s = new(loading)
		ld.sessions[number] = s
	}
	return s
}

func (ld *loader) frame(g *segment, f frameAt) {
	at := location{g, uint32(f.offset), uint32(f.end() - f.offset)}
	if f.typ == frameProbe {
		return
	}
	s := ld.session(f.session)
	ld.place++
	s.place = ld.place
	if f.typ == frameDelete {
		s.deletion = at
		return
	}
	if !slices.Contains(s.holds, g) {
		s.holds = append(s.holds, g)
	}
	switch f.typ {
	case frameSession:
		if s.record.segment == nil || f.seq >= s.version {
			s.record, s.version = at, f.seq
		}
	case frameCall:
		s.calls = append(s.calls, callAt{int32(callNumber(f.payload)), f.seq, at})
	}
}

// bad notes a stretch that cannot be read.
func (ld *loader) bad(g *segment, bad span) {
	e := &DamageError{File: g.path, Offset: bad.from, Length: bad.to - bad.from, Reason: "no valid frame"}
	ld.report(e)
	g.damaged = true
	if bad.header == nil {
		ld.doubt(e)
		return
	}
	if bad.header.typ == frameProbe {
		return
	}
	s := ld.session(bad.header.session)
	s.damage = e
	if bad.header.typ == frameCall {
		s.lostCall = max(s.lostCall, bad.header.seq+1)
	}
}

func (ld *loader) report(e *DamageError) {
	ld.first = cmp.Or(ld.first, e)
	ld.log.damage = append(ld.log.damage, e)
}

// enter makes a session of what was found, or a grave.
func (ld *loader) enter(number uint32, found *loading) {
	x := ld.log.index
	if found.deletion.segment != nil {
		x.dig(number, found.deletion, found.holds)
		return
	}
	if found.record.segment == nil {
		ld.orphan(number, found, "its record is lost")
		return
	}
	_, payload, err := found.record.read()
	if err != nil {
		ld.orphan(number, found, err.Error())
		return
	}
	calls, r, err := parseSessionPayload(payload)
	if err != nil {
		ld.orphan(number, found, err.Error())
		return
	}
	if x.sessions[r.ID] != nil {
		// Of two sessions of one id the later one lives; the deletion of the earlier one is lost.
		old := x.sessions[r.ID]
		x.forget(old)
		ld.orphan(old.number, &loading{record: old.at, holds: old.holds}, "another session has its id")
	}
	s := &session{id: r.ID, instance: r.Instance, number: number, created: r.CreatedAt, holds: found.holds,
		nextVersion: found.version + 1, nextSeq: max(uint32(calls), found.lostCall), damage: found.damage}
	if ld.unknown != nil && found.place < ld.at && r.Status == record.Running {
		s.damage = cmp.Or(s.damage, ld.unknown)
	}
	s.describe(r)
	x.add(s)
	x.setRecord(s, found.record)
	for _, c := range found.calls {
		x.setCall(s, c)
		s.nextSeq = max(s.nextSeq, c.seq+1)
	}
	ld.count(s)
}

// count marks a session of which calls are missing.
func (ld *loader) count(s *session) {
	missing := int(s.nextSeq) - len(s.calls)
	if missing > 0 {
		e := DamageError{File: ld.log.dir, Reason: "segment files are missing"}
		if d := cmp.Or(s.damage, ld.first); d != nil {
			e = *d
		} else {
			ld.report(&e)
		}
		e.Reason = fmt.Sprintf("%s; %d of %d calls are lost", e.Reason, missing, s.nextSeq)
		s.damage = &e
	}
	if s.damage != nil {
		e := *s.damage
		e.Session = s.id
		s.damage = &e
	}
}

// orphan reports frames that belong to no session, and keeps the segments that hold them.
func (ld *loader) orphan(number uint32, found *loading, why string) {
	at := found.record
	if at.segment == nil && len(found.calls) > 0 {
		at = found.calls[0].at
	}
	for _, g := range found.holds {
		g.damaged = true
	}
	if at.segment != nil {
		ld.report(at.damage("", fmt.Sprintf("session number %d cannot be listed: %s", number, why)))
	}
}
