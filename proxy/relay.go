package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// relay passes the engine's answer on to the harness and reads it on the way. What the answer is, its bytes decide, not its
// label.
func (c *call) relay(resp *engine.Response) {
	c.learn()
	engine.CopyHeader(c.out.w.Header(), resp.Header)
	labelled := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	encoding := resp.Header.Get("Content-Encoding")
	if c.way != nil {
		c.out.w.Header().Set("Content-Type", "application/json")
		if c.req.Stream {
			c.out.w.Header().Set("Content-Type", c.contentType())
		}
	}
	if labelled && encoding == "" && c.req.Stream {
		c.start(http.StatusOK, !c.route.array)
		if !resp.Body.Ready() { // the harness sees the headers when the engine sends them, with the first event if it is there
			c.out.flush()
		}
	}
	plain, err := decoded(resp.Body, encoding)
	if err != nil {
		c.fail("the engine's answer is " + err.Error())
		c.giveUp()
		return
	}
	head, err := sniff(plain, resp.Length)
	if c.array(head) || engine.LooksLikeSSE(head) || labelled && len(head) == 0 {
		if !labelled && !c.array(head) {
			c.conflict("an event stream labelled %q", resp.Header.Get("Content-Type"))
		}
		if c.way == nil || c.req.Stream {
			c.start(http.StatusOK, !c.route.array)
		}
		c.relayStream(resp, c.events(head, plain))
		return
	}
	if labelled {
		c.conflict("an answer labelled as an event stream that is none")
	}
	c.relayWhole(head, plain, err)
}

// start sends the status line, unless it is out.
func (c *call) start(status int, sse bool) {
	if !c.out.started() {
		if !c.settled {
			c.rec.Status = status
		}
		c.out.start(status, sse)
	}
}

// conflict notes two answers to one question.
func (c *call) conflict(format string, args ...any) {
	c.rec.Remarks = append(c.rec.Remarks, record.Remark{Code: "capture_conflict", Detail: fmt.Sprintf(format, args...)})
}

// fail notes that the engine did not bring the call to an end. The first reason stays.
func (c *call) fail(why string) {
	if c.failure == "" {
		c.outcome, c.failure = record.UpstreamError, why
	}
}

// decoded undoes an answer's content encoding, which the engine was not asked for.
func decoded(body io.Reader, encoding string) (io.Reader, error) {
	switch strings.ToLower(encoding) {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(body)
	case "deflate":
		return zlib.NewReader(body)
	case "zstd":
		d, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("compressed with %q, which nobody asked for", encoding)
}

// sniff reads until there is something to judge an answer by. The memory has room for the whole answer where its length is
// known, within reason, so that it is read once and lies in one place.
func sniff(r io.Reader, length int64) ([]byte, error) {
	buf := make([]byte, 0, roomFor(length))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil || len(bytes.TrimSpace(buf)) > 0 || len(buf) == cap(buf) {
			return buf, err
		}
	}
}

// roomFor is the size of the first buffer of an answer; length is negative where nobody said how long it gets.
func roomFor(length int64) int64 {
	const enough, most = 8 << 10, 1 << 20
	if length < 0 {
		return enough
	}
	return min(length+1, most) // one more, so that its end is seen without growing
}

