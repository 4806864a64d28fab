package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// Admit implements Shared.
func (s *Store) Admit(ctx context.Context, a store.Admission) (admitted store.Admitted, err error) {
	token := s.token.Add(1)
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		var state string
		var number, retryOf, turns, inFlight *int
		var reserved *bool
		err := s.pool.QueryRow(ctx, `select state, number, retry_of, reserved, turns, in_flight from capture_proxy.admit($1, $2, $3, $4, $5, $6)`,
			text(a.Session), text(a.Instance), s.name(), token, text(a.BodyHash), a.Repeats).Scan(&state, &number, &retryOf, &reserved, &turns, &inFlight)
		switch {
		case err != nil:
			return err
		case state == "missing":
			return missing(a.Session)
		case state == "ending":
			return fmt.Errorf("postgres: session %q: %w", a.Session, store.ErrEnding)
		case number == nil || retryOf == nil || reserved == nil || turns == nil || inFlight == nil:
			return &ownError{errors.New("postgres: the function admit answers otherwise than it should")}
		}
		admitted = store.Admitted{Number: *number, RetryOf: *retryOf, Reserved: *reserved, Turns: *turns, InFlight: *inFlight}
		return nil
	})
	return admitted, err
}

// exec runs a statement that is harmless to repeat.
func (s *Store) exec(ctx context.Context, query string, args ...any) (changed bool, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		tag, err := s.pool.Exec(ctx, query, args...)
		changed = err == nil && tag.RowsAffected() > 0
		return err
	})
	return changed, err
}

// Gone implements Shared.
func (s *Store) Gone(ctx context.Context, session, instance string, number int) error {
	_, err := s.exec(ctx, `update capture_proxy.inflight set gone = true
		where session = (select no from capture_proxy.sessions where id = $1 and instance = $2) and number = $3`, text(session), text(instance), number)
	return err
}

// Leave implements Shared.
func (s *Store) Leave(ctx context.Context, session, instance string, number int, forwarded bool) error {
	_, err := s.exec(ctx, `select capture_proxy.depart(no, id, $3, $4, $5, 0) from capture_proxy.sessions where id = $1 and instance = $2`,
		text(session), text(instance), s.name(), number, forwarded)
	return err
}

const stateQuery = `select s.id, s.instance, a.calls, a.turns, a.ended, coalesce(a.ending, ''), coalesce(a.cancelled, ''),
		(select count(*) from capture_proxy.inflight i where i.session = s.no and capture_proxy.alive(i.proxy)),
		extract(epoch from clock_timestamp() - a.touched)::float8
	from capture_proxy.sessions s join capture_proxy.admission a on a.session = s.no where s.id = any($1)`

// States implements Shared.
func (s *Store) States(ctx context.Context, ids ...string) (states map[string]store.State, err error) {
	for i := range ids {
		ids[i] = text(ids[i])
	}
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		states = map[string]store.State{}
		rows, err := s.pool.Query(ctx, stateQuery, ids)
		if err != nil {
			return err
		}
		var id string
		var st store.State
		var ending string
		var idle float64
		_, err = pgx.ForEachRow(rows, []any{&id, &st.Instance, &st.Calls, &st.Turns, &st.Ended, &ending, &st.Cancelled, &st.InFlight, &idle}, func() error {
			st.Ending, st.Mine = ending != "", ending == s.name() && ending != ""
			st.Idle = max(0, time.Duration(idle*float64(time.Second)))
			if st.InFlight > 0 {
				st.Idle = 0
			}
			states[id] = st
			return nil
		})
		return err
	})
	return states, err
}

// Decisive implements Shared.
func (s *Store) Decisive(ctx context.Context, id, instance string) (turns int, calls []*record.Call, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		turns, calls = 0, nil
		rows, err := s.pool.Query(ctx, `select a.turns, c.number, c.outcome, c.detail from capture_proxy.sessions s
			join capture_proxy.admission a on a.session = s.no
			left join capture_proxy.calls c on c.session = s.no
				and c.number >= coalesce((select max(number) from capture_proxy.calls where session = s.no and node), 0)
			where s.id = $1 and s.instance = $2 order by c.number`, text(id), text(instance))
		if err != nil {
			return err
		}
		found := false
		var number *int
		var outcome, detail *string
		_, err = pgx.ForEachRow(rows, []any{&turns, &number, &outcome, &detail}, func() error {
			if found = true; number != nil {
				calls = append(calls, &record.Call{Number: *number, Outcome: record.Outcome(*outcome), Detail: *detail})
			}
			return nil
		})
		if err == nil && !found {
			err = missing(id)
		}
		return err
	})
	return turns, calls, err
}

