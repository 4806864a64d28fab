// Package engine talks to what answers model calls: it owns the upstream connections, knows what each engine can do (its
// profile, measured, never guessed from a name), reads its answers and takes out of them what only we asked for.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"captureproxy/internal/record"
)

// Config describes an engine.
type Config struct {
	// URL is the API root. One without a path gets /v1 (Google's /v1beta); one with a path is the root as it stands.
	URL string
	// Key is the engine's credential; it goes nowhere but into AuthHeader of requests to URL. AuthHeader is
	// "Authorization", which sends `Bearer KEY`, or another name, which sends the bare key. Empty means the provider's own.
	Key        string
	AuthHeader string
	// Model is the name to send; found by itself when the engine serves exactly one.
	Model    string
	Provider string
	// Level, when set, is taken for measured.
	Level    record.Level
	Timeouts Timeouts
	// NoLinkLocal refuses connections to link-local addresses, where clouds serve credentials, whatever name led there.
	NoLinkLocal bool
	// Memory keeps what was measured for the processes to come; nil for none.
	Memory *Memory
}

// Upstream is one engine under one credential. It is safe for concurrent use.
type Upstream struct {
	root       *url.URL
	key        string
	authHeader string
	model      string
	provider   string
	forced     record.Level
	timeouts   Timeouts
	pool       *pool

	profile   atomic.Pointer[Profile]
	measuring sync.Mutex // held by the one that measures
	asked     atomic.Int64
	problem   atomic.Pointer[string]
	memory    *Memory
	openings  openings
	forcing   forcing
}

