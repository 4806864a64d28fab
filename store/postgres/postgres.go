// Package postgres is a [store.Store] in a PostgreSQL database, which any number of proxies share ([store.Shared]).
//
//	st, err := postgres.Open(ctx, "postgres://user@host/db", postgres.Options{})
//
// # What lies where
//
// Everything stands in the schema capture_proxy, which Open creates or brings up to date; migrations/ says what is in it.
// A session is a row with its record, in the encoding of the embedded log. A call is a row with a payload, in that
// encoding too: what a session's calls repeat is stored once by each proxy that serves it, because each has a dictionary
// of its own for the session (store.Dictionary). A turn's cost does not grow with what came before it.
//
// # The life of a write
//
// Append encodes what it can in the caller's goroutine and queues the rest. One writer takes all that is queued and
// stores it with one statement, which is one transaction: concurrent turns share the flush. Appending is idempotent by
// session and number, so a batch of which the fate is unknown, because the connection broke, is sent again as it was
// until the database answers. What waits meanwhile is bounded (ErrBusy), and Healthy says that the database is away.
//
// # Several proxies
//
// What proxies must agree on stands in the table admission, one row per session: whoever admits a call locks that row,
// numbers the call and reserves budget (function admit). A call under way is a row in inflight until its turn is stored,
// in the same transaction. Proxies send signs of life; calls of one that is dead no longer count. They tell each other
// what happens with NOTIFY on the channel capture_proxy; a proxy whose listening connection broke is told that it may
// have missed something. A connection pooler between here and the database must pool by session.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"captureproxy/store"
)

// Options tune a Store; the zero value is right for use.
type Options struct {
	// MaxWaiting is how many bytes of calls may wait for the database before Append answers ErrBusy; 256 MiB when 0.
	MaxWaiting int64
	// Patience is how long reads and writes of records wait for a database that is away, when their context does not
	// end before; 10 s when 0.
	Patience time.Duration
	// CloseWithin is how long Close waits for a database that is away, with calls that are not stored yet; 30 s when 0.
	CloseWithin time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 256 << 20
	}
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	if o.CloseWithin <= 0 {
		o.CloseWithin = 30 * time.Second
	}
	return o
}

// connections is how many there are at most, the listening one apart, unless the address has pool_max_conns.
const connections = 12

// Store is a store in a database. It is safe for concurrent use.
type Store struct {
	opts    Options
	pool    *pgxpool.Pool
	encoder *store.Encoder
	queue   *queue
	health  health
	token   atomic.Int64 // of the last call that was admitted here

	written chan struct{} // closed when the writer has ended
	giveUp  chan struct{} // closed when it need not try any longer

	work       context.Context // of what runs in the background
	stop       context.CancelFunc
	background sync.WaitGroup
	lookNow    chan struct{} // room for one: see whether the database is there

	mu     sync.Mutex
	proxy  string // the name under which Join was called
	closed bool
}

var _ store.Shared = (*Store)(nil)

// IsAddress reports whether a text is the address of a database.
func IsAddress(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

// Name shows an address without its secrets: host, port and database.
func Name(address string) string {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return "postgres"
	}
	return fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)
}

// Open connects to a database, and creates the schema or brings it up to date. No error shows the address, which may
// hold a password.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	if !IsAddress(address) {
		return nil, errors.New("postgres: the address of the database is not of the form postgres://user:password@host:port/database")
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, errors.New("postgres: the address of the database cannot be read: write it as postgres://user:password@host:port/database, with special characters percent-encoded")
	}
	if !strings.Contains(address, "pool_max_conns") {
		config.MaxConns = connections
	}
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "capture-proxy"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	opts = opts.withDefaults()
	work, stop := context.WithCancel(context.Background())
	s := &Store{
		opts: opts, pool: pool, encoder: store.NewEncoder(), queue: newQueue(opts.MaxWaiting),
		written: make(chan struct{}), giveUp: make(chan struct{}), work: work, stop: stop, lookNow: make(chan struct{}, 1),
	}
	go newWriter(s).run()
	s.background.Go(func() { s.look(work) })
	return s, nil
}

// Close implements Store. When the database is away and stays so, what was accepted is lost and the error says how much.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		<-s.written
		return nil
	}
	s.queue.close()
	var err error
	select {
	case <-s.written:
	case <-time.After(s.opts.CloseWithin):
		close(s.giveUp)
		<-s.written
		err = fmt.Errorf("postgres: the database did not come back within %s, and calls were waiting for it: they are lost", s.opts.CloseWithin)
	}
	s.stop()
	s.background.Wait()
	s.pool.Close()
	return err
}

// Waiting returns how much is not stored yet.
func (s *Store) Waiting() (writes int, bytes int64) { return s.queue.waiting() }

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// name is that of this proxy.
func (s *Store) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxy
}

// try runs f until it succeeds, fails for a reason of its own, or patience is over: a database that restarts is waited
// for. f must be harmless to repeat; again is true when the fate of an earlier try is not known.
func (s *Store) try(ctx context.Context, f func(ctx context.Context, again bool) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.isClosed() {
		return fmt.Errorf("postgres: %w", store.ErrClosed)
	}
	patience, cancel := context.WithTimeout(ctx, s.opts.Patience)
	defer cancel()
	pause := 20 * time.Millisecond
	for again := false; ; again = true {
		err := f(patience, again)
		if err == nil || !passes(err) {
			return err
		}
		s.lookSoon()
		select {
		case <-patience.Done():
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			return fmt.Errorf("postgres: the database does not answer: %w", err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// errorCode is the SQLSTATE of an error, "" for one that is not the database's.
func errorCode(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// passes reports whether an error is of a kind that passes: the connection broke, the server restarts, or it is short
// of something. A query that fails for what it says does so again.
func passes(err error) bool {
	code := errorCode(err)
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrEnding),
		errors.Is(err, store.ErrDamaged):
		return false
	case code == "":
		return broke(err)
	}
	switch code[:2] {
	case "08", "25", "40", "53", "55", "57", "58":
		return true
	}
	return false
}

// broke reports whether an error is that of a connection, made or to be made.
func broke(err error) bool {
	var connecting *pgconn.ConnectError
	var network net.Error
	return pgconn.SafeToRetry(err) || errors.As(err, &connecting) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "conn closed") // an error of pgx that has no name
}

// ownError is an error that has nothing to do with the database.
type ownError struct{ error }

func (e *ownError) Unwrap() error { return e.error }
