package postgres

import (
	"context"
	"errors"
	"fmt"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// Calls implements Store.
func (s *Store) Calls(ctx context.Context, id string) (calls []*record.Call, err error) {
	damage, err := s.decoded(ctx, id, func(payloads [][]byte) (_ []*record.Call, err error) {
		calls, err = store.DecodeCalls(payloads)
		return calls, err
	})
	if err != nil {
		return nil, err
	}
	return calls, damage
}

// Past implements Store.
func (s *Store) Past(ctx context.Context, id string) (past *store.Past, err error) {
	damage, err := s.decoded(ctx, id, func(payloads [][]byte) (_ []*record.Call, err error) {
		past, err = store.DecodePast(payloads)
		return past.Calls, err
	})
	if err != nil {
		return nil, err
	}
	return past, damage
}

// decoded reads all calls of a session by decode. What cannot be read of them is damage.
func (s *Store) decoded(ctx context.Context, id string, decode func(payloads [][]byte) ([]*record.Call, error)) (damage, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		instance, payloads, err := s.payloads(ctx, id, `select s.instance, c.payload from capture_proxy.sessions s
			left join capture_proxy.calls c on c.session = s.no where s.id = $1 order by c.dict, c.seq`, text(id))
		if err != nil {
			return err
		}
		calls, err := decode(payloads)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return err
		}
		damage = err
		for _, c := range calls {
			c.Session, c.Instance = id, instance
		}
		return nil
	})
	return damage, err
}

// Body implements Store.
func (s *Store) Body(ctx context.Context, id string, number int) (body []byte, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		_, payloads, err := s.payloads(ctx, id, `select s.instance, c.payload from capture_proxy.sessions s
			join capture_proxy.calls t on t.session = s.no and t.number = $2
			join capture_proxy.calls c on c.session = s.no and c.dict = t.dict and c.seq <= t.seq
			where s.id = $1 order by c.seq`, text(id), number)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("postgres: call %d of session %q: %w", number, id, store.ErrNotFound)
		}
		if err == nil {
			body, err = store.DecodeBody(payloads)
		}
		return err
	})
	return body, err
}

// payloads runs a query for a session's instance and calls.
func (s *Store) payloads(ctx context.Context, id, query string, args ...any) (instance string, payloads [][]byte, err error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(&instance, &payload); err != nil {
			return "", nil, err
		}
		if found = true; payload != nil {
			payloads = append(payloads, payload)
		}
	}
	if err := rows.Err(); err != nil {
		return "", nil, err
	}
	if !found {
		return "", nil, missing(id)
	}
	return instance, payloads, nil
}
