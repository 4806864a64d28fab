package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"captureproxy/proxy/dialect"
)

// readBody reads a request body whole, before anything is forwarded: a relay that lets the server close the body while
// the upstream still reads it cuts streams (golang/go#40747). Content encodings are undone in reverse order (BC19), within
// the size limit, which counts decoded bytes.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *dialect.Error) {
	if r.ContentLength > s.MaxBody {
		return nil, tooLarge(s.MaxBody)
	}
	body, err := readLimited(http.MaxBytesReader(w, r.Body, s.MaxBody), r.ContentLength, s.MaxBody)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tooLarge(s.MaxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, &dialect.Error{Status: http.StatusRequestTimeout, Text: "the request body came too slowly, and not to its end"}
	case err != nil:
		return nil, &dialect.Error{Status: http.StatusBadRequest, Text: "the request body could not be read to its end"}
	}
	var encodings []string
	for _, h := range r.Header.Values("Content-Encoding") {
		for e := range strings.SplitSeq(h, ",") {
			if e = strings.ToLower(strings.TrimSpace(e)); e != "" && e != "identity" {
				encodings = append(encodings, e)
			}
		}
	}
	if len(encodings) > 4 {
		return nil, &dialect.Error{Status: http.StatusBadRequest, Text: "too many content encodings"}
	}
	for i := len(encodings) - 1; i >= 0; i-- {
		var bad *dialect.Error
		if body, bad = decompress(encodings[i], body, s.MaxBody); bad != nil {
			return nil, bad
		}
	}
	return body, nil
}

var errTooLarge = errors.New("too large")

func tooLarge(limit int64) *dialect.Error {
	return &dialect.Error{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("the request body is larger than %d bytes: raise --max-body", limit)}
}

// mostAtFirst is how much memory a body gets for its announced length alone; more follows with its bytes.
const mostAtFirst = 1 << 20

// readLimited reads to the end, or fails with errTooLarge.
func readLimited(r io.Reader, hint, limit int64) ([]byte, error) {
	buf := make([]byte, 0, max(min(hint, limit, mostAtFirst), 0)+512)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		var over *http.MaxBytesError
		switch {
		case int64(len(buf)) > limit || errors.As(err, &over):
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
		if len(buf) == cap(buf) {
			room := int64(2 * cap(buf))
			if hint > int64(len(buf)) { // no more than it said
				room = min(room, hint+512)
			}
			buf = append(make([]byte, 0, room), buf...)
		}
	}
}

func decompress(encoding string, body []byte, limit int64) ([]byte, *dialect.Error) {
	in := bytes.NewReader(body)
	var r io.Reader
	var err error
	switch encoding {
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(in)
	case "deflate":
		if hasZlibHead(body) {
			r, err = zlib.NewReader(in)
		} else { // some clients have always sent it bare
			r = flate.NewReader(in)
		}
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)+1<<20)); err == nil {
			defer d.Close()
			r = d
		}
	default:
		return nil, &dialect.Error{Status: http.StatusUnsupportedMediaType, Text: "unknown content encoding: gzip, deflate and zstd are understood"}
	}
	var out []byte
	if err == nil {
		out, err = readLimited(r, 4*int64(len(body)), limit)
	}
	switch {
	case errors.Is(err, errTooLarge) || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, &dialect.Error{Status: http.StatusBadRequest, Text: "the request body is no valid " + encoding}
	}
	return out, nil
}

// hasZlibHead says whether a body begins as RFC 1950 has it: the method, and a head that 31 divides.
func hasZlibHead(body []byte) bool {
	return len(body) >= 2 && body[0]&0x0f == 8 && (uint(body[0])<<8|uint(body[1]))%31 == 0
}
