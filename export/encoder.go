package export

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// encoder writes JSON to a stream, field by field, in the order in which it is told to.
type encoder struct {
	w   io.Writer
	buf []byte
	n   int64
	err error
}

const flushAt = 64 << 10

// flush hands over what is written, save for the last byte, by which comma decides.
func (e *encoder) flush() {
	if len(e.buf) < flushAt || e.err != nil {
		return
	}
	last := e.buf[len(e.buf)-1]
	e.write(e.buf[:len(e.buf)-1])
	e.buf = append(e.buf[:0], last)
}

func (e *encoder) close() (int64, error) {
	if e.err == nil {
		e.write(e.buf)
	}
	return e.n, e.err
}

func (e *encoder) write(b []byte) {
	n, err := e.w.Write(b)
	e.n += int64(n)
	e.err = err
}

func (e *encoder) comma() {
	if n := len(e.buf); n > 0 {
		switch e.buf[n-1] {
		case '{', '[', ':':
		default:
			e.buf = append(e.buf, ',')
		}
	}
}

func (e *encoder) key(name string) {
	e.comma()
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, '"', ':')
}

func (e *encoder) open(c byte) {
	e.comma()
	e.buf = append(e.buf, c)
}

func (e *encoder) shut(c byte) {
	e.buf = append(e.buf, c)
	e.flush()
}

func (e *encoder) null(name string) {
	e.key(name)
	e.buf = append(e.buf, "null"...)
}

func (e *encoder) text(name, s string) {
	e.key(name)
	e.buf = appendString(e.buf, s)
}

// name writes a string, "" as null.
func (e *encoder) name(name, s string) {
	if s == "" {
		e.null(name)
		return
	}
	e.text(name, s)
}

func (e *encoder) int(name string, n int) {
	e.key(name)
	e.buf = strconv.AppendInt(e.buf, int64(n), 10)
}

// count writes a number, 0 as null.
func (e *encoder) count(name string, n int) {
	if n == 0 {
		e.null(name)
		return
	}
	e.int(name, n)
}

func (e *encoder) version(name string, v *int64) {
	if v == nil {
		e.null(name)
		return
	}
	e.key(name)
	e.buf = strconv.AppendInt(e.buf, *v, 10)
}

func (e *encoder) bool(name string, b bool) {
	e.key(name)
	e.buf = strconv.AppendBool(e.buf, b)
}

func (e *encoder) time(name string, t Time) {
	e.key(name)
	e.buf = appendTime(e.buf, t)
}

func (e *encoder) float(name string, v float64) {
	e.key(name)
	e.buf = appendFloat(e.buf, v)
}

// raw writes JSON as it came, on one line; empty is null.
func (e *encoder) raw(name string, v json.RawMessage) {
	e.key(name)
	e.value(v)
}

func (e *encoder) value(v json.RawMessage) {
	if len(v) == 0 {
		e.comma()
		e.buf = append(e.buf, "null"...)
		return
	}
	e.comma()
	v = inUTF8(v)
	if bytes.IndexByte(v, '\n') < 0 {
		e.buf = append(e.buf, v...)
		e.flush()
		return
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil && e.err == nil {
		e.err = err
	}
	e.buf = append(e.buf, b.Bytes()...)
	e.flush()
}

// inUTF8 makes JSON readable for every parser: harnesses and engines also send bytes that are no text, and one of them would
// make the whole document unreadable. The log keeps them as they came.
func inUTF8(v json.RawMessage) json.RawMessage {
	if utf8.Valid(v) {
		return v
	}
	return bytes.ToValidUTF8(v, []byte("\ufffd"))
}

func allInUTF8(list []json.RawMessage) []json.RawMessage {
	if !slices.ContainsFunc(list, func(v json.RawMessage) bool { return !utf8.Valid(v) }) {
		return list
	}
	out := make([]json.RawMessage, len(list))
	for i, v := range list {
		out[i] = inUTF8(v)
	}
	return out
}

func (e *encoder) raws(name string, list []json.RawMessage) {
	e.key(name)
	e.open('[')
	for _, v := range list {
		e.value(v)
	}
	e.shut(']')
}

// list writes n elements, handing over what is written on the way: rows are long.
func (e *encoder) list(name string, n int, element func(b []byte, i int) []byte) {
	e.key(name)
	e.open('[')
	for i := range n {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = element(e.buf, i)
		if i&1023 == 0 {
			e.flush()
		}
	}
	e.shut(']')
}

func (e *encoder) ids(name string, ids []int32) {
	e.list(name, len(ids), func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(ids[i]), 10) })
}

func (e *encoder) mask(name string, m Mask) {
	e.list(name, len(m), func(b []byte, i int) []byte { return append(b, '0'+m[i]) })
}

func (e *encoder) logprobs(name string, l Logprobs) {
	if l == nil {
		e.null(name)
		return
	}
	e.list(name, len(l), func(b []byte, i int) []byte { return appendFloat(b, l[i]) })
}

func (e *encoder) ints(name string, list []int) {
	e.key(name)
	e.open('[')
	for _, n := range list {
		e.comma()
		e.buf = strconv.AppendInt(e.buf, int64(n), 10)
	}
	e.shut(']')
}

func (e *encoder) spans(name string, list [][2]int) {
	e.key(name)
	e.open('[')
	for _, s := range list {
		e.open('[')
		e.buf = strconv.AppendInt(e.buf, int64(s[0]), 10)
		e.buf = append(e.buf, ',')
		e.buf = strconv.AppendInt(e.buf, int64(s[1]), 10)
		e.shut(']')
	}
	e.shut(']')
}

func (e *encoder) texts(name string, list []string) {
	e.key(name)
	e.open('[')
	for _, s := range list {
		e.comma()
		e.buf = appendString(e.buf, s)
	}
	e.shut(']')
}

// appendString quotes s as JSON. Bytes that are no UTF-8 become the replacement character, as Go's own encoder has
// it; such text never holds ids.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
	}
	return append(b, '"')
}
