package engine

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxIdle is how long an upstream connection may lie unused before it is not trusted any more. Engines' servers close
// theirs after five seconds (WIRE 1 and 3).
const maxIdle = 4 * time.Second

// settled is how long an engine's server needs at most, after an answer, to close a connection that it does not keep and
// has not said so: llama.cpp's after each stream. A request sent within that time meets a closing connection.
const settled = 50 * time.Millisecond

// hastyFor is how long an engine that was seen to do so is taken to do so: it may be replaced by another.
const hastyFor = 10 * time.Minute

// maxIdleConns bounds the unused connections kept to one engine.
const maxIdleConns = 1024

// ErrNotSent wraps the errors of a call that never reached the engine, so that it may be sent again.
var ErrNotSent = errors.New("not sent")

// pool keeps blocking HTTP/1.1 connections to one origin. A call owns its connection from the request to the end of the
// answer: no goroutine stands between the socket and the reader, which halves the added latency of a call against
// net/http's transport.
type pool struct {
	address string
	tls     *tls.Config // nil for plain HTTP
	dialer  net.Dialer

	mu   sync.Mutex
	idle []*conn // most recently used last

	hasty atomic.Int64 // until when, in Unix nanoseconds, unused connections are trusted only once they have settled
}

func newPool(u *url.URL, noLinkLocal bool) *pool {
	p := &pool{address: u.Host, dialer: net.Dialer{Timeout: 10 * time.Second}}
	if noLinkLocal {
		p.dialer.Control = refuseLinkLocal
	}
	port := "80"
	if u.Scheme == "https" {
		port = "443"
		p.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), port)
	}
	return p
}

// refuseLinkLocal looks at the address that a name has led to, at the moment of connecting: whatever the name led to when it
// was allowed, and however the address is spelled, this is where the bytes would go.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ServesCredentials(to.Addr()) {
		return fmt.Errorf("%s is an address where clouds serve credentials, or link-local: no engine is there", to.Addr())
	}
	return nil
}

// ServesCredentials says whether an address is one where clouds serve their machines credentials: the link-local ones, and
// the few others that clouds chose, by themselves or inside of an IPv6 address that leads to them.
func ServesCredentials(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		b := addr.As16()
		switch {
		case b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b: // NAT64
			return ServesCredentials(netip.AddrFrom4([4]byte(b[12:])))
		case b[0] == 0x20 && b[1] == 0x02: // 6to4
			return ServesCredentials(netip.AddrFrom4([4]byte(b[2:6])))
		case [12]byte(b[:12]) == [12]byte{} && !addr.IsLoopback() && !addr.IsUnspecified(): // IPv4-compatible
			return ServesCredentials(netip.AddrFrom4([4]byte(b[12:])))
		}
	}
	if addr.IsLinkLocalUnicast() {
		return true
	}
	switch addr.String() {
	case "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192": // AWS, Google, Alibaba, Azure, Oracle
		return true
	}
	return false
}

// conn is one upstream connection.
type conn struct {
	net.Conn
	tcp     *net.TCPConn
	br      *bufio.Reader
	idledAt time.Time

	// readBy is the read deadline that is set; the owner's.
	readBy time.Time
	// headLeft is how many bytes may still be read while the head of an answer is; negative behind it.
	headLeft int
	// readErr is the last error of reading. net/http reports one in the middle of a header as bad syntax.
	readErr error

	// interrupted is set by any goroutine that wants the owner to stop waiting; see interrupt.
	interrupted atomic.Bool
}

// get returns a connection that was open a moment ago, or a new one. unused is for how long it was not used, 0 if never.
func (p *pool) get(ctx context.Context) (c *conn, unused time.Duration, err error) {
	now := time.Now()
	hasty := p.hasty.Load() > now.UnixNano()
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			c, err = p.dial(ctx)
			return c, 0, err
		}
		c = p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if unused = max(now.Sub(c.idledAt), 1); unused < maxIdle && !(hasty && unused < settled) {
			if c.alive() {
				return c, unused, nil
			}
			p.closedAfter(unused)
		}
		c.Close()
	}
}

// put gives a connection back whose answer was read to its end.
func (p *pool) put(c *conn) {
	now := time.Now()
	c.idledAt = now
	// Its deadlines stay as they are: whoever takes it sets new ones, and until then nobody reads or writes.
	if c.interrupted.Load() || c.br.Buffered() > 0 {
		c.Close()
		return
	}
	var stale []*conn
	p.mu.Lock()
	for len(p.idle) > 0 && (now.Sub(p.idle[0].idledAt) > maxIdle || len(p.idle) >= maxIdleConns) {
		stale = append(stale, p.idle[0])
		p.idle = p.idle[1:]
	}
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	for _, s := range stale {
		s.Close()
	}
}

