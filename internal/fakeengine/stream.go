package fakeengine

import (
	"bytes"
	"net/http"
	"time"
)

// chunks writes the events of one kind of stream.
type chunks interface {
	// first appends what opens a choice, or nothing.
	first(dst []byte, g *generation) []byte
	// chunk appends the ids [from, to) of a choice, or nothing where the client would see nothing of them.
	chunk(dst []byte, g *generation, from, to int) []byte
	// usage appends the chunk that ends the stream where usage was asked for.
	usage(dst []byte) []byte
}

// tailed are chunks with more behind the choices, before the usage: whole frames.
type tailed interface{ tail(dst []byte) []byte }

// stream answers with server-sent events, the choices in turns.
func (e *Engine) stream(a *answer, events chunks) {
	s := newSender(e, a.call)
	s.open()
	defer s.close()
	if !s.begin() {
		return
	}
	huge := a.fault.Kind == FaultHugeFirst
	for _, g := range a.choices {
		s.event(func(dst []byte) []byte {
			if huge {
				dst = appendHuge(dst)
				huge = false
			}
			return events.first(dst, g)
		})
	}
	sent := make([]int, len(a.choices))
	for running := true; running; {
		running = false
		for i, g := range a.choices {
			from := sent[i]
			if from == len(g.ids) || s.over() {
				continue
			}
			to := g.group(from, e.groupSize(a.req, g, from))
			if !e.wait(a.call, time.Duration(to-from)*e.opts.PerToken) {
				return
			}
			if a.fault.Kind == FaultDoneEarly && to == len(g.ids) {
				s.done()
				return
			}
			s.event(func(dst []byte) []byte { return events.chunk(dst, g, from, to) })
			sent[i] = to
			running = true
		}
	}
	if s.over() {
		return
	}
	if t, ok := events.(tailed); ok {
		s.frames(t.tail(nil))
	}
	if a.req.usage && a.fault.Kind != FaultNoUsage {
		s.event(events.usage)
	}
	s.done()
}

// groupSize is how many ids the next chunk carries: what a reader that lags now and then gets, or as configured.
func (e *Engine) groupSize(req *Request, g *generation, from int) int {
	switch {
	case req.interval > 0 && from == 0:
		return 1
	case req.interval > 0:
		return req.interval
	case e.opts.ChunkTokens > 0:
		return e.opts.ChunkTokens
	}
	return 1 + int(mix(uint64(from)<<32|uint64(g.ids[from]))%4)
}

// group returns the end of a chunk of at most size ids from from on. No chunk holds both thought and text, or a call's
// name and its arguments.
func (g *generation) group(from, size int) int {
	limit := min(from+size, len(g.ids))
	before := g.shown(from)
	shows := g.part(before, g.shown(from+1))
	to := from + 1
	for ; to < limit; to++ {
		next := g.part(g.shown(to), g.shown(to+1))
		if next != 0 && shows != 0 && next != shows {
			break
		}
		shows = max(shows, next)
	}
	return to
}

// part numbers what the text [from, to) shows a client, 0 for nothing.
func (g *generation) part(from, to int) int {
	for i, s := range g.spans {
		if s.to <= from || s.from >= to {
			continue
		}
		switch {
		case s.kind == kindReasoning || s.kind == kindContent:
			return 4*i + 1
		case s.kind == kindCall && from < s.nameEnd && s.nameEnd <= to:
			return 4*i + 2
		case s.kind == kindCall && from < s.argsTo && s.argsFrom < to:
			return 4*i + 3
		}
	}
	return 0
}

// sender writes the events of a stream, each flushed, with a fault where one is due.
type sender struct {
	*call
	engine *Engine
	out    *http.ResponseController
	buf    []byte
	events int
	ended  bool // nothing more may be sent
	zip    *gzipWriter
	// closing ends a good stream, failing is an error within one; both are whole frames.
	closing string
	failing func(dst []byte, bad *apiError) []byte
	// reframe respells the nth frame where a dialect does not write events as most do; nil where it does.
	reframe     func(frame []byte, n int) []byte
	contentType string
}

// newSender returns the sender of a chat stream.
func newSender(e *Engine, c *call) *sender {
	return &sender{
		call: c, engine: e, out: http.NewResponseController(c.w), closing: "data: [DONE]\n\n",
		contentType: "text/event-stream; charset=utf-8",
		failing: func(dst []byte, bad *apiError) []byte {
			return append(c.spell(append(dst, "data: "...), bad, true), "\n\n"...)
		},
	}
}

// begin waits for the first token; it reports whether to go on.
func (s *sender) begin() bool {
	d := s.engine.opts.FirstToken
	return d <= 0 || (s.wire.lateHeaders || s.flush()) && s.engine.wait(s.call, d)
}

// frames sends whole frames, each an event of its own.
func (s *sender) frames(b []byte) {
	for len(b) > 0 && !s.over() && s.mishap() {
		end := len(b)
		if i := bytes.Index(b, []byte("\n\n")); i >= 0 {
			end = i + 2
		}
		if s.reframe != nil {
			s.send(s.reframe(b[:end], s.events))
		} else {
			s.send(b[:end])
		}
		s.events++
		b = b[end:]
	}
}

func (s *sender) open() {
	contentType := s.contentType
	if s.fault.Kind == FaultJSONType {
		contentType = "application/json"
	}
	s.setHeader("Content-Type", contentType)
	if s.fault.Kind == FaultGzip {
		s.setHeader("Content-Encoding", "gzip")
		s.zip = newGzipWriter(s.w)
	}
	s.w.WriteHeader(http.StatusOK)
}

// event sends what write appends, if anything.
func (s *sender) event(write func(dst []byte) []byte) {
	if s.over() || !s.mishap() {
		return
	}
	const prefix = "data: "
	s.buf = write(append(s.buf[:0], prefix...))
	if len(s.buf) == len(prefix) {
		return
	}
	s.buf = append(s.buf, "\n\n"...)
	s.send(s.buf)
	s.events++
}

func (s *sender) done() {
	if !s.over() && s.closing != "" {
		s.send([]byte(s.closing))
	}
	s.ended = true
}

func (s *sender) send(b []byte) {
	var err error
	if s.zip != nil {
		err = s.zip.write(b)
	} else {
		_, err = s.w.Write(b)
	}
	if err != nil || !s.flush() {
		s.gone = true
	}
}

func (s *sender) flush() bool { return s.out.Flush() == nil }

func (s *sender) over() bool { return s.ended || s.gone }

func (s *sender) close() {
	if s.zip != nil && !s.gone {
		if err := s.zip.close(); err != nil {
			s.gone = true
		}
	}
}

// wait lets time pass; it reports whether the client is still there.
func (e *Engine) wait(c *call, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.r.Context().Done():
		c.gone = true
		return false
	}
}
