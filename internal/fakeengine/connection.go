package fakeengine

import (
	"bytes"
	"compress/gzip"
	"net"
	"net/http"
)

// reset breaks the connection off so that the client sees an error, never an ordinary end.
func (c *call) reset() {
	out := http.NewResponseController(c.w)
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := out.Hijack()
	if err != nil { // not a connection of our own to reset
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil { // closed by the client already
			c.gone = true
		}
	}
	if err := conn.Close(); err != nil {
		c.gone = true
	}
}

func gzipped(body []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(body)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic("fakeengine: compressing into memory failed: " + err.Error())
	}
	return buf.Bytes()
}

// gzipWriter compresses a stream, event by event.
type gzipWriter struct{ z *gzip.Writer }

func newGzipWriter(w http.ResponseWriter) *gzipWriter { return &gzipWriter{gzip.NewWriter(w)} }

func (g *gzipWriter) write(b []byte) error {
	if _, err := g.z.Write(b); err != nil {
		return err
	}
	return g.z.Flush()
}

func (g *gzipWriter) close() error { return g.z.Close() }
