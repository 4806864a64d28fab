package store

import (
	"fmt"
	"sync"
	"time"
)

// slowWrite is how long a write may take before the store counts as failing.
const slowWrite = 2 * time.Second

// health remembers how the last write went.
type health struct {
	mu    sync.Mutex
	err   error     // of the last write
	since time.Time // when the write that is under way began
	probe bool      // a probe is under way
}

func (h *health) begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

func (h *health) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err, h.since, h.probe = err, time.Time{}, false
}

// report returns why writes fail, and whether a probe should be sent to find out if they still do.
func (h *health) report(now time.Time) (err error, probe bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && !h.since.IsZero() {
		if took := now.Sub(h.since); took > slowWrite {
			return fmt.Errorf("store: the disk has not answered a write for %s", took.Round(time.Millisecond)), false
		}
	}
	probe = h.err != nil && h.since.IsZero() && !h.probe
	h.probe = h.probe || probe
	return h.err, probe
}
