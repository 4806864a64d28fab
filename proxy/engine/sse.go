package engine

import (
	"bytes"
	"io"
)

// MaxEvent is the longest event that is parsed, in bytes. The first chunk of a long context holds all of its prompt ids
// and an argument delta can be megabytes (BC26), so it is far above what engines send.
const MaxEvent = 64 << 20

// keepBuffer is the size above which a reader gives its buffer back after a large event.
const keepBuffer = 256 << 10

// Event is one server-sent event.
type Event struct {
	// Raw is the event as it came, with the blank line that ends it.
	Raw []byte
	// Name is the event field, Data the data lines joined by newlines. Both are empty for comments and for pieces.
	Name, Data []byte
	// at is where Data stands in Raw, -1 when it was joined from several lines.
	at int
	// Piece says that this is a part of an event longer than MaxEvent: to be passed on, not to be parsed.
	Piece bool
}

// WithData appends the event to dst with other data in it; its other lines stay.
func (e *Event) WithData(dst, data []byte) []byte {
	if e.at < 0 {
		return append(append(append(dst, "data: "...), data...), "\n\n"...)
	}
	dst = append(dst, e.Raw[:e.at]...)
	dst = append(dst, data...)
	return append(dst, e.Raw[e.at+len(e.Data):]...)
}

// Comment says that the event carries neither name nor data: a keepalive.
func (e *Event) Comment() bool { return !e.Piece && len(e.Data) == 0 && len(e.Name) == 0 }

// EventReader splits a byte stream into server-sent events (WHATWG HTML 9.2: lines end in LF, CR or CRLF), whatever
// the size of the reads. The bytes of all events together are the bytes of the stream.
type EventReader struct {
	r   io.Reader
	buf []byte // buf[start:] is what has been read and not returned
	// start is where the current event begins, line where its current line does, look up to where that line has been
	// searched for its end.
	start, line, look int
	end               int // of the current event, 0 while it has not been found
	err               error
	max               int
	inPiece           bool
	midLine           bool   // the current line's beginning was passed on as a piece
	joined            []byte // data of several lines
	idle              int    // reads in a row that gave nothing
}

// NewEventReader returns a reader of r's events, seeded with bytes that were already read. Their memory is the reader's from
// then on.
func NewEventReader(r io.Reader, seed []byte) *EventReader {
	return &EventReader{r: r, buf: seed, max: MaxEvent}
}

// Next returns the next event. Its slices are valid until the following call. At the end of the stream it returns what
// is left, if anything, as a last event, and then the reader's error (io.EOF at a clean end).
func (e *EventReader) Next() (Event, error) {
	for {
		if e.Buffered() {
			return e.take(e.end), nil
		}
		if len(e.buf)-e.start > e.max {
			ev := Event{Raw: e.buf[e.start:e.line], Piece: true}
			if e.line == e.start { // one endless line: pass on all but the byte that may begin its end
				ev.Raw = e.buf[e.start:e.look]
				e.line, e.midLine = e.look, true
			}
			e.start = e.line
			e.inPiece = true
			return ev, nil
		}
		if e.err != nil {
			if e.start < len(e.buf) {
				return e.take(len(e.buf)), nil
			}
			return Event{}, e.err
		}
		e.fill()
	}
}

// findEnd looks for the blank line that ends the current event.
func (e *EventReader) findEnd() (end int, ok bool) {
	for {
		rest := e.buf[e.look:]
		i := lineEnd(rest)
		if i < 0 {
			e.look = len(e.buf)
			return 0, false
		}
		stop := e.look + i + 1
		if rest[i] == '\r' {
			switch {
			case stop < len(e.buf) && e.buf[stop] == '\n':
				stop++
			case stop == len(e.buf) && e.err == nil:
				e.look += i // the LF of a CRLF may be the next byte
				return 0, false
			}
		}
		blank := e.look+i == e.line && !e.midLine
		e.line, e.look, e.midLine = stop, stop, false
		if blank {
			return stop, true
		}
	}
}

// lineEnd returns the index of the first CR or LF of b, -1 for none.
func lineEnd(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i >= 0 {
		b = b[:i]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return i
}

// take returns the event that ends at end and moves past it.
func (e *EventReader) take(end int) Event {
	ev := Event{Raw: e.buf[e.start:end], Piece: e.inPiece}
	if !e.inPiece {
		e.fields(&ev)
	}
	e.inPiece = false
	e.start, e.line, e.look, e.end = end, end, end, 0
	return ev
}

// fields reads the event's lines.
func (e *EventReader) fields(ev *Event) {
	e.joined = e.joined[:0]
	lines, at := 0, 0
	for at < len(ev.Raw) {
		line := ev.Raw[at:]
		next := len(ev.Raw)
		if i := lineEnd(line); i >= 0 {
			line, next = line[:i], at+i+1
		}
		field, value, found := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(bytes.TrimPrefix(field, []byte("\ufeff"))) {
		case "data":
			if !found {
				break
			}
			switch lines {
			case 0:
				ev.Data, ev.at = value, at+len(line)-len(value)
			case 1:
				e.joined = append(append(append(e.joined, ev.Data...), '\n'), value...)
			default:
				e.joined = append(append(e.joined, '\n'), value...)
			}
			lines++
		case "event":
			ev.Name = value
		}
		at = next
	}
	if lines > 1 {
		ev.Data, ev.at = e.joined, -1
	}
}

// Buffered says whether the next event has been read already, so that Next need not wait for it.
func (e *EventReader) Buffered() bool {
	if e.end == 0 {
		e.end, _ = e.findEnd()
	}
	return e.end > 0
}

// fill reads once more, making room first.
func (e *EventReader) fill() {
	if e.start == len(e.buf) && cap(e.buf) > keepBuffer {
		e.buf = make([]byte, 0, 4096)
		e.start, e.line, e.look = 0, 0, 0
	}
	if e.start > 0 && (e.start == len(e.buf) || cap(e.buf)-len(e.buf) < 1024) {
		n := copy(e.buf, e.buf[e.start:])
		e.line -= e.start
		e.look -= e.start
		e.buf, e.start = e.buf[:n], 0
	}
	if cap(e.buf)-len(e.buf) < 1024 {
		e.buf = append(make([]byte, 0, 2*cap(e.buf)+4096), e.buf...)
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	switch {
	case err != nil:
		e.err = err
	case n > 0:
		e.idle = 0
	default:
		if e.idle++; e.idle > 100 {
			e.err = io.ErrNoProgress
		}
	}
}
