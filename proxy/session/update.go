package session

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// recordLocks order the writes of each session's record: what is read, changed and written back belongs together, and
// the last write to be made is the last one to reach the disk. Sessions share locks, which costs them a wait at most.
type recordLocks struct {
	seed  maphash.Seed
	locks *[64]sync.Mutex
}

func newRecordLocks() recordLocks {
	return recordLocks{seed: maphash.MakeSeed(), locks: new([64]sync.Mutex)}
}

func (r recordLocks) of(id string) *sync.Mutex {
	return &r.locks[maphash.String(r.seed, id)%uint64(len(r.locks))]
}

// Update replaces the session's record by what change makes of a copy, durably. change must replace the maps and
// slices that it changes: others read them. When the record cannot be written the change stands in memory, and the next
// write brings it to disk: what the proxy learns about its calls is not to be forgotten.
func (l *Live) Update(ctx context.Context, change func(*record.Session)) (*record.Session, error) {
	lock := l.registry.records.of(l.id)
	lock.Lock()
	defer lock.Unlock()
	if l.registry.cluster != nil {
		return l.changeShared(ctx, change)
	}
	return l.update(ctx, func(s *record.Session) error {
		change(s)
		return nil
	})
}

// update is Update for a caller that holds the record's lock. When change fails nothing is changed.
func (l *Live) update(ctx context.Context, change func(*record.Session) error) (*record.Session, error) {
	l.mu.Lock()
	next := *l.rec
	if err := change(&next); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.rec = &next
	l.mu.Unlock()
	if err := l.registry.store.PutSession(ctx, &next); err != nil {
		return &next, fmt.Errorf("recording session %s: %w", l.id, err)
	}
	return &next, nil
}

// Update changes the record of a session that is running or has ended. When change fails or the record cannot be
// written nothing is changed; change's error is returned as it is.
func (r *Registry) Update(ctx context.Context, id string, change func(*record.Session) error) (*record.Session, error) {
	lock := r.records.of(id)
	lock.Lock()
	defer lock.Unlock()
	if r.cluster != nil {
		return r.updateShared(ctx, id, change)
	}
	if l, err := r.Get(id); err == nil {
		old := l.Record()
		s, err := l.update(ctx, change)
		if err != nil {
			l.mu.Lock()
			l.rec = old
			l.mu.Unlock()
		}
		return s, err
	}
	s, err := r.store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, ErrUnknown
	case err != nil:
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if err := change(s); err != nil {
		return nil, err
	}
	switch err := r.store.PutSession(ctx, s); {
	case errors.Is(err, store.ErrNotFound): // deleted meanwhile
		return nil, ErrUnknown
	case err != nil:
		return nil, fmt.Errorf("recording session %s: %w", id, err)
	}
	return s, nil
}
