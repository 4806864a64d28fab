package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// client is one connection of the load generator. It reads just as much HTTP as the servers here write.
type client struct {
	conn *timedConn
	br   *bufio.Reader
	body []byte // of the answer, framing removed
	// firstByte is when the first byte of the body came, last when the newest did.
	firstByte time.Time
	status    int
	visit     func(body []byte, at time.Time) // called whenever the body has grown; nil for nothing
}

// timedConn notes when bytes came.
type timedConn struct {
	net.Conn
	at time.Time
}

func (c *timedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.at = time.Now()
	return n, err
}

// dial connects. A Linux host has 28,000 ports per address; from several addresses it can hold more connections.
func dial(addr string, source int) (*client, error) {
	d := net.Dialer{Timeout: 20 * time.Second}
	if source > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+source))}
	}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	timed := &timedConn{Conn: c}
	return &client{conn: timed, br: bufio.NewReaderSize(timed, 16<<10)}, nil
}

func (c *client) close() { c.conn.Close() }

// do sends one request and reads its answer into c.body.
func (c *client) do(request ...[]byte) error {
	c.body, c.firstByte, c.status = c.body[:0], time.Time{}, 0
	buffers := net.Buffers(request)
	if _, err := buffers.WriteTo(c.conn.Conn); err != nil {
		return err
	}
	length, isChunked, err := c.head()
	switch {
	case err != nil:
		return err
	case isChunked:
		err = c.chunks()
	case length < 0:
		return errors.New("an answer without a length")
	default:
		err = c.take(length)
	}
	if err == nil && c.status != 200 {
		err = fmt.Errorf("status %d: %.300s", c.status, c.body)
	}
	return err
}

// head reads the status line and the headers.
func (c *client) head() (length int, isChunked bool, err error) {
	length = -1
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case c.status == 0:
			if len(line) < 12 {
				return 0, false, fmt.Errorf("a status line that is none: %q", line)
			}
			if c.status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, false, fmt.Errorf("a status line that is none: %q", line)
			}
		case len(line) == 0:
			return length, isChunked, nil
		case len(line) > 15 && line[0]|0x20 == 'c' && bytes.EqualFold(line[:15], []byte("content-length:")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[15:]))); err != nil {
				return 0, false, err
			}
		case len(line) > 18 && line[0]|0x20 == 't' && bytes.EqualFold(line[:18], []byte("transfer-encoding:")):
			isChunked = true
		}
	}
}

// take reads n bytes of the body.
func (c *client) take(n int) error {
	for n > 0 {
		if c.br.Buffered() == 0 {
			if _, err := c.br.Peek(1); err != nil {
				return err
			}
		}
		part, err := c.br.Peek(min(n, c.br.Buffered()))
		if err != nil {
			return err
		}
		if c.firstByte.IsZero() {
			c.firstByte = c.conn.at
		}
		c.body = append(c.body, part...)
		n -= len(part)
		c.br.Discard(len(part)) //nolint:errcheck // they are buffered
		if c.visit != nil {
			c.visit(c.body, c.conn.at)
		}
	}
	return nil
}

// chunks reads a body in the chunked transfer encoding.
func (c *client) chunks() error {
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return fmt.Errorf("a chunk of the size %q", line)
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if _, err := c.br.Discard(2); err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
	}
}
