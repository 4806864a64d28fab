package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// label is text that an index holds: one that is too long for it goes by its hash.
func label(s string) string {
	if len(s) > 200 {
		sum := sha256.Sum256([]byte(s))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return text(s)
}

// columns are what a session's row holds beside its id.
type columns struct {
	status, group, run, env string
	record                  []byte
	maxCalls                *int
	ended                   bool
}

func columnsOf(s *record.Session) (columns, error) {
	encoded, err := store.EncodeSession(s)
	if err != nil {
		return columns{}, err
	}
	l := store.LabelsOf(s)
	return columns{
		status: label(string(s.Status)), group: label(l.Group), run: label(l.Run), env: label(l.Env), record: encoded,
		maxCalls: s.Spec.MaxModelCalls, ended: s.Status != record.Running,
	}, nil
}

func missing(id string) error { return fmt.Errorf("postgres: session %q: %w", id, store.ErrNotFound) }

// CreateSession implements Store.
func (s *Store) CreateSession(ctx context.Context, r *record.Session) error {
	c, err := columnsOf(r)
	if err != nil {
		return err
	}
	return s.try(ctx, func(ctx context.Context, again bool) error {
		tag, err := s.pool.Exec(ctx, `with s as (
				insert into capture_proxy.sessions (id, instance, status, grp, run, env, created_s, created_ns, record)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing returning no)
			insert into capture_proxy.admission (session, max_calls, ended) select no, $10, $11 from s`,
			text(r.ID), text(r.Instance), c.status, c.group, c.run, c.env, r.CreatedAt.Unix(), r.CreatedAt.Nanosecond(), c.record, c.maxCalls, c.ended)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		if again { // it may have been created by the try whose fate is not known
			old, err := s.Session(ctx, r.ID)
			if err == nil && old.Instance == r.Instance {
				return nil
			}
		}
		return fmt.Errorf("postgres: session %q: %w", r.ID, store.ErrExists)
	})
}

// PutSession implements Store.
func (s *Store) PutSession(ctx context.Context, r *record.Session) error {
	return s.try(ctx, func(ctx context.Context, _ bool) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			row, err := s.lock(ctx, tx, r.ID)
			if err != nil {
				return err
			}
			return s.replace(ctx, tx, row, r)
		})
	})
}

// lockedRow is a session's row that nobody else changes.
type lockedRow struct {
	no       int64
	instance string
	created  time.Time
	record   []byte
}

func (s *Store) lock(ctx context.Context, tx pgx.Tx, id string) (*lockedRow, error) {
	var row lockedRow
	var seconds, nanos int64
	err := tx.QueryRow(ctx, `select no, instance, created_s, created_ns, record from capture_proxy.sessions where id = $1 for no key update`, text(id)).
		Scan(&row.no, &row.instance, &seconds, &nanos, &row.record)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, missing(id)
	}
	row.created = time.Unix(seconds, nanos)
	return &row, err
}

// replace puts a new record into a row.
func (s *Store) replace(ctx context.Context, tx pgx.Tx, row *lockedRow, r *record.Session) error {
	if row.instance != "" && r.Instance != "" && row.instance != text(r.Instance) {
		return fmt.Errorf("postgres: session %q is another one of that name now: %w", r.ID, store.ErrNotFound)
	}
	if !row.created.Equal(r.CreatedAt) {
		return &ownError{fmt.Errorf("postgres: session %q was created at %s, a new record cannot say %s", r.ID, row.created, r.CreatedAt)}
	}
	c, err := columnsOf(r)
	if err != nil {
		return &ownError{err}
	}
	batch := &pgx.Batch{}
	batch.Queue(`update capture_proxy.sessions set status = $2, grp = $3, run = $4, env = $5, record = $6 where no = $1`,
		row.no, c.status, c.group, c.run, c.env, c.record)
	batch.Queue(`update capture_proxy.admission set max_calls = $2, ended = $3, ending = case when $3 then null else ending end where session = $1`,
		row.no, c.maxCalls, c.ended)
	batch.Queue(`select capture_proxy.tell($1, $2, $3, '')`, string(store.NoticeChanged), s.name(), text(r.ID))
	return tx.SendBatch(ctx, batch).Close()
}

// Session implements Store.
func (s *Store) Session(ctx context.Context, id string) (r *record.Session, err error) {
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		var encoded []byte
		err := s.pool.QueryRow(ctx, `select record from capture_proxy.sessions where id = $1`, text(id)).Scan(&encoded)
		if errors.Is(err, pgx.ErrNoRows) {
			return missing(id)
		}
		if err == nil {
			r, err = store.DecodeSession(encoded)
		}
		return err
	})
	return r, err
}

// DeleteSession implements Store.
func (s *Store) DeleteSession(ctx context.Context, id string) error {
	return s.try(ctx, func(ctx context.Context, again bool) error {
		tag, err := s.pool.Exec(ctx, `with gone as (delete from capture_proxy.sessions where id = $1 returning id)
			select capture_proxy.tell($2, $3, id, '') from gone`, text(id), string(store.NoticeChanged), s.name())
		if err == nil && tag.RowsAffected() == 0 && !again {
			err = missing(id)
		}
		return err
	})
}

// Sessions implements Store.
func (s *Store) Sessions(ctx context.Context, f store.Filter) (list []*record.Session, next string, err error) {
	query, args, err := listQuery(f)
	if err != nil {
		return nil, "", err
	}
	var damage []error
	err = s.try(ctx, func(ctx context.Context, _ bool) error {
		list, next, damage = nil, "", nil
		rows, err := s.pool.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		var shown store.Cursor
		for n := 0; rows.Next(); n++ {
			var c store.Cursor
			var seconds, nanos int64
			var encoded []byte
			if err := rows.Scan(&c.ID, &seconds, &nanos, &encoded); err != nil {
				rows.Close()
				return err
			}
			if f.Limit > 0 && n == f.Limit {
				next = shown.String()
				break
			}
			c.Created = time.Unix(seconds, nanos)
			shown = c
			r, err := store.DecodeSession(encoded)
			if err != nil {
				damage = append(damage, fmt.Errorf("session %q: %w", c.ID, err))
				continue
			}
			list = append(list, r)
		}
		rows.Close()
		return rows.Err()
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, errors.Join(damage...)
}

func listQuery(f store.Filter) (string, []any, error) {
	var where []string
	var args []any
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		where = append(where, condition)
	}
	for _, c := range []struct{ column, value string }{{"status", f.Status}, {"grp", f.Group}, {"run", f.Run}, {"env", f.Env}} {
		switch {
		case c.value == string(record.Running) && c.column == "status": // in so many words, for the index
			add("status = 'running'")
		case c.value != "":
			add(c.column+" = ? and "+c.column+" <> ''", label(c.value))
		}
	}
	if !f.Since.IsZero() {
		add("(created_s, created_ns) >= (?, ?)", f.Since.Unix(), f.Since.Nanosecond())
	}
	if f.After != "" {
		c, err := store.ParseCursor(f.After)
		if err != nil {
			return "", nil, err
		}
		add("(created_s, created_ns, id) < (?, ?, ?)", c.Created.Unix(), c.Created.Nanosecond(), text(c.ID))
	}
	query := "select id, created_s, created_ns, record from capture_proxy.sessions"
	if len(where) > 0 {
		query += " where " + strings.Join(where, " and ")
	}
	query += " order by created_s desc, created_ns desc, id desc"
	if f.Limit > 0 {
		query += fmt.Sprintf(" limit %d", f.Limit+1)
	}
	return query, args, nil
}
