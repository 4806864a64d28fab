package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"captureproxy/store"
)

const (
	// slowWrite is the time after which a batch that is not answered counts as trouble.
	slowWrite = 2 * time.Second
	// lookEvery is how often the database is asked whether it is there, which is a proxy's sign of life too.
	lookEvery = 2 * time.Second
	// lookAgain is how often while it is away.
	lookAgain = 300 * time.Millisecond
	// litterAge is how long a dead proxy's rows are kept.
	litterAge = 10 * time.Minute
)

// health remembers how the database answered last.
type health struct {
	mu      sync.Mutex
	write   error     // of the last batch
	look    error     // of the last look
	writing time.Time // when the batch that is under way was sent first
	down    time.Time // since when something fails
}

func (h *health) sent(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.writing.IsZero() {
		h.writing = now
	}
}

// answered notes a batch's answer; one that failed is still under way.
func (h *health) answered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.write = err; err == nil {
		h.writing = time.Time{}
	}
	h.note()
}

func (h *health) looked(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look = err
	h.note()
}

func (h *health) note() {
	switch {
	case h.write == nil && h.look == nil:
		h.down = time.Time{}
	case h.down.IsZero():
		h.down = time.Now()
	}
}

func (h *health) report(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	problem := h.write
	if problem == nil {
		problem = h.look
	}
	switch {
	case problem != nil:
		return fmt.Errorf("postgres: the database has been away for %s, calls wait in memory: %w", now.Sub(h.down).Round(time.Second), problem)
	case !h.writing.IsZero() && now.Sub(h.writing) > slowWrite:
		return fmt.Errorf("postgres: the database has not answered a write for %s", now.Sub(h.writing).Round(time.Millisecond))
	}
	return nil
}

// Healthy implements Store.
func (s *Store) Healthy() error {
	if s.isClosed() {
		return fmt.Errorf("postgres: %w", store.ErrClosed)
	}
	return s.health.report(time.Now())
}

// lookSoon has the database looked at now.
func (s *Store) lookSoon() {
	select {
	case s.lookNow <- struct{}{}:
	default:
	}
}

// look asks again and again whether the database is there, and gives this proxy's sign of life with it.
func (s *Store) look(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for good := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.lookNow:
		}
		err := s.lookOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		s.health.looked(err)
		next := lookEvery
		if good++; err != nil {
			good, next = 0, lookAgain
		}
		// One who was away himself cannot tell who is dead.
		if clean := int(time.Minute / lookEvery); good >= clean && good%clean == 0 {
			if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
				s.health.looked(err)
			}
		}
		timer.Reset(next)
	}
}

func (s *Store) lookOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := s.name()
	if name == "" {
		return s.pool.Ping(ctx)
	}
	_, err := s.pool.Exec(ctx, `insert into capture_proxy.proxies values ($1, now()) on conflict (id) do update set seen = now()`, name)
	return err
}

// tidy removes what proxies left behind that died long ago.
func (s *Store) tidy(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `with dead as (delete from capture_proxy.proxies where seen < now() - $1::interval returning id)
		delete from capture_proxy.inflight where proxy in (select id from dead)`, litterAge.String())
	return err
}
