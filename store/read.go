package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"captureproxy/internal/record"
)

// view is what a read needs of a session, taken in one moment. Its segments stay readable until it is released, also
// when they are removed meanwhile.
type view struct {
	id, instance string
	at           location
	calls        []callAt
	damage       *DamageError
	segments     []*segment
}

// use takes a view of s; l.mu must be held.
func (s *session) use(withCalls bool) *view {
	v := &view{id: s.id, instance: s.instance, at: s.at, damage: s.damage, segments: []*segment{s.at.segment}}
	if withCalls {
		v.calls = slices.Clone(s.calls)
		v.segments = slices.Clone(s.holds)
	}
	for _, g := range v.segments {
		g.refs.Add(1)
	}
	return v
}

func (v *view) release() error {
	var errs []error
	for _, g := range v.segments {
		errs = append(errs, g.release())
	}
	return errors.Join(errs...)
}

func (l *Log) view(ctx context.Context, id string, withCalls bool) (*view, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.index.sessions[id]
	if s == nil {
		return nil, l.missing(id)
	}
	return s.use(withCalls), nil
}

// missing is the error for a session that is not there.
func (l *Log) missing(id string) error {
	if l.queue.isClosed() {
		return fmt.Errorf("store: %w", ErrClosed)
	}
	return fmt.Errorf("store: session %q: %w", id, ErrNotFound)
}

// Session implements Store.
func (l *Log) Session(ctx context.Context, id string) (s *record.Session, err error) {
	v, err := l.view(ctx, id, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.release()) }()
	return v.session()
}

func (v *view) session() (*record.Session, error) {
	_, payload, err := v.at.read()
	if err != nil {
		return nil, v.named(err)
	}
	_, s, err := parseSessionPayload(payload)
	if err != nil {
		return nil, v.at.damage(v.id, err.Error())
	}
	if v.damage != nil && s.CaptureFailed == "" {
		s.CaptureFailed = v.damage.Error()
	}
	return s, nil
}

// named says whose data it is that cannot be read.
func (v *view) named(err error) error {
	var damage *DamageError
	if errors.As(err, &damage) {
		damage.Session = v.id
	}
	return err
}

// Sessions implements Store.
func (l *Log) Sessions(ctx context.Context, f Filter) (list []*record.Session, next string, err error) {
	views, next, err := l.page(ctx, f)
	if err != nil {
		return nil, "", err
	}
	var errs []error
	for _, v := range views {
		s, err := v.session()
		if err == nil {
			list = append(list, s)
		}
		errs = append(errs, err, v.release())
	}
	return list, next, errors.Join(errs...)
}

// page takes views of the sessions that match.
func (l *Log) page(ctx context.Context, f Filter) (views []*view, next string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.queue.isClosed() {
		return nil, "", fmt.Errorf("store: %w", ErrClosed)
	}
	order := l.index.order
	if f.After != "" {
		last, err := ParseCursor(f.After)
		if err != nil {
			return nil, "", err
		}
		i, _ := slices.BinarySearchFunc(order, &session{id: last.ID, created: last.Created}, byCreation)
		order = order[:i]
	}
	var shown *session
	for _, s := range slices.Backward(order) {
		if !f.Since.IsZero() && s.created.Before(f.Since) {
			break
		}
		if !f.matches(s) {
			continue
		}
		if f.Limit > 0 && len(views) == f.Limit {
			return views, Cursor{shown.created, shown.id}.String(), nil
		}
		views, shown = append(views, s.use(false)), s
	}
	return views, "", nil
}

func (f *Filter) matches(s *session) bool {
	return (f.Status == "" || f.Status == s.status) && (f.Group == "" || f.Group == s.group) &&
		(f.Run == "" || f.Run == s.run) && (f.Env == "" || f.Env == s.env)
}

// Calls implements Store.
func (l *Log) Calls(ctx context.Context, id string) (calls []*record.Call, err error) {
	stored, err := l.stored(ctx, id)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	calls = expandAll(stored)
	slices.SortFunc(calls, func(a, b *record.Call) int { return cmp.Compare(a.Number, b.Number) })
	return calls, err
}

// Past implements Store.
func (l *Log) Past(ctx context.Context, id string) (*Past, error) {
	stored, err := l.stored(ctx, id)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	return newPast(stored), err
}

// stored reads all calls of a session.
func (l *Log) stored(ctx context.Context, id string) (stored []*storedCall, err error) {
	v, err := l.view(ctx, id, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.release()) }()
	return v.decode(ctx, v.calls)
}

// decode reads calls, which must be all that come before the last of them by seq. What cannot be read is left out and
// reported.
func (v *view) decode(ctx context.Context, calls []callAt) ([]*storedCall, error) {
	var (
		d      decoder
		stored []*storedCall
		errs   []error
	)
	if v.damage != nil {
		errs = append(errs, v.damage)
	}
	slices.SortFunc(calls, func(a, b callAt) int { return cmp.Compare(a.seq, b.seq) })
	for _, c := range calls {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		_, payload, err := c.at.read()
		if err != nil {
			errs = append(errs, v.named(err))
			continue
		}
		s, err := d.decode(payload)
		if err != nil {
			errs = append(errs, c.at.damage(v.id, fmt.Sprintf("call %d: %s", c.number, err)))
			continue
		}
		s.call.Session, s.call.Instance = v.id, v.instance
		stored = append(stored, s)
	}
	return stored, errors.Join(errs...)
}

// Body implements Store.
func (l *Log) Body(ctx context.Context, id string, number int) (body []byte, err error) {
	v, err := l.view(ctx, id, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.release()) }()
	i := slices.IndexFunc(v.calls, func(c callAt) bool { return int(c.number) == number })
	if i < 0 {
		return nil, fmt.Errorf("store: call %d of session %q: %w", number, id, ErrNotFound)
	}
	seq := v.calls[i].seq
	stored, err := v.decode(ctx, slices.DeleteFunc(v.calls, func(c callAt) bool { return c.seq > seq }))
	for _, s := range stored {
		if s.call.Number == number {
			return s.library.join(s.body), nil
		}
	}
	return nil, err
}
