package fakeengine

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FaultKind names a way to misbehave.
type FaultKind string

// Ways to misbehave. In text form (a marker or header) each may be followed by arguments, shown here in capitals.
const (
	FaultStatus FaultKind = "status" // CODE [RETRY_AFTER]: an error status, with Retry-After in seconds
	FaultSlow   FaultKind = "slow"   // MS: nothing, not even headers, for so long
	FaultRefuse FaultKind = "refuse" // PARAM…: a hosted API's 400 for the first of these parameters that is there
	FaultSGLang FaultKind = "sglang" // SGLang's 400 for return_token_ids in a stream

	FaultStall      FaultKind = "stall"       // AT [MS]: silence after so many events, for good without MS
	FaultCut        FaultKind = "cut"         // AT: the connection is reset after so many events; whole answers in the middle
	FaultErrorEvent FaultKind = "error-event" // AT: an error event after so many events, then [DONE]
	FaultDoneEarly  FaultKind = "done-early"  // [DONE] in place of the chunk with the finish reason
	FaultGarbage    FaultKind = "garbage"     // AT: a data line that is no JSON
	FaultPings      FaultKind = "pings"       // a comment before every event
	FaultHugeFirst  FaultKind = "huge-first"  // the first event is preceded by a megabyte
	FaultJSONType   FaultKind = "json-type"   // a stream that calls itself application/json
	FaultJSONAnswer FaultKind = "json-answer" // a whole answer although a stream was asked for
	FaultGzip       FaultKind = "gzip"        // a compressed answer that nobody asked for

	FaultMissingIDs       FaultKind = "missing-ids"
	FaultMissingPromptIDs FaultKind = "missing-prompt-ids"
	FaultShortIDs         FaultKind = "short-ids" // the last id is missing
	FaultMissingLogprobs  FaultKind = "missing-logprobs"
	FaultShortLogprobs    FaultKind = "short-logprobs"   // the last row is missing
	FaultNullLogprob      FaultKind = "null-logprob"     // the last logprob is null
	FaultPositiveLogprob  FaultKind = "positive-logprob" // the last logprob is 0.5
	FaultSentinelLogprob  FaultKind = "sentinel-logprob" // the last logprob is -9999.0
	FaultNaNLogprob       FaultKind = "nan-logprob"      // the last logprob is NaN, which is no JSON
	FaultWrongLabel       FaultKind = "wrong-label"      // the last token_id:N contradicts its id
	FaultNoUsage          FaultKind = "no-usage"         // no usage, though asked for
	FaultWrongUsage       FaultKind = "wrong-usage"      // one token too many
	FaultAbort            FaultKind = "abort"            // finish_reason abort
	FaultContentFilter    FaultKind = "content-filter"   // finish_reason content_filter
)

var faultKinds = []FaultKind{
	FaultStatus, FaultSlow, FaultRefuse, FaultSGLang, FaultStall, FaultCut, FaultErrorEvent, FaultDoneEarly, FaultGarbage,
	FaultPings, FaultHugeFirst, FaultJSONType, FaultJSONAnswer, FaultGzip, FaultMissingIDs, FaultMissingPromptIDs,
	FaultShortIDs, FaultMissingLogprobs, FaultShortLogprobs, FaultNullLogprob, FaultPositiveLogprob, FaultSentinelLogprob,
	FaultNaNLogprob, FaultWrongLabel, FaultNoUsage, FaultWrongUsage, FaultAbort, FaultContentFilter,
}

// Fault is one way to misbehave in one call. The zero value is none.
type Fault struct {
	Kind   FaultKind
	At     int           // events before it strikes
	Status int           // FaultStatus
	Delay  time.Duration // Retry-After, FaultSlow, FaultStall
	Params []string      // FaultRefuse

	once bool // strikes a request body only the first time it comes
	step int  // strikes at this position of the script only; 0 is any, the first is 1
}

// ParseFault reads a fault's text form: a kind, its arguments, and, in any place, "once" (a repetition of the very same
// body is answered well) and "step=N" (only after N-1 tool results).
func ParseFault(text string) (Fault, error) {
	var f Fault
	var args []string
	for _, word := range strings.Fields(text) {
		switch n, isStep := strings.CutPrefix(word, "step="); {
		case isStep:
			step, err := strconv.Atoi(n)
			if err != nil {
				return Fault{}, fmt.Errorf("fault %q: step is no number", text)
			}
			f.step = step
		case word == "once":
			f.once = true
		case f.Kind == "":
			f.Kind = FaultKind(word)
		default:
			args = append(args, word)
		}
	}
	if !slices.Contains(faultKinds, f.Kind) {
		return Fault{}, fmt.Errorf("fault %q: no such kind; there are %v", text, faultKinds)
	}
	if f.Kind == FaultRefuse {
		f.Params = args
		return f, nil
	}
	var numbers [2]int
	for i, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil || i >= len(numbers) {
			return Fault{}, fmt.Errorf("fault %q: bad argument %q", text, arg)
		}
		numbers[i] = n
	}
	switch f.Kind {
	case FaultStatus:
		f.Status, f.Delay = numbers[0], time.Duration(numbers[1])*time.Second
	case FaultSlow:
		f.Delay = time.Duration(numbers[0]) * time.Millisecond
	default:
		f.At, f.Delay = numbers[0], time.Duration(numbers[1])*time.Millisecond
	}
	return f, nil
}

