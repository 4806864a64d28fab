package proxy

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// keepalive is a comment line: no client takes it for an event. A single newline, so that no parser sees an empty event
// (BC37).
var keepalive = []byte(": \n")

// output is the way to the harness. The relay and the watch on the harness's connection share it.
type output struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	idle time.Duration

	mu     sync.Mutex
	header bool  // the status line is out
	events bool  // between two events of an event stream
	closed bool  // the handler has returned
	err    error // the first failed write
	rolled int64 // second in which the write deadline was last moved
}

func newOutput(w http.ResponseWriter, idle time.Duration) output {
	return output{w: w, rc: http.NewResponseController(w), idle: idle}
}

// start writes the status line and the headers, which leave with the next flush. sse says that events follow.
func (o *output) start(status int, sse bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.header, o.events = true, sse
	o.rollLocked()
	o.w.WriteHeader(status)
}

// rollLocked drops a client that takes nothing for the idle limit.
func (o *output) rollLocked() {
	if err := rollWrite(o.rc, o.idle, &o.rolled); err != nil && o.err == nil {
		o.err = err
	}
}

// write sends bytes towards the harness; they leave with the next flush at the latest. whole says that they end where an
// event does. It returns whether the harness still takes them.
func (o *output) write(b []byte, whole bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false
	}
	o.events = whole
	o.rollLocked()
	if _, err := o.w.Write(b); err != nil {
		o.err = err
	}
	return o.err == nil
}

// flush sends what was written.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked()
}

func (o *output) flushLocked() {
	if err := o.rc.Flush(); err != nil && o.err == nil {
		o.err = err
	}
}

// comment shows life: between the events of a stream a comment, before a JSON array white space.
func (o *output) comment(sse bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return
	}
	o.rollLocked()
	if !o.header {
		o.header, o.events = true, sse
		o.w.WriteHeader(http.StatusOK)
	}
	life := keepalive
	if !sse {
		life = keepalive[2:]
	}
	if _, err := o.w.Write(life); err != nil {
		o.err = err
	}
	o.flushLocked()
}

// failed says whether a write has failed.
func (o *output) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// started says whether the status line is out.
func (o *output) started() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.header
}

// close ends the use of the response writer, which is the server's again when the handler returns.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// stillReads finds out whether a client that has closed its side of the connection still reads. Between the events of a
// stream two comments show it: the first makes a closed socket answer with a reset, the second fails on it. Anywhere else
// nothing can be sent, and a closed side is taken for a hang-up.
func (o *output) stillReads() bool {
	for range 2 {
		if !o.probe() {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	return o.probe()
}

func (o *output) probe() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if !o.header || !o.events || o.err != nil {
		return false
	}
	o.rollLocked()
	if _, err := o.w.Write(keepalive); err != nil {
		o.err = err
	}
	o.flushLocked()
	return o.err == nil
}

// answerWhole sends a complete answer, its record being durable before.
func (c *call) answerWhole(status int, body []byte) {
	c.out.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if !c.out.started() {
		c.rec.Status = status
	}
	c.commit()
	c.start(status, false)
	c.out.write(body, true)
}
