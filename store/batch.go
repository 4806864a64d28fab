package store

import (
	"fmt"
	"hash/crc32"

	"captureproxy/internal/record"
)

// opKind says what a write does.
type opKind uint8

const (
	opCreate opKind = iota
	opPut
	opDelete
	opAppend
	opProbe
	opMove
)

// op is one write on its way through the queue.
type op struct {
	kind     opKind
	id       string          // of the session
	instance string          // of the session, "" to take whichever there is
	session  *record.Session // opCreate, opPut
	encoded  []byte          // its record
	call     *pendingCall    // opAppend
	moved    *movedFrame     // opMove
	size     int64           // memory held while it waits
	done     chan error      // room for one
}

// batch is a set of writes that reach the disk together. It belongs to the writer goroutine.
type batch struct {
	index *index
	next  *uint32 // session number
	buf   []byte  // frames; their headers are filled in once the segment is known
	items []staged
	// What the batch changes, seen by later writes of the same batch.
	sessions map[string]*session // nil: deleted
	calls    map[callID]bool
	undo     map[*session]counters
}

// counters are what a batch advances of a session.
type counters struct{ version, seq uint32 }

// callID is a call within a batch.
type callID struct {
	session *session
	number  int
}

// staged is a write of a batch: a frame, or an answer without one.
type staged struct {
	op      *op
	err     error // of its own, whatever becomes of the batch
	session *session
	header  frameHeader
	start   int // of the frame in buf
	length  int // 0: no frame
}

func newBatch(x *index, next *uint32, buf []byte) *batch {
	return &batch{index: x, next: next, buf: buf[:0],
		sessions: map[string]*session{}, calls: map[callID]bool{}, undo: map[*session]counters{}}
}

// lookup finds a session as the batch leaves it.
func (b *batch) lookup(o *op) (*session, error) {
	s, staged := b.sessions[o.id]
	if !staged {
		s = b.index.sessions[o.id]
	}
	if s == nil {
		return nil, fmt.Errorf("store: session %q: %w", o.id, ErrNotFound)
	}
	if o.instance != "" && s.instance != "" && o.instance != s.instance {
		return nil, fmt.Errorf("store: session %q is another one of that name now: %w", o.id, ErrNotFound)
	}
	return s, nil
}

// touch keeps what the batch may change of a session, should it fail.
func (b *batch) touch(s *session) {
	if _, done := b.undo[s]; !done {
		b.undo[s] = counters{s.nextVersion, s.nextSeq}
	}
}

// stage adds a write to the batch.
func (b *batch) stage(o *op) {
	s := staged{op: o, start: len(b.buf)}
	if s.err = b.encode(o, &s); s.err != nil {
		b.buf = b.buf[:s.start]
	} else if len(b.buf) > s.start {
		payload := b.buf[s.start+frameHeaderSize:]
		s.length = len(b.buf) - s.start
		s.header.length = uint32(len(payload))
		s.header.payload = crc32.Checksum(payload, castagnoli)
	}
	b.items = append(b.items, s)
}

func (b *batch) encode(o *op, s *staged) error {
	switch o.kind {
	case opCreate:
		return b.create(o, s)
	case opPut:
		return b.put(o, s)
	case opDelete:
		return b.remove(o, s)
	case opAppend:
		return b.call(o, s)
	case opMove:
		return b.move(o, s)
	default:
		b.frame(s, frameProbe, 0, 0)
		return nil
	}
}

// frame begins a frame: room for its header, to which the payload is appended.
func (b *batch) frame(s *staged, typ frameType, session, seq uint32) {
	s.header = frameHeader{typ: typ, session: session, seq: seq}
	b.buf = append(b.buf, make([]byte, frameHeaderSize)...)
}