// NewUpstream checks a configuration. It does not connect.
func NewUpstream(c Config) (*Upstream, error) {
	u, err := url.Parse(c.URL)
	switch {
	case !strings.Contains(c.URL, "://"): // url.Parse takes the host for a scheme
		return nil, errors.New("upstream URL: it must begin with http:// or https://, as in http://127.0.0.1:8000/v1")
	case err != nil:
		return nil, fmt.Errorf("upstream URL: %w", errors.Unwrap(err)) // the outer error repeats the URL, which may hold a password
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("upstream URL: it must begin with http:// or https://, as in http://127.0.0.1:8000/v1")
	case u.Host == "":
		return nil, errors.New("upstream URL: it names no host, write it as http://127.0.0.1:8000/v1")
	case u.User != nil:
		return nil, errors.New("upstream URL: a password does not belong into a URL, give the key with --upstream-key")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("upstream URL: it must not have a query or a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if c.Provider == "auto" { // what is measured then says what it is
		c.Provider = ""
	}
	path, authHeader := nativeDefaults(c.Provider)
	if u.Path == "" {
		u.Path = path
	}
	if c.AuthHeader == "" {
		c.AuthHeader = authHeader
	}
	if c.Timeouts.FirstByte <= 0 {
		c.Timeouts.FirstByte = 15 * time.Minute
	}
	if c.Timeouts.Idle <= 0 {
		c.Timeouts.Idle = 10 * time.Minute
	}
	up := &Upstream{
		root: u, key: c.Key, authHeader: textproto.CanonicalMIMEHeaderKey(c.AuthHeader), model: c.Model, provider: c.Provider, forced: c.Level,
		timeouts: c.Timeouts, pool: newPool(u, c.NoLinkLocal), memory: c.Memory,
	}
	p := &Profile{
		Level: c.Level, StreamCapture: c.Level == record.LevelTokens, LogprobsMode: record.LogprobsUnknown, Provider: c.Provider, Native: nativeDialects(c.Provider),
	}
	p.fill()
	up.profile.Store(p)
	return up, nil
}

// URL is the API root, without any credential.
func (u *Upstream) URL() string { return u.root.String() }

// Close closes the unused connections.
func (u *Upstream) Close() { u.pool.close() }

// Request is one request to an engine. Path is relative to the API root, or to the origin where AtOrigin is set.
type Request struct {
	Method   string
	Path     string
	AtOrigin bool
	Query    string
	// Header holds the caller's headers. Credentials, connection headers and what we set ourselves are left out.
	Header    http.Header
	RequestID string
	Body      []byte
	// Bearer sends the credential as "Authorization: Bearer KEY", whatever header it has otherwise.
	Bearer bool
	// Meanwhile, if any, runs when the request is on its way, before its answer is waited for.
	Meanwhile func()
}

// Do sends a request and returns the answer's head. Cancelling ctx aborts the call at any later moment, by closing the
// connection. Errors that wrap ErrNotSent mean that the engine has not seen the request.
func (u *Upstream) Do(ctx context.Context, r *Request) (*Response, error) {
	if !oneWord(r.Method) || !oneWord(r.Path) || !oneWord(r.Query) {
		return nil, fmt.Errorf("%w: the request line would not be one", ErrNotSent)
	}
	return u.pool.roundTrip(ctx, r.Method, u.head(r), r.Body, u.timeouts, r.Meanwhile)
}

// oneWord says that text ends neither a word nor a line of a request's head. Who builds a path escapes what came from outside;
// this is the second lock on that door.
func oneWord(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}

// head writes the request line and the headers.
func (u *Upstream) head(r *Request) []byte {
	b := make([]byte, 0, 1024)
	b = append(b, r.Method...)
	b = append(b, ' ')
	if !r.AtOrigin {
		b = append(b, u.root.EscapedPath()...)
	}
	b = append(b, r.Path...)
	if r.Query != "" {
		b = append(b, '?')
		b = append(b, r.Query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, u.root.Host...)
	b = append(b, "\r\n"...)
	hop := hopHeaders(r.Header)
	for name, values := range r.Header {
		if withheld[name] || name == u.authHeader || slices.Contains(hop, name) {
			continue
		}
		for _, v := range values {
			b = appendHeader(b, name, v)
		}
	}
	if u.key != "" {
		if u.authHeader == "Authorization" || r.Bearer {
			b = appendHeader(b, "Authorization", "Bearer "+u.key)
		} else {
			b = appendHeader(b, u.authHeader, u.key)
		}
	}
	if r.RequestID != "" {
		b = appendHeader(b, "X-Request-Id", r.RequestID)
	}
	if len(r.Body) > 0 || r.Method != http.MethodGet && r.Method != http.MethodHead { // a body without a length would be the next request
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.Body)), 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// hopHeaders are the headers that a caller says are for its own connection only (RFC 9110, 7.6.1).
func hopHeaders(h http.Header) (names []string) {
	for _, value := range h["Connection"] {
		if strings.EqualFold(value, "keep-alive") || strings.EqualFold(value, "close") {
			continue // what nearly all say
		}
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	return names
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// withheld are the headers of a harness that do not go upstream: its credentials, which are ours and no business of the
// engine's, those of its connection, and those that describe bytes which we may change.
var withheld = map[string]bool{
	"Authorization": true, "X-Api-Key": true, "X-Goog-Api-Key": true, "Api-Key": true, "Cookie": true, "Proxy-Authorization": true,
	"Host": true, "Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Expect": true, "Content-Length": true, "Content-Encoding": true, "Accept-Encoding": true, "X-Request-Id": true,
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true,
}

// CopyHeader copies those headers of an engine's answer that concern the harness.
func CopyHeader(dst, src http.Header) {
	for name, values := range src {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
			"Content-Length", "Content-Encoding", // of bytes that may be changed
			"Server", "Date", "Set-Cookie", "Www-Authenticate", "X-Request-Id", // the proxy has its own, or nobody's business
			"Location", "Refresh", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials": // it speaks for an origin of its own
			continue
		}
		dst[name] = values
	}
}

// maxAnswer bounds an answer that is read whole.
const maxAnswer = 256 << 20

// ReadAll reads a whole body, within bounds.
func ReadAll(b io.Reader, hint int) ([]byte, error) {
	return ReadOn(make([]byte, 0, max(hint+512, 4096)), b)
}

// ReadOn reads the rest of a body whose beginning is in buf, into the same memory as far as that goes.
func ReadOn(buf []byte, b io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			if len(buf) > maxAnswer {
				return buf, fmt.Errorf("the engine's answer is longer than %d MiB", maxAnswer>>20)
			}
			buf = append(make([]byte, 0, max(2*cap(buf), 4096)), buf...)
		}
		n, err := b.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
