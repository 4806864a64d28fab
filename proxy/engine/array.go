package engine

import (
	"bytes"
	"io"
)

// ArrayReader splits a JSON array that is streamed element by element (Google without alt=sse) into events whose Data is one
// element. The Raw bytes of all events together are the bytes of the stream: brackets and commas go with the element that
// they stand before, what follows the last element is an event without Data.
type ArrayReader struct {
	r   io.Reader
	buf []byte
	// start is where the current event begins, look up to where it was searched; first is where its element begins, -1 while
	// only what separates elements was seen.
	start, look, first int
	depth              int
	found              bool // look is at the end of the current element
	inString, escaped  bool
	err                error
	idle               int
}

// NewArrayReader returns a reader of r's elements, seeded with bytes that were already read.
func NewArrayReader(r io.Reader, seed []byte) *ArrayReader {
	return &ArrayReader{r: r, buf: bytes.Clone(seed), first: -1}
}

// LooksLikeArray says whether bytes begin like a JSON array.
func LooksLikeArray(b []byte) bool {
	s := bytes.TrimLeft(b, "\ufeff \t\r\n")
	return len(s) > 0 && s[0] == '['
}

// Buffered says whether the next element has been read already, so that Next need not wait for it.
func (a *ArrayReader) Buffered() bool {
	a.found = a.found || a.scan()
	return a.found
}

// Next returns the next element; its slices are valid until the following call. After the last one it returns what is left of
// the stream, if anything, and then the reader's error (io.EOF at a clean end).
func (a *ArrayReader) Next() (Event, error) {
	for {
		if a.Buffered() {
			ev := Event{Raw: a.buf[a.start:a.look], Data: a.buf[a.first:a.look], at: a.first - a.start}
			a.start, a.first, a.found = a.look, -1, false
			return ev, nil
		}
		if len(a.buf)-a.start > MaxEvent { // passed on, not parsed
			ev := Event{Raw: a.buf[a.start:a.look], Piece: true}
			a.start, a.first = a.look, -1
			return ev, nil
		}
		if a.err != nil {
			if a.start < len(a.buf) {
				ev := Event{Raw: a.buf[a.start:]}
				a.start = len(a.buf)
				return ev, nil
			}
			return Event{}, a.err
		}
		a.fill()
	}
}

// scan moves look to the end of the current element and says whether it was found.
func (a *ArrayReader) scan() bool {
	for ; a.look < len(a.buf); a.look++ {
		b := a.buf[a.look]
		switch {
		case a.escaped:
			a.escaped = false
		case a.inString:
			a.escaped = b == '\\'
			a.inString = b != '"'
		case b == '"':
			a.inString = true
		case b == '{' || b == '[' && a.first >= 0:
			if a.depth == 0 && a.first < 0 {
				a.first = a.look
			}
			a.depth++
		case (b == '}' || b == ']') && a.depth > 0:
			if a.depth--; a.depth == 0 && a.first >= 0 {
				a.look++
				return true
			}
		}
	}
	return false
}

// fill reads once more, making room first.
func (a *ArrayReader) fill() {
	if a.start > 0 {
		n := copy(a.buf, a.buf[a.start:])
		a.look -= a.start
		if a.first >= 0 {
			a.first -= a.start
		}
		a.buf, a.start = a.buf[:n], 0
	}
	if cap(a.buf)-len(a.buf) < 1024 {
		a.buf = append(make([]byte, 0, 2*cap(a.buf)+4096), a.buf...)
	}
	n, err := a.r.Read(a.buf[len(a.buf):cap(a.buf)])
	a.buf = a.buf[:len(a.buf)+n]
	switch {
	case err != nil:
		a.err = err
	case n > 0:
		a.idle = 0
	default:
		if a.idle++; a.idle > 100 {
			a.err = io.ErrNoProgress
		}
	}
}
