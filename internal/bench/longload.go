package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// LongJob is one conversation that grows turn by turn, as an agent's does: every call sends the whole history again.
type LongJob struct {
	Key    string
	Turns  int
	Tokens int // prompt and answer of the last turn
	Stream bool
	// Chain has every call name the answer before it and send its newest message only, as Responses clients may.
	Chain bool
	// Beside, if it has an address, gets the last Pairs calls too, so that what is added can be told.
	Beside Target
	Pairs  int
}

// LongResult is what came of one.
type LongResult struct {
	Seconds   float64
	Bytes     int64 // of requests and answers, at the client
	TextBytes int64 // of the conversation's messages, each once
	FirstMS   float64
	LastMS    float64 // of the last turn, from the request to the end of the answer
	LastBytes int64   // of the last turn, and of the same call without the proxy
	Added     Quantiles
	Beside    int64 // bytes of calls without the proxy
}

// perTurn is how many ids each turn adds; the last sampledLen of them are sampled.
func (j LongJob) perTurn() int { return j.Tokens / j.Turns }

// promptOf is the length of a turn's prompt.
func (j LongJob) promptOf(turn int) int { return j.perTurn()*(turn+1) - sampledLen }

// mark is that of a turn.
func (j LongJob) mark(turn int) mark {
	kind := byte(markLong)
	if j.Chain {
		kind = markChain
	}
	return mark{kind: kind, number: int64(turn), size: j.promptOf(turn)}
}

// longReply is the text of a turn's answer.
func longReply(m mark) string {
	return m.String() + strings.Repeat(" word", sampledLen-7)
}

func loadLong(job Job) (Result, error) {
	r := Result{Long: make([]LongResult, len(job.Long))}
	begin := time.Now()
	var all sync.WaitGroup
	errs := make([]error, len(job.Long))
	for i, long := range job.Long {
		all.Go(func() { r.Long[i], errs[i] = long.run(job.Target) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return r, fmt.Errorf("the long session %d: %w", i, err)
		}
	}
	r.Seconds = time.Since(begin).Seconds()
	return r, nil
}

func (j LongJob) run(t Target) (LongResult, error) {
	var r LongResult
	if j.perTurn() <= sampledLen {
		return r, fmt.Errorf("%d tokens are too few for %d turns", j.Tokens, j.Turns)
	}
	c, err := dial(t.Addr, 0)
	if err != nil {
		return r, err
	}
	defer c.close()
	var beside *client
	if j.Beside.Addr != "" {
		if beside, err = dial(j.Beside.Addr, 0); err != nil {
			return r, err
		}
		defer beside.close()
	}
	said := strings.Repeat("output of a tool that was run. ", 4*(j.perTurn()-sampledLen)/31+1)
	talk := &conversation{LongJob: j}
	var added []int64
	begin := time.Now()
	for turn := range j.Turns {
		m := j.mark(turn)
		talk.say(m, strconv.Itoa(turn)+" "+said)
		direct, besides := time.Duration(0), int64(0)
		paired := beside != nil && turn >= j.Turns-j.Pairs
		if paired {
			if direct, besides, err = talk.call(beside, j.Beside, "", m, false); err != nil {
				return r, fmt.Errorf("turn %d, without the proxy: %w", turn, err)
			}
			r.Beside += besides
		}
		took, passed, err := talk.call(c, t, j.Key, m, j.Chain)
		if err != nil {
			return r, fmt.Errorf("turn %d: %w", turn, err)
		}
		if paired {
			added = append(added, int64(took-direct))
		}
		r.LastMS, r.LastBytes = took.Seconds()*1e3, passed+besides
		if turn == 0 {
			r.FirstMS = r.LastMS
		}
		talk.hear(m, c.body)
		r.Bytes += passed
	}
	r.Seconds = time.Since(begin).Seconds()
	r.TextBytes = int64(len(talk.history))
	r.Added = quantiles(added)
	return r, nil
}

// conversation is what a harness remembers of one.
type conversation struct {
	LongJob
	history []byte // messages, with commas
	newest  string // the text of the last one
	before  string // the id of the last answer
}

func (t *conversation) say(m mark, text string) {
	if len(t.history) > 0 {
		t.history = append(t.history, ',')
	}
	if t.Chain {
		text = m.String() + " " + text
	}
	t.newest = text
	t.history = append(t.history, `{"role":"user","content":"`+text+`"}`...)
}

func (t *conversation) hear(m mark, answer []byte) {
	t.history = append(t.history, `,{"role":"assistant","content":"`+longReply(m)+`"}`...)
	if _, rest, ok := bytes.Cut(answer, []byte(`"id":"resp_`)); t.Chain && ok {
		id, _, _ := bytes.Cut(rest, []byte(`"`))
		t.before = "resp_" + string(id)
	}
}

// request is the body of the newest call, in pieces.
func (t *conversation) request(to Target, m mark, chained bool) (path string, body [][]byte) {
	if chained {
		start := `{"model":"` + to.model() + `",`
		if t.before != "" {
			start += `"previous_response_id":"` + t.before + `",`
		}
		return "/responses", [][]byte{[]byte(start + `"input":"` + t.newest + `","max_output_tokens":` + strconv.Itoa(sampledLen) + `,"temperature":1}`)}
	}
	tail := `],"max_tokens":` + strconv.Itoa(sampledLen) + `,"temperature":1`
	if t.Stream {
		tail += `,"stream":true`
	}
	return chatPath, [][]byte{[]byte(`{"model":"` + to.model() + `","user":"` + m.String() + `","messages":[`), t.history, []byte(tail + "}")}
}

// call makes the newest call and looks at its answer. It returns how long it took and how many bytes passed.
func (t *conversation) call(c *client, to Target, key string, m mark, chained bool) (took time.Duration, passed int64, err error) {
	path, body := t.request(to, m, chained)
	length := 0
	for _, piece := range body {
		length += len(piece)
	}
	head := requestHead(to, path, key, length)
	asked := time.Now()
	if err := c.do(append([][]byte{head}, body...)...); err != nil {
		return 0, 0, err
	}
	took = time.Since(asked)
	if got, ok := findMark(c.body); !ok || got != m {
		return 0, 0, errors.New("the answer is that of another call")
	}
	if whole := bytes.Contains(c.body, []byte(longReply(m))); !t.Stream && !whole || t.Stream && !bytes.HasSuffix(c.body, []byte("data: [DONE]\n\n")) {
		return 0, 0, errors.New("the answer is cut")
	}
	return took, int64(len(head) + length + len(c.body)), nil
}
