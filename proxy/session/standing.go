package session

import (
	"context"
	"errors"
	"time"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// Standing is a session in one moment.
type Standing struct {
	Record *record.Session
	Counts *Counts // nil when it has ended
	Idle   time.Duration
}

// standing is that of a session whose calls all pass here.
func (l *Live) standing() Standing {
	counts, idle := l.Counts() // before the record, which is then at least as new
	return Standing{Record: l.Record(), Counts: &counts, Idle: idle}
}

// Stand tells how a session stands: from memory while it runs, from the store once it has ended.
func (r *Registry) Stand(ctx context.Context, id string) (Standing, error) {
	if r.cluster == nil {
		if l, err := r.Get(id); err == nil {
			return l.standing(), nil
		}
	}
	if !ValidID(id) {
		return Standing{}, ErrUnknown
	}
	s, err := r.store.Session(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Standing{}, ErrUnknown
	case err != nil:
		return Standing{}, err
	}
	list, err := r.StandAll(ctx, []*record.Session{s})
	if err != nil {
		return Standing{}, err
	}
	return list[0], nil
}

// StandAll tells how sessions stand whose records were just read from the store.
func (r *Registry) StandAll(ctx context.Context, recs []*record.Session) ([]Standing, error) {
	states, err := r.states(ctx, recs)
	if err != nil {
		return nil, err
	}
	list := make([]Standing, len(recs))
	for i, s := range recs {
		list[i] = Standing{Record: s}
		if st, shared := states[s.ID]; shared {
			if st.Instance == s.Instance && !st.Ended {
				list[i].Counts, list[i].Idle = &Counts{Calls: st.Calls, Nodes: st.Turns, InFlight: st.InFlight}, st.Idle
			}
			continue
		}
		if l, err := r.Get(s.ID); r.cluster == nil && err == nil && l.Record().Instance == s.Instance {
			list[i] = l.standing()
		}
	}
	return list, nil
}

// states asks a shared store about those that run.
func (r *Registry) states(ctx context.Context, recs []*record.Session) (map[string]store.State, error) {
	var ids []string
	for _, s := range recs {
		if s.Status == record.Running {
			ids = append(ids, s.ID)
		}
	}
	if r.cluster == nil || len(ids) == 0 {
		return nil, nil
	}
	return r.cluster.States(ctx, ids...)
}

// Idle returns the sessions in which nothing has happened for so long, and nothing is under way.
func (r *Registry) Idle(ctx context.Context, since time.Duration) ([]*Live, error) {
	var list []*Live
	if r.cluster == nil {
		for _, l := range r.Running() {
			if counts, idle := l.Counts(); counts.InFlight == 0 && idle >= since {
				list = append(list, l)
			}
		}
		return list, nil
	}
	ids, err := r.cluster.Idle(ctx, since)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		l, err := r.Find(ctx, id)
		switch {
		case err == nil:
			list = append(list, l)
		case !errors.Is(err, ErrEnded) && !errors.Is(err, ErrUnknown): // another proxy was quicker
			return list, err
		}
	}
	return list, nil
}

// NumRunning counts the running sessions.
func (r *Registry) NumRunning(ctx context.Context) (int, error) {
	if r.cluster != nil {
		return r.cluster.NumRunning(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live), nil
}
