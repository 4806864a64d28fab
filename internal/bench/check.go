package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"captureproxy/internal/record"
	"captureproxy/store"
)

// check opens the store of a proxy that is gone and looks for every call that was answered, with its own content, in the
// session that asked.
func (c *conductor) check(ctx context.Context, p *capture) (err error) {
	log, err := store.Open(p.data, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	held := map[string]map[int64]*record.Call{}
	for _, e := range p.ledger {
		for i, session := range e.sessions {
			if held[session] == nil {
				if held[session], err = c.hold(ctx, log, session); err != nil {
					return err
				}
			}
			first := e.first + int64(i)*stride
			for n := first; n < first+e.answered[i]; n++ {
				if e.failed[n] {
					continue
				}
				c.report.Checked++
				call := held[session][n]
				if call == nil {
					c.report.lose("call %d was answered and is not in the store", n)
					continue
				}
				if wrong := differs(call, n, e.chunks); wrong != "" {
					c.report.lose("call %d: %s", n, wrong)
				}
			}
		}
	}
	stats, err := log.Stats()
	if err != nil {
		return err
	}
	if c.report.Checked > 0 && c.report.StoreBytesPerTurn == 0 {
		c.report.StoreBytesPerTurn = float64(stats.LiveBytes) / float64(c.report.Checked)
	}
	return nil
}

// hold reads a session's calls by the numbers in their requests.
func (c *conductor) hold(ctx context.Context, log *store.Log, session string) (map[int64]*record.Call, error) {
	calls, err := log.Calls(ctx, session)
	if err != nil {
		return nil, err
	}
	held := map[int64]*record.Call{}
	for _, call := range calls {
		if len(call.Messages) != 2 {
			c.report.lose("a record with %d messages", len(call.Messages))
			continue
		}
		m, ok := findMark(call.Messages[1])
		if !ok || held[m.number] != nil {
			c.report.lose("call %d is recorded twice, or without its request", m.number)
			continue
		}
		held[m.number] = call
	}
	return held, nil
}

// differs compares a record with what the engine said to a call; chunks is 0 for a whole answer.
func differs(call *record.Call, number int64, chunks int) string {
	n := sampledLen
	if chunks > 0 {
		n = chunks
	}
	if call.Outcome != record.Complete || len(call.Choices) != 1 {
		return fmt.Sprintf("its outcome is %s (%s), with %d choices", call.Outcome, call.Detail, len(call.Choices))
	}
	choice := &call.Choices[0]
	if len(choice.PromptIDs) != promptLen || len(choice.SampledIDs) != n || len(choice.Logprobs) != n {
		return fmt.Sprintf("%d prompt ids, %d sampled ids, %d logprobs", len(choice.PromptIDs), len(choice.SampledIDs), len(choice.Logprobs))
	}
	for i, id := range choice.PromptIDs {
		if want := idOf(number, i, promptLen, promptSalt); id != want {
			return fmt.Sprintf("prompt id %d is %d, the engine said %d", i, id, want)
		}
	}
	var spelled [15]byte
	for i, id := range choice.SampledIDs {
		if want := idOf(number, i, n, sampledSalt); id != want {
			return fmt.Sprintf("sampled id %d is %d, the engine said %d", i, id, want)
		}
		logprobOf(spelled[:], number, i, n)
		want, err := strconv.ParseFloat(string(spelled[:]), 64)
		if err != nil || math.Float64bits(want) != math.Float64bits(choice.Logprobs[i]) {
			return fmt.Sprintf("logprob %d is %v, the engine said %s", i, choice.Logprobs[i], spelled)
		}
	}
	if chunks == 0 {
		if m, ok := findMark(choice.Message); !ok || m.number != number {
			return "its text is that of another call"
		}
		return ""
	}
	var own [numberLen]byte
	putDigits(own[:], number)
	if got := bytes.Count(choice.Message, append([]byte("-"), own[:]...)); got != n {
		return fmt.Sprintf("%d of %d pieces of its text are its own", got, n)
	}
	return ""
}
