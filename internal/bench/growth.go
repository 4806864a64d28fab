package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// GrowthSize says how far growth is followed.
type GrowthSize struct {
	Streams []int // at the same time
	Chunks  int   // of each
	Pace    time.Duration
	Turns   []int // of one session
	Chains  []int // turns of one session whose calls name the answer before them
	PerTurn int   // tokens that each turn adds
	Pairs   int   // calls at a session's end of which each is also made without the proxy
	Prompts []int // tokens of one call
	Repeats int   // of a call, each in a session of its own, and of an export
}

// DefaultGrowth takes two minutes on two cores, and several when they are busy.
func DefaultGrowth() GrowthSize {
	return GrowthSize{
		Streams: []int{10, 100, 1000, 10_000}, Chunks: streamLen, Pace: 20 * time.Millisecond,
		Turns: []int{10, 50, 200, 500, 1000, 2000}, Chains: []int{10, 50, 200, 500, 1000}, PerTurn: 200, Pairs: 15,
		Prompts: []int{1000, 10_000, 100_000, 1_000_000}, Repeats: 9,
	}
}

// TinyGrowth shows that everything works, and measures nothing.
func TinyGrowth() GrowthSize {
	return GrowthSize{
		Streams: []int{2, 4}, Chunks: 5, Pace: time.Millisecond, Turns: []int{2, 4}, Chains: []int{2, 3}, PerTurn: 100, Pairs: 2,
		Prompts: []int{100, 1000}, Repeats: 2,
	}
}

// Growth is how cost grows with what passes.
type Growth struct {
	Series             []*Series `json:"series"`
	Machine            Machine   `json:"machine"`
	Began              time.Time `json:"began"`
	Seconds            float64   `json:"seconds"`
	LoadBefore         string    `json:"load_before"` // of the machine, as the system averages it over 1, 5 and 15 minutes
	LoadAfter          string    `json:"load_after"`
	Checked            int       `json:"checked_records"`
	LostOrMixedRecords int       `json:"lost_or_mixed_records"`
	FailedCalls        int       `json:"failed_calls"`
	Problems           []string  `json:"problems"`
}

// Grow measures how cost grows, and writes growth.json and a picture per series into the directory out. A size that
// cannot be run here is named in its series' notes.
func Grow(ctx context.Context, o Options, size GrowthSize, out string) (g *Growth, err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	limit, err := raiseDescriptors(2*uint64(largest(size.Streams)) + spareDescriptors)
	if err != nil {
		return nil, err
	}
	c := &conductor{Options: o, report: newReport()}
	defer func() { err = errors.Join(err, c.close()) }()
	g = &Growth{Machine: c.report.Machine, Began: time.Now().UTC().Truncate(time.Second), LoadBefore: loadAverage()}
	begin := time.Now()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, grow := range []func(context.Context) (*Series, error){
		func(ctx context.Context) (*Series, error) { return c.growStreams(ctx, size, limit) },
		func(ctx context.Context) (*Series, error) { return c.growTurns(ctx, size) },
		func(ctx context.Context) (*Series, error) { return c.growChains(ctx, size) },
		func(ctx context.Context) (*Series, error) { return c.growPrompts(ctx, size, false) },
		func(ctx context.Context) (*Series, error) { return c.growPrompts(ctx, size, true) },
	} {
		s, err := grow(ctx)
		if err != nil {
			return nil, err
		}
		s.relate()
		g.Series = append(g.Series, s)
		g.Seconds, g.LoadAfter = time.Since(begin).Seconds(), loadAverage()
		g.Checked, g.LostOrMixedRecords, g.FailedCalls, g.Problems = c.report.Checked, c.report.LostOrMixedRecords, c.report.FailedCalls, c.report.Problems
		if err := g.write(out); err != nil { // after each, so that who breaks off has what was measured
			return nil, err
		}
	}
	return g, c.report.failure()
}

func largest(list []int) int {
	most := 0
	for _, n := range list {
		most = max(most, n)
	}
	return most
}

// watch is what a proxy has spent so far.
type watch struct {
	c     *capture
	begun time.Time
	cpu   float64 // seconds
	rss   float64
	said  map[string]float64
}

// spent is what it spent between two moments.
type spent struct {
	seconds, cpu float64
	peak         float64 // memory beyond what it had, MiB
	said         map[string]float64
}

// The sums that a proxy keeps of its own time, in seconds.
const (
	sumDispatch = "capture_proxy_before_dispatch_seconds_sum"
	sumRelease  = "capture_proxy_before_release_seconds_sum"
	sumStore    = "capture_proxy_store_seconds_sum"
)

func (p *capture) watch(ctx context.Context) (w watch, err error) {
	pid := p.cmd.Process.Pid
	w.c = p
	if w.said, err = p.sums(ctx, sumDispatch, sumRelease, sumStore); err != nil {
		return w, err
	}
	if w.rss, _, err = memory(pid); err != nil {
		return w, err
	}
	if err := forgetPeak(pid); err != nil {
		return w, err
	}
	if w.cpu, err = finecpu(pid); err != nil {
		return w, err
	}
	w.begun = time.Now()
	return w, nil
}

func (w watch) stop(ctx context.Context) (s spent, err error) {
	s.seconds = time.Since(w.begun).Seconds()
	pid := w.c.cmd.Process.Pid
	used, err := finecpu(pid)
	if err != nil {
		return s, err
	}
	_, peak, err := memory(pid)
	if err != nil {
		return s, err
	}
	s.cpu, s.peak = used-w.cpu, peak-w.rss
	if s.said, err = w.c.sums(ctx, sumDispatch, sumRelease, sumStore); err != nil {
		return s, err
	}
	for name, before := range w.said {
		s.said[name] -= before
	}
	return s, nil
}

// sizeName is a size in few characters.
func sizeName(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 1000 && n%100 == 0:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
