package bench

import (
	"context"
	"errors"
)

// manyStreams measures the memory that a fresh proxy takes for many streams at the same time.
func (c *conductor) manyStreams(ctx context.Context) (err error) {
	p, err := c.capture(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	_, peak, err := c.streams(ctx, p, c.Size.Streams)
	if err != nil {
		return err
	}
	c.report.StreamsRSS = peak
	if err := p.kill(); err != nil {
		return err
	}
	return c.check(ctx, p)
}

// streams runs n standard streams at the same time and returns the peak of the proxy's memory.
func (c *conductor) streams(ctx context.Context, p *capture, n int) (r Result, peak float64, err error) {
	if err := p.need(ctx, n); err != nil {
		return r, 0, err
	}
	if err := forgetPeak(p.cmd.Process.Pid); err != nil {
		return r, 0, err
	}
	r, err = c.through(p, Job{Conns: n, Calls: 1, Stream: true, Chunks: streamLen, Gap: c.Size.Pace, Spread: 1 + n/5000})
	if err != nil {
		return r, 0, err
	}
	_, peak, err = memory(p.cmd.Process.Pid)
	return r, peak, err
}
