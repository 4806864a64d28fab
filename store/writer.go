package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"
)

const (
	// maxBatch is the size from which a batch takes no more writes.
	maxBatch = 4 << 20
	// maxKeptBuffer is the largest buffer that is kept from batch to batch.
	maxKeptBuffer = 8 << 20
)

// writer is the goroutine through which everything reaches the disk.
type writer struct {
	log *Log

	active      *segment // nil: the next batch begins a new one
	lastNumber  uint64   // of any segment file
	sealed      uint64   // number of the last segment that held anything acknowledged
	sealedEnd   int64
	nextSession uint32
	buf         []byte
}

// run writes batches until the log is closed and nothing is left.
func (w *writer) run() {
	defer close(w.log.written)
	for {
		ops, open := w.log.queue.take()
		for len(ops) > 0 {
			ops = ops[w.writeSome(ops):]
		}
		if !open {
			return
		}
	}
}

// writeSome writes the first of ops as one batch and returns how many those were.
func (w *writer) writeSome(ops []*op) int {
	b := newBatch(w.log.index, &w.nextSession, w.buf)
	var held int64
	n := 0
	for n < len(ops) && len(b.buf) < maxBatch {
		b.stage(ops[n])
		held += ops[n].size
		n++
	}
	err := w.commit(b)
	w.log.queue.done(n, held)
	b.acknowledge(err)
	if w.buf = b.buf; cap(w.buf) > maxKeptBuffer {
		w.buf = nil
	}
	return n
}

// commit makes a batch durable and visible, or neither.
func (w *writer) commit(b *batch) error {
	if len(b.buf) == 0 {
		return nil
	}
	w.log.health.begin(time.Now())
	g, from, err := w.write(b)
	w.log.health.end(err)
	if err != nil {
		b.rollback()
		return err
	}
	w.log.mu.Lock()
	died := b.publish(g, from)
	w.log.mu.Unlock()
	if died {
		w.log.reclaim()
	}
	return nil
}

// write puts a batch on disk, in a second segment if the first fails.
func (w *writer) write(b *batch) (g *segment, from int64, err error) {
	for range 2 {
		if err = w.ready(int64(len(b.buf))); err != nil {
			continue
		}
		g, from = w.active, w.active.end
		b.address(g.salt, from)
		if err = g.write(b.buf, w.log.opts.SegmentSize); err == nil {
			return g, from, nil
		}
		w.seal()
	}
	return nil, 0, fmt.Errorf("store: cannot write to %s: %w; free space or make the disk writable, writing is tried again with every call", w.log.dir, err)
}

// ready makes sure that there is a segment with room for n bytes.
func (w *writer) ready(n int64) error {
	if w.active != nil && w.active.end > segmentHeaderSize && w.active.end+n > w.log.opts.SegmentSize {
		w.seal()
	}
	if w.active != nil {
		return nil
	}
	var salt [8]byte
	rand.Read(salt[:]) // never fails: it ends the process rather than return an error
	w.lastNumber++
	g, err := createSegment(w.log.fs, w.log.dir, segmentHeader{
		number: w.lastNumber, salt: binary.LittleEndian.Uint64(salt[:]), prev: w.sealed, prevEnd: uint32(w.sealedEnd)})
	if err != nil {
		return err
	}
	w.active = g
	w.log.mu.Lock()
	w.log.index.segments = append(w.log.index.segments, g)
	w.log.mu.Unlock()
	return nil
}

// seal ends the active segment at what was acknowledged of it. The header of the next one says where that is, so it does
// not matter whether the rest can be cut off, which only gives back space.
func (w *writer) seal() {
	w.sealed, w.sealedEnd = w.active.number, w.active.end
	_ = w.active.trim()
	w.log.mu.Lock()
	w.active.sealed = true
	w.log.mu.Unlock()
	w.active = nil
}
