package proxy

import (
	"errors"
	"io"
	"log"
	"net/http"
	"os"
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
	// Linger is how long a client that was answered before its body was read may go on sending it.
	Linger time.Duration
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
	or(&l.Linger, 10*time.Second)
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
		conn, ok := w.(connection)
		switch {
		case !ok:
		case r.ContentLength == 0:
			if conn.SetReadDeadline(time.Time{}) != nil {
				return // the connection is closed
			}
		default:
			body := &timedBody{ReadCloser: r.Body, conn: conn, limits: l}
			r.Body = body
			if err := conn.EnableFullDuplex(); err != nil { // or the server gives an unread body up with the answer's first byte
				return
			}
			next.ServeHTTP(w, r)
			if !body.ended {
				linger(conn, body, r.Header.Get("Expect") != "")
			}
			return
		}
		next.ServeHTTP(w, r)
	})
}

// connection is what an http.ResponseWriter of HTTP/1 can do with its connection.
type connection interface {
	http.Hijacker
	SetReadDeadline(time.Time) error
	EnableFullDuplex() error
	FlushError() error
}

// linger sends the answer of a request whose body nobody read to its end, and takes the body all the same. A connection
// that is closed on bytes in flight is reset, and many a client then loses the answer that it has not read yet (RFC 9112
// 9.6): a refusal that says what to do would look like a broken network. What is no readable body, and the body of a client
// that expected to be asked for it, ends the connection, or its rest would be taken for a request.
func linger(conn connection, body *timedBody, expected bool) {
	if conn.FlushError() != nil {
		return // the connection is broken, and the server knows
	}
	limit := body.limits.Linger
	if body.late {
		limit = min(limit, time.Second/2) // it had its time: enough to take the answer
	}
	until := time.Now().Add(limit)
	if !expected || body.n > 0 {
		if conn.SetReadDeadline(until) != nil {
			return
		}
		if _, err := io.Copy(io.Discard, body.ReadCloser); err == nil {
			return
		}
	}
	raw, _, err := conn.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server closes it
	}
	defer raw.Close()
	if half, ok := raw.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	if raw.SetReadDeadline(until) == nil {
		io.Copy(io.Discard, raw) //nolint:errcheck // ends with the client's own close, or with the time
	}
}

// timedBody is a request body whose sender must not dawdle. A read that came too late fails with os.ErrDeadlineExceeded.
type timedBody struct {
	io.ReadCloser
	conn   connection
	limits *Limits
	began  time.Time // when the first bytes had come
	until  time.Time // deadline for the next bytes
	n      int64
	ended  bool
	late   bool // it came too slowly
}

func (b *timedBody) Read(p []byte) (int, error) {
	if b.n > 0 && !b.ended { // for the first bytes there is time yet, see ReadTimeout
		if err := b.roll(time.Now()); err != nil {
			return 0, err
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	b.late = b.late || errors.Is(err, os.ErrDeadlineExceeded)
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