// relayStream passes an event stream on, event by event: the first leaves at once, of the others those leave together that
// came together. Only the terminal event waits until the turn is durable.
func (c *call) relayStream(resp *engine.Response, events events) {
	var scratch, terminal []byte
	held := false
	first, pending := true, c.out.started()
	if pending && !events.Buffered() {
		c.out.flush()
	}
	for {
		ev, err := events.Next()
		if err != nil {
			c.streamEnded(err)
			break
		}
		if c.native != nil {
			held = c.hear(&ev) || held
			scratch = append(scratch[:0], ev.Raw...)
		} else {
			scratch = c.carry(&ev, scratch[:0])
		}
		if held && !c.answer.Done { // Google's streams just end: what follows the last part goes out with it
			terminal = append(terminal, ev.Raw...)
			continue
		}
		if c.answer.Done {
			terminal = append(terminal, ev.Raw...)
			break
		}
		if len(scratch) > 0 {
			c.out.write(scratch, !ev.Piece)
			pending = true
		}
		if pending && (!events.Buffered() || first && len(scratch) > 0) {
			c.out.flush()
			first, pending = first && len(scratch) == 0, false
		}
		if c.out.failed() {
			c.gone.Store(true)
			break
		}
	}
	if c.out.started() {
		c.out.flush()
	}
	c.at.heard = c.s.now()
	if !c.answer.Done {
		resp.Body.Close() // at once: an engine that is still generating stops when its connection closes
	}
	c.judge()
	ended := c.failure == "" && c.answer.Finished()
	if c.way != nil && !c.req.Stream { // a stream for a harness that asked for a whole answer
		c.answerCollected(ended)
		return
	}
	if c.way != nil {
		terminal = c.carryEnd(ended)
	}
	// While the disk works, the engine's connection is brought to its end, so that it can be used again.
	c.commitMeanwhile(func() { drain(resp.Body) })
	if !ended {
		c.aborted = true
		return
	}
	c.out.write(terminal, true)
}

// carry appends what the harness gets of one event of the engine.
func (c *call) carry(ev *engine.Event, dst []byte) []byte {
	if ev.Piece {
		c.answer.Overflow++
		if c.way != nil {
			return dst
		}
		return append(dst, ev.Raw...)
	}
	edited, drop := c.chunk(ev.Data)
	switch {
	case c.way != nil && c.way.stream == nil:
		return dst
	case c.way != nil:
		if !c.answer.Started() && !c.answer.Finished() {
			return dst
		}
		return c.way.stream.Advance(dst, c.soFar())
	case drop:
		return dst
	case edited != nil:
		return ev.WithData(dst, edited)
	}
	return append(dst, ev.Raw...)
}

// carryEnd writes the rest of a translated stream, and returns its terminal event. An answer that did not end well gets
// the dialect's error event instead, never a normal ending.
func (c *call) carryEnd(ended bool) (terminal []byte) {
	var rest []byte
	switch {
	case ended:
		rest, terminal = c.way.stream.End(nil, c.soFar())
	case c.gone.Load():
	case c.failure != "":
		rest = c.way.stream.Fail(nil, http.StatusBadGateway, c.failure)
	default:
		rest = c.way.stream.Fail(nil, http.StatusBadGateway, "the call ended without an answer")
	}
	if len(rest) > 0 {
		c.out.write(rest, true)
		c.out.flush()
	}
	return terminal
}

// answerCollected gives a harness that asked for a whole answer what the engine streamed.
func (c *call) answerCollected(ended bool) {
	if !ended {
		c.giveUp()
		return
	}
	c.answerWhole(http.StatusOK, c.collected())
}

const silent = "the engine sent nothing within the idle limit (--idle-timeout)"

// streamEnded judges the end of a stream that sent no [DONE].
func (c *call) streamEnded(err error) {
	switch {
	case c.ctx.Err() != nil: // we ended it: conclude says why
	case errors.Is(err, io.EOF):
	case engine.IsTimeout(err):
		c.fail(silent)
	default:
		c.fail("the engine's stream broke off: " + err.Error())
	}
}

// judge says whether the answer that was read is one: [DONE] is framing, never proof of success (BC03).
func (c *call) judge() {
	switch {
	case c.ctx.Err() != nil || c.gone.Load():
	case c.answer.Error != nil:
		c.fail("the engine reported an error inside its answer: " + engine.Excerpt(c.answer.Error))
	case !c.answer.Finished():
		c.fail("the answer ended without a finish reason")
	}
	for _, choice := range c.answer.Choices {
		if choice.Finish == "error" {
			c.fail("the engine ended with finish_reason error")
		}
	}
}