// faultOf finds a call's fault: in its header, in its last user message, or in the options.
func (e *Engine) faultOf(req *Request) (Fault, error) {
	text, marked := req.Header.Get("X-Fake-Fault"), false
	if text == "" {
		if _, after, ok := strings.Cut(req.LastUser(), "[[fault:"); ok {
			text, _, _ = strings.Cut(after, "]]")
			marked = true
		}
	}
	if text == "" && !marked {
		if e.opts.Fault != nil {
			return e.opts.Fault(req), nil
		}
		return Fault{}, nil
	}
	f, err := ParseFault(text)
	switch {
	case err != nil:
		return Fault{}, err
	case f.step != 0 && f.step != position(req.Messages)+1:
		return Fault{}, nil
	case f.once && !e.once.first(req.Body):
		return Fault{}, nil
	}
	return f, nil
}

// onceFaults remembers the bodies that a fault struck once.
type onceFaults struct {
	limit int

	mu   sync.Mutex
	seen map[string]bool
}

func (o *onceFaults) first(body []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen[string(body)] {
		return false
	}
	if o.seen == nil || len(o.seen) >= o.limit {
		o.seen = make(map[string]bool)
	}
	o.seen[string(body)] = true
	return true
}

// beginFault finds a call's fault and plays those that strike before the answer; it reports whether to go on.
func (e *Engine) beginFault(c *call, req *Request) bool {
	f, err := e.faultOf(req)
	if err != nil {
		c.fail(badRequest("", err.Error()))
		return false
	}
	c.fault = f
	switch f.Kind {
	case FaultStatus:
		if f.Delay > 0 {
			c.setHeader("Retry-After", strconv.Itoa(int(f.Delay/time.Second)))
		}
		c.fail(&apiError{Status: f.Status, Type: strings.ReplaceAll(http.StatusText(f.Status), " ", "") + "Error",
			Message: "The engine was told to answer with status " + strconv.Itoa(f.Status) + "."})
		return false
	case FaultSlow:
		return e.wait(c, f.Delay)
	case FaultRefuse:
		for _, param := range f.Params {
			if req.Has(param) {
				c.fail(&apiError{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param,
					Message: "Unsupported parameter: '" + param + "' is not supported with this model."})
				return false
			}
		}
	case FaultSGLang:
		if req.Stream && req.returnIDs {
			c.json(http.StatusBadRequest, []byte(`{"object":"error","message":"return_token_ids is not supported with stream=True",`+
				`"type":"BadRequest","param":null,"code":400}`))
			return false
		}
	}
	return true
}

// mishap plays the faults that strike between two events; it reports whether to go on.
func (s *sender) mishap() bool {
	f := &s.fault
	if f.Kind == FaultPings {
		s.send([]byte(": ping\n\n"))
	}
	if s.events != f.At {
		return true
	}
	switch f.Kind {
	case FaultStall:
		delay := f.Delay
		if delay == 0 {
			delay = forever
		}
		f.Kind = "" // once per stream
		return s.engine.wait(s.call, delay)
	case FaultCut:
		s.ended = true
		s.reset()
		return false
	case FaultErrorEvent:
		e := apiError{Status: http.StatusInternalServerError, Type: "InternalServerError",
			Message: "EngineCore encountered an issue. See stack trace (above) for the root cause."}
		failed := s.failing(nil, &e)
		if s.reframe != nil {
			failed = s.reframe(failed, s.events)
		}
		s.send(failed)
		if s.wire.stopsDone {
			s.ended = true
		} else {
			s.done()
		}
		return false
	case FaultGarbage:
		f.Kind = ""
		s.send([]byte("data: {\"id\": oops\n\n"))
	}
	return true
}

// forever outlasts every client.
const forever = 24 * time.Hour

// appendLogprob appends a logprob, the last one of a choice as the fault would have it.
func (f Fault) appendLogprob(dst []byte, v float64, last bool) []byte {
	if last {
		switch f.Kind {
		case FaultNullLogprob:
			return append(dst, "null"...)
		case FaultPositiveLogprob:
			return append(dst, "0.5"...)
		case FaultSentinelLogprob:
			return append(dst, "-9999.0"...)
		case FaultNaNLogprob:
			return append(dst, "NaN"...)
		}
	}
	return appendLogprob(dst, v)
}

// appendHuge opens an event with a megabyte of white space, which JSON allows.
func appendHuge(dst []byte) []byte { return append(dst, bytes.Repeat([]byte{' '}, 1<<20)...) }
