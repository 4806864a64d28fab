package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	// firstFill and maxFill bound how far ahead of the writes a segment is filled with zeros: a small store stays small.
	firstFill = 1 << 20
	maxFill   = 8 << 20
	// smallBatch is the size below which a flush is dominated by the change of the file's size that filling avoids.
	// A larger batch would cost more to fill than it saves.
	smallBatch = 64 << 10
)

// segment is one file of the log.
type segment struct {
	number uint64
	salt   uint64
	old    bool // of an earlier format: never written again, so that its version says what is in it
	path   string
	f      file

	// Owned by the writer goroutine.
	end    int64 // of what is on disk and acknowledged
	filled int64 // size of the file: zeros from end to here

	// Guarded by Log.mu.
	live    int64 // bytes of frames that are still needed
	sealed  bool  // never written again
	damaged bool  // never removed: what is in it may be all that is left of something

	// refs counts those who use f: the log itself until the segment is removed, and readers.
	refs atomic.Int32
}

func segmentName(number uint64) string { return fmt.Sprintf("%08d.log", number) }

func parseSegmentName(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || segmentName(number) != name {
		return 0, false
	}
	return number, true
}

// createSegment makes a new, empty segment and its name durable.
func createSegment(fs fsys, dir string, h segmentHeader) (*segment, error) {
	path := filepath.Join(dir, segmentName(h.number))
	f, err := fs.create(path)
	if err != nil {
		return nil, err
	}
	header := h.append(nil)
	_, err = f.WriteAt(header, 0)
	if err == nil {
		err = f.datasync()
	}
	if err == nil {
		err = fs.syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), fs.remove(path))
	}
	s := &segment{number: h.number, salt: h.salt, path: path, f: f, end: segmentHeaderSize, filled: segmentHeaderSize}
	s.refs.Store(1)
	return s, nil
}

// write appends b and makes it durable. After an error the segment must not be written again.
func (s *segment) write(b []byte, limit int64) error {
	if _, err := s.f.WriteAt(b, s.end); err != nil {
		return err
	}
	after := s.end + int64(len(b))
	if after > s.filled && len(b) < smallBatch {
		if err := s.fill(after, min(limit, after+min(max(after, firstFill), maxFill))); err != nil {
			return err
		}
	}
	if err := s.f.datasync(); err != nil {
		return err
	}
	s.end = after
	s.filled = max(s.filled, after)
	return nil
}

// fill writes zeros from an offset to another. Allocated but unwritten space would not do: turning it into written
// space is a change that the file system must log with each flush.
func (s *segment) fill(from, to int64) error {
	zero := make([]byte, min(max(to-from, 0), 1<<20))
	for from < to {
		n, err := s.f.WriteAt(zero[:min(int64(len(zero)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	s.filled = max(s.filled, from)
	return nil
}

// trim gives back what was filled ahead.
func (s *segment) trim() error {
	if s.filled == s.end {
		return nil
	}
	if err := s.f.Truncate(s.end); err != nil {
		return err
	}
	s.filled = s.end
	return nil
}

// release ends a use of the segment's file.
func (s *segment) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	return s.f.Close()
}

// location is where a frame stands.
type location struct {
	segment *segment
	offset  uint32
	length  uint32 // header included
}

// read returns a frame's payload in memory of its own.
func (l location) read() (frameHeader, []byte, error) {
	b := make([]byte, l.length)
	if _, err := l.segment.f.ReadAt(b, int64(l.offset)); err != nil {
		return frameHeader{}, nil, l.damage("", err.Error())
	}
	h, payload, err := parseFrame(b, l.segment.salt, int64(l.offset))
	if err != nil {
		return frameHeader{}, nil, l.damage("", err.Error())
	}
	return h, payload, nil
}

func (l location) damage(session, reason string) *DamageError {
	return &DamageError{File: l.segment.path, Offset: int64(l.offset), Length: int64(l.length), Session: session, Reason: reason}
}