// drain reads what little may follow a terminal event.
func drain(body *engine.Body) {
	if body.Closed() {
		return
	}
	body.Hurry(5 * time.Millisecond)
	var rest [512]byte
	for range 4 {
		if _, err := body.Read(rest[:]); err != nil {
			return
		}
	}
}

// chunk reads one event's data and keeps time. A fault of ours in reading must not reach the harness: the event then goes on
// as it came.
func (c *call) chunk(data []byte) (edited []byte, drop bool) {
	defer c.recover(&edited)
	edited, drop = c.answer.Chunk(data, &c.sent.strip)
	now := c.s.now()
	if c.rec.Timing.FirstToken.IsZero() && c.answer.Started() {
		c.rec.Timing.FirstToken = now
		c.rec.Policy.FirstToken = c.s.Sessions.Policy()
	}
	if !c.answer.Done {
		c.rec.Timing.LastToken = now
	}
	return edited, drop
}

func (c *call) recover(edited *[]byte) {
	if fault := recover(); fault != nil {
		*edited = nil
		c.answer.Garbled++
		c.log(zap.ErrorLevel, "reading an answer failed, which is a bug: the harness got it as it came", faultField(fault), stackField(debug.Stack()))
	}
}

// relayWhole passes an answer on that came in one piece.
func (c *call) relayWhole(head []byte, body io.Reader, err error) {
	answer := head
	if err == nil {
		answer, err = engine.ReadOn(head, body)
	}
	c.at.heard = c.s.now()
	if err != nil && !errors.Is(err, io.EOF) {
		switch {
		case c.ctx.Err() != nil: // we ended it: conclude says why
		case engine.IsTimeout(err):
			c.fail(silent)
		default:
			c.fail("the engine's answer broke off: " + err.Error())
		}
		c.giveUp()
		return
	}
	edited, ok := c.read(answer)
	if !ok && c.answer.Error == nil {
		c.fail("no model answer: " + engine.Excerpt(answer))
	}
	c.judge()
	if c.gone.Load() || c.ctx.Err() != nil || !ok && c.out.started() { // in an event stream it would be a silent, empty answer
		c.giveUp()
		return
	}
	if c.way != nil {
		c.translateWhole()
		return
	}
	if edited == nil {
		edited = answer
	}
	if c.plan.buffered {
		c.replay(edited)
		return
	}
	c.answerWhole(http.StatusOK, edited)
}

// translateWhole gives the harness a whole answer in its own dialect, as a stream if it asked for one.
func (c *call) translateWhole() {
	ended := c.failure == "" && c.answer.Finished()
	if !ended && !c.out.started() {
		c.giveUp()
		return
	}
	if !c.req.Stream {
		c.answerWhole(http.StatusOK, c.collected())
		return
	}
	c.start(http.StatusOK, !c.route.array)
	if ended {
		c.out.write(c.way.stream.Advance(nil, c.soFar()), true)
	}
	c.out.flush()
	terminal := c.carryEnd(ended)
	c.commit()
	c.aborted = !ended
	c.out.write(terminal, true)
}

// read reads an answer that came in one piece.
func (c *call) read(body []byte) (edited []byte, ok bool) {
	defer c.recover(&edited)
	if c.native != nil {
		return nil, c.hearWhole(body)
	}
	edited, ok = c.answer.Whole(body, &c.sent.strip)
	now := c.s.now()
	c.rec.Timing.FirstToken, c.rec.Timing.LastToken = now, now
	c.rec.Policy.FirstToken = c.s.Sessions.Policy()
	return edited, ok
}

// giveUp ends a call whose answer cannot be brought to an end: with an error while that can still be said, by cutting
// the connection otherwise, never with a normal ending.
func (c *call) giveUp() {
	if c.out.started() || c.gone.Load() {
		c.commit()
		c.aborted = true
		return
	}
	if c.failure == "" {
		c.unreachable(c.ctx.Err())
		return
	}
	c.error(http.StatusBadGateway, "", c.failure)
}
