package bench

import (
	"context"
	"errors"
)

// kinds are the ways that are compared, in the order in which they take turns.
var kinds = [...]string{direct, bare, captured}

// withRelay are the ways of which single calls are timed.
var withRelay = [...]string{direct, relayed, bare, captured}

const (
	direct   = "direct"
	relayed  = "relay"
	bare     = "bare"
	captured = "capture"
)

// pacedLen is the number of chunks of the streams whose first byte is timed: what comes later does not matter to it.
const pacedLen = 10

// sample collects one figure per kind over the rounds.
type sample map[string][]float64

func (s sample) add(kind string, v float64) { s[kind] = append(s[kind], v) }

// standard measures whole calls and streams, one way after the other, round by round, so that all have the same weather.
func (c *conductor) standard(ctx context.Context) (err error) {
	p, err := c.capture(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if p != nil {
			err = errors.Join(err, p.kill())
		}
	}()
	most := c.Size.Conns[len(c.Size.Conns)-1]
	if err := p.need(ctx, most); err != nil {
		return err
	}
	rates := map[int]sample{}
	t := timings{sample{}, sample{}, sample{}, sample{}, sample{}, sample{}}
	for range c.Size.Rounds {
		for _, conns := range c.Size.Conns {
			if rates[conns] == nil {
				rates[conns] = sample{}
			}
			ways := kinds[:]
			if conns == 1 {
				ways = withRelay[:]
			}
			for _, kind := range ways {
				spent, r, err := c.costs(p, kind, Job{Conns: conns, For: c.Size.Slice, Warmup: c.Size.Warmup})
				if err != nil {
					return err
				}
				rates[conns].add(kind, float64(r.Calls)/r.Seconds)
				if conns == 1 {
					t.oneshot.add(kind, r.Latency.P50)
				}
				if conns == most && kind != direct {
					t.usage.add(kind, spent)
				}
			}
		}
		for _, kind := range withRelay {
			if err := c.timeStreams(p, kind, &t); err != nil {
				return err
			}
		}
	}
	c.report.standard(rates, t)
	c.say("%.0f unique calls a second", c.Size.Rate)
	r, err := c.through(p, Job{Conns: most, For: c.Size.RateFor, Rate: c.Size.Rate})
	if err != nil {
		return err
	}
	c.report.UniqueRate = float64(r.Calls) / r.Seconds
	c.say("killing the proxy, reading its store")
	killed := p
	p = nil
	if err := killed.kill(); err != nil {
		return err
	}
	return c.check(ctx, killed)
}

// timings are figures of single calls.
type timings struct{ oneshot, usage, first, first99, burst, delay sample }

// timeStreams times streams one way. Chunks that come a millisecond apart, faster than engines make them, leave the processors idle
// in between; back to back they keep three processes busy, and what is measured then is who gets one of two cores.
func (c *conductor) timeStreams(p *capture, kind string, t *timings) error {
	_, r, err := c.costs(p, kind, Job{Conns: 1, For: c.Size.Slice, Warmup: c.Size.Warmup, Stream: true, Chunks: pacedLen, Gap: c.Size.Gap})
	if err != nil {
		return err
	}
	t.first.add(kind, r.TTFB.P50)
	t.first99.add(kind, r.TTFB.P99)
	if _, r, err = c.costs(p, kind, Job{Conns: 1, Calls: 2, Stream: true, Chunks: streamLen, Gap: c.Size.Gap}); err != nil {
		return err
	}
	t.delay.add(kind, r.Delay.P50)
	if _, r, err = c.costs(p, kind, Job{Conns: 1, For: c.Size.Slice, Warmup: c.Size.Warmup, Stream: true, Chunks: streamLen}); err != nil {
		return err
	}
	t.burst.add(kind, r.TTFB.P50)
	return nil
}

// costs does a job one way, and returns the processor time that the proxy spent per call.
func (c *conductor) costs(p *capture, kind string, job Job) (perCall float64, r Result, err error) {
	var of *child
	switch kind {
	case relayed:
		of = c.relay
	case bare:
		of = c.bare
	case captured:
		of = p.child
	}
	before, after := 0.0, 0.0
	if of != nil {
		if before, err = cpu(of.cmd.Process.Pid); err != nil {
			return 0, r, err
		}
	}
	switch kind {
	case direct:
		job.Target = Target{Addr: c.to, Path: "/v1"}
		r, err = c.do(job)
	case relayed, bare:
		job.Target = Target{Addr: of.addr, Path: "/v1"}
		r, err = c.do(job)
	default:
		r, err = c.through(p, job)
	}
	if err != nil || of == nil {
		return 0, r, err
	}
	if after, err = cpu(of.cmd.Process.Pid); err != nil {
		return 0, r, err
	}
	made := int64(0)
	for _, n := range r.Answered {
		made += n
	}
	return (after - before) / float64(max(made, 1)), r, nil
}
