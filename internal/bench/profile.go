package bench

import (
	"context"
	"errors"
)

// profile runs the standard call at most connections, alternating with the bare proxy so that the load is that of the
// measurement, and has the proxy profile itself.
func (c *conductor) profile(ctx context.Context) (err error) {
	p, err := c.asked(ctx, "--cpuprofile", c.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	conns := c.Size.Conns[len(c.Size.Conns)-1]
	if err := p.need(ctx, conns); err != nil {
		return err
	}
	spent, r, err := c.costs(p, captured, Job{Conns: conns, For: 8 * c.Size.Slice, Stream: c.ProfileStream, Chunks: streamLen})
	if err != nil {
		return err
	}
	c.say("%.0f calls a second, %.0f µs of processor time each", float64(r.Calls)/r.Seconds, spent)
	return p.stop()
}
