package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"captureproxy/internal/record"
)

// Options tune a Log; the zero value is right for use.
type Options struct {
	// SegmentSize is the size at which a segment is sealed and the next one begun; 64 MiB when 0.
	SegmentSize int64
	// MaxWaiting is how many bytes of calls may wait for the disk before Append answers ErrBusy; 256 MiB when 0.
	MaxWaiting int64

	fs fsys // nil: the real one
}

// maxSegmentSize keeps every offset, that of an oversized last frame too, within 32 bits.
const maxSegmentSize = math.MaxUint32 - maxPayload - maxBatch

func (o Options) withDefaults() Options {
	if o.SegmentSize <= 0 {
		o.SegmentSize = 64 << 20
	}
	o.SegmentSize = min(o.SegmentSize, maxSegmentSize)
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 256 << 20
	}
	if o.fs == nil {
		o.fs = osFS{}
	}
	return o
}

// Log is the embedded Store: an append-only log in a directory.
type Log struct {
	dir  string
	opts Options
	fs   fsys
	hash hasher
	lock *os.File

	queue   *queue
	health  health
	written chan struct{} // closed when the writer goroutine has ended

	wakeCompactor chan struct{} // room for one
	stopCompactor chan struct{}
	compacted     chan struct{} // closed when the compactor goroutine has ended

	policy sync.Mutex // orders what is done with the policy's file

	mu         sync.RWMutex
	index      *index
	damage     []*DamageError // found by Open
	reclaimErr error          // of the last attempt to remove a segment
}

var _ Store = (*Log)(nil)

// Open opens the log in dir, which is created if need be, and holds its lock until Close. What a crash left half
// written at its end is cut off. A damaged log opens all the same, see Damage.
func Open(dir string, opts Options) (*Log, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	l := &Log{
		dir: dir, opts: opts, fs: opts.fs, hash: newHasher(), lock: lock,
		queue: newQueue(opts.MaxWaiting), written: make(chan struct{}), index: newIndex(),
		wakeCompactor: make(chan struct{}, 1), stopCompactor: make(chan struct{}), compacted: make(chan struct{}),
	}
	w := &writer{log: l}
	if err := l.load(w); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	go w.run()
	go l.compactor(l.stopCompactor)
	return l, nil
}

// Close writes what was accepted, gives back the space filled ahead and lets go of the directory.
func (l *Log) Close() error {
	if !l.queue.close() {
		<-l.written
		return nil
	}
	close(l.stopCompactor)
	<-l.compacted
	<-l.written
	return l.closeFiles()
}

// closeFiles closes everything that is open.
func (l *Log) closeFiles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, g := range l.index.segments {
		if !g.sealed {
			errs = append(errs, g.trim())
		}
		errs = append(errs, g.release())
	}
	l.index = newIndex()
	return errors.Join(append(errs, l.lock.Close())...)
}

// Damage returns what Open found unreadable.
func (l *Log) Damage() []*DamageError { return l.damage }

// Stats are figures about a log.
type Stats struct {
	Sessions      int
	Segments      int
	Bytes         int64 // that the segments take on disk
	LiveBytes     int64 // of those, what is still needed
	WaitingWrites int
	WaitingBytes  int64
	// ReclaimError says why a segment that is not needed any more could not be removed.
	ReclaimError error
}

// Waiting returns how much is not durable yet.
func (l *Log) Waiting() (writes int, bytes int64) { return l.queue.waiting() }

// Stats returns figures of this moment. With an error the sizes are not complete.
func (l *Log) Stats() (Stats, error) {
	var s Stats
	s.WaitingWrites, s.WaitingBytes = l.queue.waiting()
	l.mu.RLock()
	defer l.mu.RUnlock()
	s.Sessions, s.Segments, s.ReclaimError = len(l.index.sessions), len(l.index.segments), l.reclaimErr
	for _, g := range l.index.segments {
		size, err := g.f.size()
		if err != nil {
			return s, fmt.Errorf("store: %w", err)
		}
		s.Bytes += size
		s.LiveBytes += g.live
	}
	return s, nil
}

// Healthy reports why writes fail. While they do it has a probe written, so that the answer changes when the disk is
// well again although nobody else writes.
func (l *Log) Healthy() error {
	if l.queue.isClosed() {
		return fmt.Errorf("store: %w", ErrClosed)
	}
	err, probe := l.health.report(time.Now())
	if probe {
		// Refused only while writes are waiting, which tell as much.
		_ = l.queue.put(&op{kind: opProbe, done: make(chan error, 1)})
	}
	return err
}

// CreateSession implements Store.
func (l *Log) CreateSession(ctx context.Context, s *record.Session) error {
	return l.writeSession(ctx, opCreate, s)
}

// PutSession implements Store.
func (l *Log) PutSession(ctx context.Context, s *record.Session) error {
	return l.writeSession(ctx, opPut, s)
}

func (l *Log) writeSession(ctx context.Context, kind opKind, s *record.Session) error {
	if s.ID == "" {
		return errors.New("store: a session needs an id")
	}
	encoded, err := appendSessionRecord(nil, s)
	if err != nil {
		return err
	}
	if len(encoded) > maxPayload/2 {
		return fmt.Errorf("store: the record of session %q takes %d bytes; keep large metadata elsewhere", s.ID, len(encoded))
	}
	// The writer goroutine looks at the record after we may have returned: it gets one of its own.
	own := *s
	own.Spec.Run = append([]byte(nil), s.Spec.Run...)
	return l.do(ctx, &op{kind: kind, id: s.ID, instance: s.Instance, session: &own, encoded: encoded, size: int64(len(encoded))})
}

// DeleteSession implements Store.
func (l *Log) DeleteSession(ctx context.Context, id string) error {
	return l.do(ctx, &op{kind: opDelete, id: id})
}

func (l *Log) do(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.done = make(chan error, 1)
	if err := l.queue.put(o); err != nil {
		return err
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Append implements Store.
func (l *Log) Append(c *record.Call) <-chan error {
	o := &op{kind: opAppend, id: c.Session, instance: c.Instance, done: make(chan error, 1)}
	if err := l.append(c, o); err != nil {
		o.done <- err
	}
	return o.done
}

func (l *Log) append(c *record.Call, o *op) (err error) {
	if c.Number < 1 || c.Number > math.MaxInt32 {
		return fmt.Errorf("store: a call's number is from 1 to %d, not %d", math.MaxInt32, c.Number)
	}
	if o.call, err = l.hash.prepare(c); err != nil {
		return err
	}
	o.size = o.call.size()
	return l.queue.put(o)
}