func (b *batch) create(o *op, s *staged) error {
	if _, err := b.lookup(&op{id: o.id}); err == nil {
		return fmt.Errorf("store: session %q: %w", o.id, ErrExists)
	}
	s.session = &session{id: o.id, instance: o.session.Instance, number: *b.next, created: o.session.CreatedAt, nextVersion: 1}
	*b.next++
	b.sessions[o.id] = s.session
	b.frame(s, frameSession, s.session.number, 0)
	b.buf = sessionPayload(b.buf, 0, o.encoded)
	return nil
}

func (b *batch) put(o *op, s *staged) (err error) {
	if s.session, err = b.lookup(o); err != nil {
		return err
	}
	if !s.session.created.Equal(o.session.CreatedAt) {
		return fmt.Errorf("store: session %q was created at %s, a new record cannot say %s", o.id, s.session.created, o.session.CreatedAt)
	}
	b.touch(s.session)
	b.frame(s, frameSession, s.session.number, s.session.nextVersion)
	b.buf = sessionPayload(b.buf, int(s.session.nextSeq), o.encoded)
	s.session.nextVersion++
	if o.session.Status != record.Running {
		s.session.dictionary = nil // no more calls are expected
	}
	return nil
}

func (b *batch) remove(o *op, s *staged) (err error) {
	if s.session, err = b.lookup(o); err != nil {
		return err
	}
	b.sessions[o.id] = nil
	b.frame(s, frameDelete, s.session.number, 0)
	return nil
}

func (b *batch) call(o *op, s *staged) (err error) {
	if s.session, err = b.lookup(o); err != nil {
		return err
	}
	id := callID{s.session, o.call.number}
	if _, stored := s.session.call(o.call.number); stored || b.calls[id] {
		return nil
	}
	b.touch(s.session)
	if s.session.dictionary == nil {
		s.session.dictionary = newDictionary(s.session.nextSeq)
	}
	b.frame(s, frameCall, s.session.number, s.session.nextSeq)
	b.buf = s.session.dictionary.appendCall(b.buf, o.call)
	if len(b.buf)-s.start-frameHeaderSize > maxPayload {
		s.session.dictionary = nil // it has learned what is not written
		return fmt.Errorf("store: call %d of session %q takes more than %d bytes", o.call.number, o.id, maxPayload)
	}
	b.calls[id] = true
	s.session.nextSeq++
	return nil
}

// address fills in the frames' headers for the place at which they will stand.
func (b *batch) address(salt uint64, end int64) {
	for i := range b.items {
		if s := &b.items[i]; s.length > 0 {
			s.header.durable = uint32(end)
			s.header.put(b.buf[s.start:], salt, end+int64(s.start))
		}
	}
}

// rollback forgets what the batch was to change. The sessions' dictionaries have learned what is not on disk, so their
// next calls start new ones.
func (b *batch) rollback() {
	for s, before := range b.undo {
		s.nextVersion, s.nextSeq, s.dictionary = before.version, before.seq, nil
	}
}

// publish enters the batch, which is on disk from the given offset of g, into the index, and reports whether that left
// frames behind that nothing needs any more.
func (b *batch) publish(g *segment, from int64) (died bool) {
	for i := range b.items {
		s := &b.items[i]
		if s.length == 0 {
			continue
		}
		at := location{segment: g, offset: uint32(from + int64(s.start)), length: uint32(s.length)}
		switch s.op.kind {
		case opCreate:
			b.index.add(s.session)
			fallthrough
		case opPut:
			s.session.describe(s.op.session)
			b.index.setRecord(s.session, at)
		case opAppend:
			b.index.setCall(s.session, callAt{int32(s.op.call.number), s.header.seq, at})
		case opDelete:
			b.index.bury(s.session, at)
		case opMove:
			b.index.moved(s.op.moved, at)
		case opProbe:
		}
		died = died || s.op.kind == opPut || s.op.kind == opDelete || s.op.kind == opMove
	}
	return died
}

// acknowledge answers the batch's writers.
func (b *batch) acknowledge(err error) {
	for i := range b.items {
		s := &b.items[i]
		if s.err != nil {
			s.op.done <- s.err
			continue
		}
		s.op.done <- err
	}
}
