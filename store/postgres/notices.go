package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"captureproxy/store"
)

// silence is how long the listening connection may say nothing before it is asked whether it is still there.
const silence = 20 * time.Second

// Join implements Shared.
func (s *Store) Join(ctx context.Context, proxy string, hear func(store.Notice)) (leave func(context.Context) error, err error) {
	s.mu.Lock()
	joined := s.proxy != ""
	if !joined {
		s.proxy = text(proxy)
	}
	s.mu.Unlock()
	if joined {
		return nil, errors.New("postgres: this store has been joined before")
	}
	if err := s.try(ctx, func(ctx context.Context, _ bool) error { return s.lookOnce(ctx) }); err != nil {
		return nil, err
	}
	listening, stop := context.WithCancel(s.work)
	conn, err := s.listen(ctx)
	if err != nil {
		stop()
		return nil, fmt.Errorf("postgres: listening for what other proxies do: %w", err)
	}
	s.background.Go(func() { s.hearAll(listening, conn, hear) })
	return func(ctx context.Context) error {
		stop()
		_, err := s.exec(ctx, `with p as (delete from capture_proxy.proxies where id = $1)
			delete from capture_proxy.inflight where proxy = $1`, s.name())
		s.mu.Lock()
		s.proxy = "" // no more signs of life
		s.mu.Unlock()
		return err
	}, nil
}

// listen opens a connection that hears notices.
func (s *Store) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "listen capture_proxy"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// hearAll passes on notices until ctx is done. A connection that breaks is opened again, and whoever listens is told
// that he may have missed something.
func (s *Store) hearAll(ctx context.Context, conn *pgx.Conn, hear func(store.Notice)) {
	for ctx.Err() == nil {
		if conn != nil {
			err := hearOn(ctx, conn, hear)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			conn.Close(closing) //nolint:errcheck // it has failed already, or is given up
			cancel()
			if ctx.Err() != nil {
				return
			}
			s.health.looked(fmt.Errorf("the listening connection broke: %w", err))
			s.lookSoon()
		}
		var err error
		if conn, err = s.listen(ctx); err == nil {
			hear(store.Notice{Kind: store.NoticeMissed})
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

// hearOn passes on what comes on a connection until it breaks.
func hearOn(ctx context.Context, conn *pgx.Conn, hear func(store.Notice)) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			var notice store.Notice
			if err := json.Unmarshal([]byte(n.Payload), &notice); err != nil {
				continue // not of ours: anybody may send on a channel
			}
			hear(notice)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
			if err := ping(ctx, conn); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return conn.Ping(ctx)
}

// Tell implements Shared.
func (s *Store) Tell(ctx context.Context, n store.Notice) error {
	n.From = s.name()
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if len(body) > store.MaxNotice {
		return fmt.Errorf("postgres: a notice of %d bytes is too long", len(body))
	}
	_, err = s.exec(ctx, "select pg_notify('capture_proxy', $1)", string(body))
	return err
}