// closedAfter notes that the engine closed a connection that was unused for so long, or less.
func (p *pool) closedAfter(unused time.Duration) {
	if unused < settled {
		p.hasty.Store(time.Now().Add(hastyFor).UnixNano())
	}
}

// close closes the unused connections.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	nc, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	c := &conn{Conn: nc, tcp: nc.(*net.TCPConn)}
	if p.tls != nil {
		secure := tls.Client(nc, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("%w: TLS handshake: %w", ErrNotSent, err)
		}
		c.Conn = secure
	}
	c.headLeft = -1
	c.br = bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

// maxHead bounds the headers of an answer, those of informational answers before it included.
const maxHead = 1 << 20

// Read reads from the engine, while the head of an answer is read only so much: net/http's reader has no limit of its own.
func (c *conn) Read(p []byte) (int, error) {
	switch {
	case c.headLeft == 0:
		c.readErr = fmt.Errorf("the headers of the engine's answer are longer than %d KiB", maxHead>>10)
		return 0, c.readErr
	case c.headLeft > 0:
		p = p[:min(len(p), c.headLeft)]
	}
	n, err := c.Conn.Read(p)
	if c.headLeft > 0 {
		c.headLeft -= n
	}
	if err != nil {
		c.readErr = err
	}
	return n, err
}

// alive looks whether the engine closed the connection or sent something unasked. It narrows the window in which a request
// meets a closing connection to microseconds: what may have been processed is never sent twice.
func (c *conn) alive() bool { return c.sent() == nothing }

// nothing is what sent returns of an open connection that has nothing to read.
const nothing = -1

// sent looks, without waiting, at what the engine has sent: nothing, or at least so many bytes; 0 for its end.
func (c *conn) sent() (n int) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		var err error
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK:
			n = nothing
		case err != nil:
			n = 0
		}
		return true
	})
	if err != nil {
		return 0
	}
	return n
}

// unread says of a connection that the engine has closed whether it did so before it had read what was sent to it: the end
// is then followed by a reset, which is what a closed socket gives to bytes that still come (RFC 9293, 3.6.1). A reset alone
// proves nothing, nor does an end alone. It waits for the reset as long as one may be on its way.
func (c *conn) unread() bool {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return false
	}
	for wait := 50 * time.Microsecond; wait < 200*time.Millisecond; wait *= 2 {
		code := 0
		err := raw.Control(func(fd uintptr) {
			code, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		})
		if err != nil || code != 0 {
			return err == nil
		}
		time.Sleep(wait)
	}
	return false
}

// interrupt wakes the owner out of its read or write, which then fails with a deadline error. It may be called by any
// goroutine, any number of times.
func (c *conn) interrupt() {
	c.interrupted.Store(true)
	c.SetDeadline(time.Unix(1, 0))
}

// expect gives the next read until d from now, or a little longer: the deadline is moved once it has come closer than d,
// and then by a sixteenth more, because moving it costs as much as reading a chunk.
func (c *conn) expect(d time.Duration) error {
	now := time.Now()
	if left := c.readBy.Sub(now); left >= d && left <= d+d/16 {
		return nil
	}
	c.readBy = now.Add(d + d/16)
	if err := c.SetReadDeadline(c.readBy); err != nil {
		return err
	}
	if c.interrupted.Load() { // the deadline just set may have overwritten interrupt's
		return c.SetDeadline(time.Unix(1, 0))
	}
	return nil
}

// Timeouts are the idle limits of a call; there is no absolute one (SPEC 3).
type Timeouts struct {
	FirstByte time.Duration // from the request to the first byte of the answer
	Idle      time.Duration // between two bytes
}

// Response is an engine's answer. Its body must be closed.
type Response struct {
	Status int
	Header http.Header
	Length int64 // of the body as the engine announces it, -1 when it does not
	Body   *Body
}

// Body reads an answer's bytes, transfer encoding removed.
type Body struct {
	conn   *conn
	pool   *pool
	r      io.ReadCloser
	idle   time.Duration
	keep   bool // the engine keeps the connection open
	ended  bool
	closed bool
	stop   func() bool // ends the watch on the caller's context
}

