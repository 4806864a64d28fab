package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"sync/atomic"
)

// Engine answers as vLLM does, from prepared bytes. It serves l until ctx is done.
func Engine(ctx context.Context, l net.Listener) error {
	context.AfterFunc(ctx, func() { l.Close() })
	e := &engine{whole: newAnswer(), stream: newStream()}
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the bench's engine: %w", err)
		}
		go e.serve(c)
	}
}

// passedPath is asked how many bytes the engine has read and written.
const passedPath = "/passed"

type engine struct {
	whole  *answer
	stream *stream
	passed atomic.Int64 // bytes of bodies read and of answers written

	mu   sync.Mutex
	long []byte // the ids of the long conversation, with commas, six bytes each
}

// engineConn is one connection: its own copies of the answers, made when they are first needed.
type engineConn struct {
	net.Conn
	engine *engine
	br     *bufio.Reader
	body   []byte
	whole  *answer
	stream *stream
}

func (e *engine) serve(c net.Conn) {
	defer c.Close()
	conn := &engineConn{Conn: c, engine: e, br: bufio.NewReaderSize(c, 8<<10)}
	for {
		path, body, err := conn.request()
		if err != nil {
			return // the client hung up: the usual end
		}
		e.passed.Add(int64(len(body)))
		if err := conn.answer(path, body); err != nil {
			return
		}
	}
}

// request reads one request: its path and its body, which is valid until the next one.
func (c *engineConn) request() (path string, body []byte, err error) {
	length, chunked := 0, false
	for first := true; ; first = false {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return "", nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			if parts := bytes.SplitN(line, []byte(" "), 3); len(parts) == 3 {
				path = string(parts[1])
			}
		case len(line) == 0:
			if chunked {
				body, err := io.ReadAll(httputil.NewChunkedReader(c.br))
				return path, body, err
			}
			if cap(c.body) < length {
				c.body = make([]byte, length)
			}
			_, err := io.ReadFull(c.br, c.body[:length])
			return path, c.body[:length], err
		case len(line) > 15 && (line[0]|0x20) == 'c' && bytes.EqualFold(line[:15], []byte("content-length:")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[15:]))); err != nil || length < 0 {
				return "", nil, errors.New("a content length that is none")
			}
		case len(line) > 18 && (line[0]|0x20) == 't' && bytes.EqualFold(line[:18], []byte("transfer-encoding:")):
			chunked = true
		}
	}
}

func (c *engineConn) write(b []byte) error {
	n, err := c.Write(b)
	c.engine.passed.Add(int64(n))
	return err
}

// writeAll writes several pieces at once.
func (c *engineConn) writeAll(pieces ...[]byte) error {
	buffers := net.Buffers(pieces)
	n, err := buffers.WriteTo(c.Conn)
	c.engine.passed.Add(n)
	return err
}

func (c *engineConn) answer(path string, body []byte) error {
	if !bytes.HasSuffix([]byte(path), []byte("/chat/completions")) {
		return c.other(path)
	}
	if bytes.Contains(body, []byte(`"top_logprobs":2`)) { // the probe measures whether temperature changes logprobs
		second := "3"
		if bytes.Contains(body, []byte(`"temperature":2`)) {
			second = "1.75"
		}
		return c.json(http.StatusOK, `{"id":"chatcmpl-probe","object":"chat.completion","created":1,"model":"`+Model+`","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-`+
			second+`}]}]},"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`)
	}
	m, marked := findMark(body)
	switch {
	case !marked:
		m = mark{kind: markCall, size: 16}
	case m.kind == markChain: // the harness sent the newest message only, and no parameter of its own
		m = lastMark(body)
	}
	streamed := wantsStream(body)
	switch {
	case m.kind != markCall && streamed:
		return c.longStream(m)
	case m.kind != markCall:
		return c.longAnswer(m)
	case streamed:
		if c.stream == nil {
			c.stream = c.engine.stream.clone()
		}
		return c.stream.play(c.write, m)
	}
	if c.whole == nil {
		c.whole = c.engine.whole.clone()
	}
	return c.write(c.whole.number(m.number))
}

// wantsStream says whether a request asks for a stream. The bench's own texts do not speak of streams.
func wantsStream(body []byte) bool {
	i := bytes.LastIndex(body, []byte(`"stream"`))
	if i < 0 {
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(body[i+len(`"stream"`):], ": "), []byte("true"))
}

func (c *engineConn) other(path string) error {
	switch path {
	case "/v1/models":
		return c.json(http.StatusOK, `{"object":"list","data":[{"id":"`+Model+`","object":"model","created":1,"owned_by":"vllm","max_model_len":2097152}]}`)
	case passedPath:
		return c.json(http.StatusOK, strconv.FormatInt(c.engine.passed.Load(), 10))
	case "/health": // engines have it, and there are proxies that give up an engine without
		return c.json(http.StatusOK, "")
	case "/version":
		return c.json(http.StatusOK, `{"version":"bench"}`)
	}
	return c.json(http.StatusNotFound, `{"error":{"message":"no such path","type":"NotFoundError","param":null,"code":404}}`)
}

func (c *engineConn) json(status int, body string) error {
	return c.write(fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body))
}
