package store

import (
	"fmt"
	"sync"
)

// queue holds the writes that wait for the writer goroutine.
type queue struct {
	limit int64 // bytes

	mu     sync.Mutex
	ops    []*op
	count  int   // writes that are not answered yet, those in the writer's hands too
	bytes  int64 // what they hold
	closed bool
	wake   chan struct{} // room for one; closed with the queue
}

func newQueue(limit int64) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// put queues a write, or says why it cannot. A single write is taken however large it is.
func (q *queue) put(o *op) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("store: %w", ErrClosed)
	}
	if q.count > 0 && q.bytes+o.size > q.limit {
		return fmt.Errorf("store: %d writes (%d bytes) are waiting: %w", q.count, q.bytes, ErrBusy)
	}
	q.ops = append(q.ops, o)
	q.count++
	q.bytes += o.size
	select {
	case q.wake <- struct{}{}:
	default: // the writer has been woken already
	}
	return nil
}

// take waits for writes and returns all; open is false once the queue is closed and these were the last.
func (q *queue) take() (ops []*op, open bool) {
	_, open = <-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	ops, q.ops = q.ops, nil
	return ops, open
}

// done gives back what n writes held.
func (q *queue) done(n int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count -= n
	q.bytes -= bytes
}

// close refuses later writes; false when it was closed already.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	close(q.wake)
	return true
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *queue) waiting() (writes int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes
}