// Read reads within the idle limit. It fails at once when the context of the round trip is done.
func (b *Body) Read(p []byte) (int, error) {
	if b.conn.br.Buffered() == 0 {
		if err := b.conn.expect(b.idle); err != nil {
			return 0, err
		}
	}
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended = true
	}
	return n, err
}

// Ready says, without waiting, whether bytes of the body have come. What has come encrypted may be anything.
func (b *Body) Ready() bool {
	return b.conn.br.Buffered() > 0 || b.pool.tls == nil && b.conn.sent() > 0
}

// Hurry makes d the idle limit from now on.
func (b *Body) Hurry(d time.Duration) { b.idle = d }

// Closed says whether Close was called.
func (b *Body) Closed() bool { return b.closed }

// Close gives the connection back when the body was read to its end, and closes it otherwise, which aborts the call at
// the engine.
func (b *Body) Close() {
	if b.closed {
		return
	}
	b.closed = true
	quiet := b.stop == nil || b.stop() // else an interrupt is on its way, and would meet the connection's next call
	if b.ended && b.keep && quiet {
		b.pool.put(b.conn)
		return
	}
	b.conn.Close()
}

// roundTrip sends one request, head (request line and headers, with the empty line) and body, calls meanwhile once it is on
// its way, and reads the answer's head. ctx aborts it, and later the reading of the body, by interrupting the connection.
// An error that wraps ErrNotSent means that the engine cannot have seen the request.
func (p *pool) roundTrip(ctx context.Context, method string, head, body []byte, t Timeouts, meanwhile func()) (*Response, error) {
	once := func() {
		if meanwhile != nil {
			meanwhile()
			meanwhile = nil
		}
	}
	c, unused, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := p.exchange(ctx, c, method, head, body, t, once)
	if unused > 0 && errors.Is(err, errClosed) {
		p.closedAfter(unused)
	}
	if unused > 0 && errors.Is(err, ErrNotSent) && ctx.Err() == nil { // it was closed under us
		if c, err = p.dial(ctx); err != nil {
			return nil, err
		}
		resp, err = p.exchange(ctx, c, method, head, body, t, once)
	}
	return resp, err
}

// errClosed wraps the errors of a call whose connection the engine closed before the first byte of an answer.
var errClosed = errors.New("the engine closed the connection without an answer")

// exchange is roundTrip on one connection, which it owns.
func (p *pool) exchange(ctx context.Context, c *conn, method string, head, body []byte, t Timeouts, meanwhile func()) (*Response, error) {
	stop := context.AfterFunc(ctx, c.interrupt)
	fail := func(err error) (*Response, error) {
		stop()
		c.Close()
		return nil, err
	}
	if err := c.SetWriteDeadline(time.Now().Add(t.Idle)); err != nil {
		return fail(err)
	}
	if c.interrupted.Load() {
		return fail(context.Cause(ctx))
	}
	buffers := net.Buffers{head, body}
	if n, err := buffers.WriteTo(c.Conn); err != nil {
		if n == 0 || errors.Is(err, syscall.EPIPE) { // it had closed its end, and has not read all of it
			err = fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return fail(err)
	}
	meanwhile()
	if err := c.expect(t.FirstByte); err != nil {
		return fail(err)
	}
	resp, err := c.readHead(method)
	if err != nil {
		return fail(err)
	}
	return &Response{
		Status: resp.StatusCode,
		Header: resp.Header,
		Length: resp.ContentLength,
		Body:   &Body{conn: c, pool: p, r: resp.Body, idle: t.Idle, keep: !resp.Close, stop: stop},
	}, nil
}

// readHead reads the head of an answer, and those of the informational ones before it.
func (c *conn) readHead(method string) (*http.Response, error) {
	c.headLeft, c.readErr = maxHead, nil
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	for err == nil && resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(c.br, &http.Request{Method: method})
	}
	came := maxHead - c.headLeft
	c.headLeft = -1
	if err == nil {
		return resp, nil
	}
	if c.readErr != nil {
		err = c.readErr
	}
	switch ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); {
	case ended && came > 0:
		err = fmt.Errorf("the engine closed the connection in the head of its answer: %w", err)
	case ended && c.unread():
		err = fmt.Errorf("%w: %w: %w", ErrNotSent, errClosed, err)
	case ended || errors.Is(err, syscall.ECONNRESET) && came == 0:
		err = fmt.Errorf("%w: %w", errClosed, err)
	}
	return nil, err
}

// IsTimeout reports whether err is a passed idle limit (or an interrupt).
func IsTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
