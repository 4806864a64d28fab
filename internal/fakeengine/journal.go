package fakeengine

import (
	"net/http"
	"slices"
	"sync"
)

// Received is a request as it arrived.
type Received struct {
	Method string
	Path   string // with the query
	Header http.Header
	Body   []byte
	Done   bool // the handler has returned
	HungUp bool // the client went away before the answer was complete
}

// Truth is what an answer really was, whatever a fault made of it on the wire.
type Truth struct {
	Prompt  []int32
	Sampled [][]int32 // by choice index
	// Logprobs are those of Sampled, as the engine's wire defines them.
	Logprobs [][]float64
	// Prompts has one prompt per choice where a completions call gave several; else nil.
	Prompts [][]int32
}

// truth is a Truth whose logprobs are counted when it is asked for.
type truth struct {
	Truth
	sampler  sampler
	variants []uint64 // by choice index
}

func (t truth) whole() Truth {
	out := t.Truth
	out.Sampled = slices.Clone(t.Sampled)
	out.Logprobs = make([][]float64, len(t.Sampled))
	for i, ids := range t.Sampled {
		out.Logprobs[i] = make([]float64, len(ids))
		for j := range ids {
			out.Logprobs[i][j] = t.sampler.at(j, t.variants[i]).sampled()
		}
	}
	return out
}

// journal remembers the last requests and truths.
type journal struct {
	keep int

	mu       sync.Mutex
	requests []*Received // oldest first
	truths   map[string]truth
	order    []string // keys of truths, oldest first
}

func newJournal(keep int) journal {
	return journal{keep: keep, truths: make(map[string]truth)}
}

func (j *journal) begin(r *http.Request, body []byte) *Received {
	entry := &Received{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header, Body: body}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.requests = push(j.requests, entry, j.keep)
	return entry
}

func (j *journal) end(entry *Received, hungUp bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entry.Done, entry.HungUp = true, hungUp
}

func (j *journal) setTruth(id string, t truth) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.truths[id]; !ok {
		if len(j.order) == j.keep {
			delete(j.truths, j.order[0])
		}
		j.order = push(j.order, id, j.keep)
	}
	j.truths[id] = t
}

// push appends to a list of at most keep elements, dropping the oldest.
func push[T any](list []T, v T, keep int) []T {
	if len(list) == keep {
		copy(list, list[1:])
		list[keep-1] = v
		return list
	}
	return append(list, v)
}

// Requests returns what the engine received, oldest first, at most [Options.Keep] of it. The bodies and headers are the
// engine's own: read only.
func (e *Engine) Requests() []Received {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	out := make([]Received, len(e.journal.requests))
	for i, r := range e.journal.requests {
		out[i] = *r
	}
	return out
}

// Truth returns the ids behind an answer by its id ("chatcmpl-…", "msg_…"), unless it was never given or is forgotten.
func (e *Engine) Truth(id string) (Truth, bool) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	t, ok := e.journal.truths[id]
	return t.whole(), ok
}
