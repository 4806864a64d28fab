package proxy

import (
	"errors"
	"io"
	"log"
	"net/http"
	"time"
)

// Limits say how long a client may take with its request. Zero fields get defaults that no client of good will meets.
type Limits struct {
	// Head is the longest that a request's head may take.
	Head time.Duration
	// Pause is the longest silence within a body. A body that takes longer than Grace must also have come at Rate bytes a
	// second, from its beginning: a byte now and then keeps no connection.
	Pause, Grace time.Duration
	Rate         int64
	// Idle is how long a connection may lie unused.
	Idle time.Duration
}

func (l Limits) orDefaults() Limits {
	or := func(d *time.Duration, standard time.Duration) {
		if *d <= 0 {
			*d = standard
		}
	}
	or(&l.Head, 30*time.Second)
	or(&l.Pause, 30*time.Second)
	or(&l.Grace, time.Minute)
	or(&l.Idle, 10*time.Minute) // longer than any client's, or it would meet a connection that we close just then
	if l.Rate <= 0 {
		l.Rate = 1 << 10
	}
	return l
}

// NewHTTPServer returns the server that faces clients. It has no absolute limit on a call: a model may think for an hour.
// What is silent for too long is ended by who knows what it waits for.
func NewHTTPServer(h http.Handler, l Limits, complaints *log.Logger) *http.Server {
	l = l.orDefaults()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           timely(h, &l),
		Protocols:         protocols,
		ReadHeaderTimeout: l.Head,
		ReadTimeout:       l.Head + l.Pause, // until the first bytes of the body, and for a body that nobody reads
		IdleTimeout:       l.Idle,
		MaxHeaderBytes:    128 << 10, // twice what engines' own servers take: a stranger's head is memory that we give him
		ErrorLog:          complaints,
	}
}

// timely replaces the server's deadline for a whole request by one that moves with the bytes of its body. When the request
// is there no deadline is left: the server then reads on only to notice a hang-up, for as long as the answer takes.
func timely(next http.Handler, l *Limits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := w.(readDeadliner)
		switch {
		case !ok:
		case r.ContentLength == 0:
			if conn.SetReadDeadline(time.Time{}) != nil {
				return // the connection is closed
			}
		default:
			r.Body = &timedBody{ReadCloser: r.Body, conn: conn, limits: l}
		}
		next.ServeHTTP(w, r)
	})
}

type readDeadliner interface{ SetReadDeadline(time.Time) error }

// timedBody is a request body whose sender must not dawdle. A read that came too late fails with os.ErrDeadlineExceeded.
type timedBody struct {
	io.ReadCloser
	conn   readDeadliner
	limits *Limits
	began  time.Time // when the first bytes had come
	until  time.Time // deadline for the next bytes
	n      int64
	ended  bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.n > 0 && !b.ended { // for the first bytes there is time yet, see ReadTimeout
		if err := b.roll(time.Now()); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == io.EOF && !b.ended { //nolint:errorlint // a body's own end, never wrapped
		b.ended = true
		if failure := b.conn.SetReadDeadline(time.Time{}); failure != nil {
			return n, failure
		}
	}
	return n, err
}

// roll gives the next read its deadline. It moves only when it has come closer than the pause, and then by a sixteenth more:
// most bodies come in a read or two.
func (b *timedBody) roll(now time.Time) error {
	if b.began.IsZero() {
		b.began = now
	}
	if b.until.Sub(now) >= b.limits.Pause {
		return nil
	}
	b.until = now.Add(b.limits.Pause + b.limits.Pause/16)
	by := b.until
	if last := b.began.Add(b.limits.Grace + time.Duration(b.n/b.limits.Rate)*time.Second); last.Before(by) {
		by = last
	}
	return b.conn.SetReadDeadline(by)
}

// patientWriter gives a client that takes nothing no longer than the idle limit; output does it for model calls.
type patientWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	idle   time.Duration
	rolled int64
	own    bool // the handler has limits of its own
}

func (s *Server) patient(w http.ResponseWriter) *patientWriter {
	return &patientWriter{ResponseWriter: w, rc: http.NewResponseController(w), idle: s.Idle}
}

func (p *patientWriter) roll() error {
	if p.own {
		return nil
	}
	return rollWrite(p.rc, p.idle, &p.rolled)
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.roll(); err != nil {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// FlushError and SetWriteDeadline are what http.ResponseController looks for.
func (p *patientWriter) FlushError() error {
	if err := p.roll(); err != nil {
		return err
	}
	return p.rc.Flush()
}

// SetWriteDeadline makes the deadline the handler's own business.
func (p *patientWriter) SetWriteDeadline(t time.Time) error {
	p.own = true
	return p.rc.SetWriteDeadline(t)
}

// Unwrap is for the rest of http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// rollWrite moves the write deadline, once a second only: setting it costs as much as a small write.
func rollWrite(rc *http.ResponseController, idle time.Duration, rolled *int64) error {
	now := time.Now()
	if now.Unix() == *rolled {
		return nil
	}
	*rolled = now.Unix()
	if err := rc.SetWriteDeadline(now.Add(idle + time.Second)); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
