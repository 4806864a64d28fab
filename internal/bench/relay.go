package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
)

// Relay is what any process between two others costs: it copies bytes from one connection to another and knows nothing of
// HTTP. What a proxy adds cannot be less.
func Relay(ctx context.Context, l net.Listener, upstream string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		go pass(c, to.Host)
	}
}

// pass copies both ways until one side ends.
func pass(client net.Conn, to string) {
	defer client.Close()
	engine, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer engine.Close()
	go func() {
		defer client.Close()
		defer engine.Close()
		copyBytes(engine, client)
	}()
	copyBytes(client, engine)
}

// copyBytes reads and writes as proxies do, not by splice(2), which no proxy can that looks at what passes.
func copyBytes(dst io.Writer, src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if _, werr := dst.Write(buf[:n]); errors.Join(err, werr) != nil {
			return // the usual end: one of them hung up
		}
	}
}