// NumRunning implements Shared.
func (s *Store) NumRunning(ctx context.Context) (n int, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.pool.QueryRow(ctx, `select count(*) from capture_proxy.sessions where status = 'running'`).Scan(&n)
	})
	return n, err
}

// Idle implements Shared.
func (s *Store) Idle(ctx context.Context, since time.Duration) ([]string, error) {
	return s.ids(ctx, `select s.id from capture_proxy.sessions s join capture_proxy.admission a on a.session = s.no
		where s.status = 'running' and a.touched < now() - $1 * interval '1 s'
		and not exists (select from capture_proxy.inflight i where i.session = s.no and capture_proxy.alive(i.proxy))`, since.Seconds())
}

// Orphans implements Shared.
func (s *Store) Orphans(ctx context.Context) ([]string, error) {
	return s.ids(ctx, `select s.id from capture_proxy.sessions s join capture_proxy.admission a on a.session = s.no
		where s.status = 'running' and a.ending is not null and not capture_proxy.alive(a.ending)`)
}

func (s *Store) ids(ctx context.Context, query string, args ...any) (ids []string, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return ids, err
}

// UpdateSession implements Shared.
func (s *Store) UpdateSession(ctx context.Context, id string, change func(*record.Session) error) (r *record.Session, err error) {
	var refused error
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			row, err := s.lock(ctx, tx, id)
			if err != nil {
				return err
			}
			if r, err = store.DecodeSession(row.record); err != nil {
				return err
			}
			if refused = change(r); refused != nil {
				return &ownError{refused}
			}
			return s.replace(ctx, tx, row, r)
		})
	})
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, err
	}
	return r, nil
}

// BeginEnd implements Shared.
func (s *Store) BeginEnd(ctx context.Context, id, instance, cancelled string) (store.State, error) {
	changed, err := s.exec(ctx, `with u as (
			update capture_proxy.admission a set
				ending = case when a.ending is null or a.ending = $3 or not capture_proxy.alive(a.ending) then $3 else a.ending end,
				cancelled = coalesce(nullif($4, ''), a.cancelled)
			from capture_proxy.sessions s where s.no = a.session and s.id = $1 and s.instance = $2 and not a.ended returning s.id)
		select case when $4 <> '' then capture_proxy.tell($5, $3, id, 'cancelled') end from u`,
		text(id), text(instance), s.name(), text(cancelled), string(store.NoticeAbort))
	if err != nil {
		return store.State{}, err
	}
	states, err := s.States(ctx, id)
	if err != nil {
		return store.State{}, err
	}
	st, there := states[text(id)]
	if !there || st.Instance != text(instance) || !changed && !st.Ended {
		return store.State{}, missing(id)
	}
	return st, nil
}

// AbandonEnd implements Shared.
func (s *Store) AbandonEnd(ctx context.Context, id, instance string) error {
	_, err := s.exec(ctx, `with u as (
			update capture_proxy.admission a set ending = null
			from capture_proxy.sessions s where s.no = a.session and s.id = $1 and s.instance = $2 and (a.ending = $3 or not capture_proxy.alive(a.ending))
			returning s.id)
		select capture_proxy.tell($4, $3, id, '') from u`, text(id), text(instance), s.name(), string(store.NoticeChanged))
	return err
}

// SetPolicy implements Shared.
func (s *Store) SetPolicy(ctx context.Context, version int64) error {
	_, err := s.exec(ctx, `with p as (
			insert into capture_proxy.policy (version) values ($1) on conflict (one) do update set version = $1 returning version)
		select capture_proxy.tell($2, $3, '', version::text) from p`, version, string(store.NoticePolicy), s.name())
	return err
}

// Policy implements Shared.
func (s *Store) Policy(ctx context.Context) (version *int64, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		err := s.pool.QueryRow(ctx, `select max(version) from capture_proxy.policy`).Scan(&version)
		return err
	})
	return version, err
}
