package engine

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawEngine serves each connection with what serve does to it.
func rawEngine(t *testing.T, serve func(c *net.TCPConn)) *pool {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	p := newPool(&url.URL{Scheme: "http", Host: l.Addr().String()}, false)
	t.Cleanup(func() {
		p.close()
		l.Close()
		all.Wait()
	})
	return p
}

const (
	rawRequest = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	rawAnswer  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

func trip(p *pool) error {
	resp, err := p.roundTrip(context.Background(), http.MethodGet, []byte(rawRequest), nil, Timeouts{FirstByte: time.Minute, Idle: time.Minute}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

// TestHastyEngine: a server that ends each connection a moment after its answer, without announcing it, as llama.cpp does
// after a stream, costs the call that finds it out, if that; and no request is made twice.
func TestHastyEngine(t *testing.T) {
	var served atomic.Int64
	p := rawEngine(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		served.Add(1)
		io.WriteString(c, rawAnswer)     //nolint:errcheck // the client may be gone
		time.Sleep(time.Millisecond / 5) // as long as a thread needs
		c.CloseWrite()                   //nolint:errcheck // likewise
		io.Copy(io.Discard, r)           //nolint:errcheck // it lingers, so that no reset tells
	})
	failed := 0
	const calls = 300
	for range calls {
		if err := trip(p); err != nil {
			if failed++; errors.Is(err, ErrNotSent) {
				t.Errorf("it may have been processed: %v", err)
			}
		}
	}
	const few = 3 // a machine that stands still for longer than settled adds to the one
	if failed > few || served.Load() != int64(calls-failed) {
		t.Errorf("%d of %d calls failed, %d were served", failed, calls, served.Load())
	}
}

// TestPatientEngine: connections to an engine that keeps them are used again.
func TestPatientEngine(t *testing.T) {
	var connections atomic.Int64
	p := rawEngine(t, func(c *net.TCPConn) {
		connections.Add(1)
		for r := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			io.WriteString(c, rawAnswer) //nolint:errcheck // the client may be gone
		}
	})
	for range 100 {
		if err := trip(p); err != nil {
			t.Fatal(err)
		}
	}
	if connections.Load() != 1 {
		t.Errorf("%d connections", connections.Load())
	}
}

// TestNotSent: a request may be made again only where it is certain that the engine has not read all of it.
func TestNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(c *net.TCPConn)
		again bool
	}{
		"closed before it came": {func(c *net.TCPConn) {}, true},
		"read, then closed": {func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c)) //nolint:errcheck // the test says what came of it
		}, false},
		"read, then reset": {func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c)) //nolint:errcheck // likewise
			c.SetLinger(0)                       //nolint:errcheck // likewise
		}, false},
		"ended, and read all the same": {func(c *net.TCPConn) {
			c.CloseWrite()         //nolint:errcheck // likewise
			io.Copy(io.Discard, c) //nolint:errcheck // likewise
		}, false},
	} {
		p := rawEngine(t, c.serve)
		conn, _, err := p.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.again {
			for conn.alive() { // until its end has come
				time.Sleep(time.Millisecond)
			}
		}
		_, err = p.exchange(t.Context(), conn, http.MethodGet, []byte(rawRequest), nil, Timeouts{FirstByte: time.Minute, Idle: time.Minute}, func() {})
		if !errors.Is(err, errClosed) || errors.Is(err, ErrNotSent) != c.again {
			t.Errorf("%s: %v", name, err)
		}
	}
}
