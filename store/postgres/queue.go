package postgres

import (
	"fmt"
	"sync"

	"captureproxy/store"
)

// waiting is a call on its way to the writer. It goes by what the database asks about it; the rest is encoded.
type waiting struct {
	session, instance string
	number            int
	hash              string
	node              bool
	outcome           string
	turns             int
	forwarded         bool
	detail            string
	prepared          store.Prepared
	size              int64
	done              []chan error // of the caller, and of those who appended the same call while it waited
}

// queue holds the calls that wait for the writer.
type queue struct {
	limit int64 // bytes

	mu     sync.Mutex
	ops    []*waiting
	count  int   // calls that are not answered yet, those in the writer's hands too
	bytes  int64 // what they hold
	closed bool
	wake   chan struct{} // room for one; closed with the queue
}

func newQueue(limit int64) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

// put queues a call, or says why it cannot. A single one is taken however large it is.
func (q *queue) put(o *waiting) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("postgres: %w", store.ErrClosed)
	}
	if q.count > 0 && q.bytes+o.size > q.limit {
		return fmt.Errorf("postgres: %d calls (%d bytes) are waiting for the database: %w", q.count, q.bytes, store.ErrBusy)
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

// take waits for calls and returns all; open is false once the queue is closed and these were the last.
func (q *queue) take() (ops []*waiting, open bool) {
	_, open = <-q.wake
	q.mu.Lock()
	defer q.mu.Unlock()
	ops, q.ops = q.ops, nil
	return ops, open
}

// answered gives back what a call held.
func (q *queue) answered(o *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count--
	q.bytes -= o.size
}

func (q *queue) waiting() (calls int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes
}

// close refuses later calls.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.wake)
}
