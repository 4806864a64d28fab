package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"captureproxy/proxy/control"
)

// Options say what to measure, and how long.
type Options struct {
	Host Host
	// Dir gets the stores, in a directory of their own that is removed again; "" for the system's place for temporary
	// files. It decides which disk is measured.
	Dir  string
	Size Size
	// Engine is the address (host:port) of a lean engine that runs already, "" to start one.
	Engine string
	// Profile, when not empty, is a file for a CPU profile of the proxy under the standard call. Nothing else is measured then.
	Profile       string
	ProfileStream bool // of streams instead
	// Progress gets a line per step; nil for none.
	Progress io.Writer
}

// Size is how much is measured.
type Size struct {
	Rounds  int           // of everything that is interleaved
	Slice   time.Duration // of one run
	Warmup  time.Duration
	Conns   []int // how many connections, ascending
	Rate    float64
	RateFor time.Duration
	Gap     time.Duration // between the chunks of the streams whose delays are measured
	Streams int           // at the same time
	Pace    time.Duration // between their chunks; the machine may be slower, what is looked at is memory
	Turns   int           // of the long session
	Tokens  int
	Exports int
}

// Default ends within 40 seconds on two cores.
func Default() Size {
	return Size{
		Rounds: 3, Slice: 300 * time.Millisecond, Warmup: 100 * time.Millisecond, Conns: []int{1, 16, 64}, Rate: 2050, RateFor: 2 * time.Second,
		Gap: time.Millisecond, Streams: 1000, Pace: 20 * time.Millisecond, Turns: 200, Tokens: 128_000, Exports: 3,
	}
}

// Full takes about three minutes.
func Full() Size {
	s := Default()
	s.Rounds, s.Slice, s.RateFor, s.Exports = 7, 2*time.Second, 10*time.Second, 7
	return s
}

// Tiny shows that everything works, and measures nothing.
func Tiny() Size {
	return Size{
		Rounds: 1, Slice: 20 * time.Millisecond, Warmup: time.Millisecond, Conns: []int{1, 2, 4}, Rate: 100, RateFor: 100 * time.Millisecond,
		Gap: 100 * time.Microsecond, Streams: 10, Pace: 100 * time.Microsecond, Turns: 5, Tokens: 1000, Exports: 1,
	}
}

// conductor runs the measurements, one after the other.
type conductor struct {
	Options
	dir    string
	engine *child // nil when it was there before
	to     string // the engine's address
	relay  *child
	bare   *child
	load   *child
	next   int64 // number of the next call
	report *Report
}

// step is one part of a run.
type step struct {
	name string
	do   func(context.Context) error
}

// Run measures, and returns what came of it. A report with lost or mixed records or failed calls comes with an error.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	c := &conductor{Options: o, report: newReport()}
	defer func() { err = errors.Join(err, c.close()) }()
	begin := time.Now()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	steps := []step{{"whole calls and streams", c.standard}, {fmt.Sprintf("%d streams at the same time", o.Size.Streams), c.manyStreams}, {"the long session", c.longSession}}
	if o.Profile != "" {
		steps = []step{{"a profile", c.profile}}
	}
	for _, step := range steps {
		c.say("%s", step.name)
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	c.report.Seconds = time.Since(begin).Seconds()
	return c.report, c.report.failure()
}

func (c *conductor) say(format string, args ...any) {
	if c.Progress != nil {
		fmt.Fprintf(c.Progress, "bench: "+format+"\n", args...)
	}
}

// open starts the processes that every measurement needs.
func (c *conductor) open(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp(c.Dir, "capture-proxy-bench-"); err != nil {
		return err
	}
	c.to = c.Engine
	if c.to == "" {
		if c.engine, err = c.Host.listen(ctx, "engine", "bench", "worker", "engine"); err != nil {
			return err
		}
		c.to = c.engine.addr
	}
	if c.bare, err = c.Host.listen(ctx, "bare proxy", "bench", "worker", "bare", "--upstream", "http://"+c.to); err != nil {
		return err
	}
	if c.relay, err = c.Host.listen(ctx, "relay", "bench", "worker", "relay", "--upstream", "http://"+c.to); err != nil {
		return err
	}
	c.load, err = c.Host.start(ctx, "load generator", "bench", "worker", "load")
	return err
}

func (c *conductor) close() error {
	var errs []error
	for _, child := range []*child{c.load, c.relay, c.bare, c.engine} {
		if child != nil {
			errs = append(errs, child.stop())
		}
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// do has the load generator do a job, with numbers that no other job has.
func (c *conductor) do(job Job) (Result, error) {
	r, err := c.give(job)
	if err == nil {
		c.report.failures(r)
	}
	return r, err
}

// give is do for whoever counts the failures of the calls himself.
func (c *conductor) give(job Job) (Result, error) {
	job.First = c.next
	c.next += int64(job.Conns) * stride
	return ask[Result](c.load, job)
}

// capture is a capture-proxy with a store of its own.
type capture struct {
	*child
	data     string
	api      control.Client
	sessions []string
	ledger   []entry
}

// entry is a job that the proxy has answered: which numbers its sessions must hold.
type entry struct {
	first    int64
	sessions []string // of each connection
	answered []int64
	failed   map[int64]bool
	chunks   int // of a stream, 0 for whole answers
}

// capture starts a proxy as users run it.
func (c *conductor) capture(ctx context.Context) (*capture, error) {
	data := filepath.Join(c.dir, "store-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	child, err := c.Host.listen(ctx, "capture-proxy", "serve", "--listen", "127.0.0.1:0", "--data", data, "--upstream", "http://"+c.to)
	if err != nil {
		return nil, err
	}
	return &capture{child: child, data: data, api: control.Client{URL: "http://" + child.addr}}, nil
}

// need makes sure that there are n sessions.
func (p *capture) need(ctx context.Context, n int) error {
	const atOnce = 16
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	missing := n - len(p.sessions)
	for i := range min(atOnce, missing) {
		all.Go(func() {
			for j := i; j < missing; j += atOnce {
				made, err := p.api.Create(ctx, control.CreateRequest{})
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					p.sessions = append(p.sessions, made.SessionID)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// through has a job done through the proxy and notes what its store must hold.
func (c *conductor) through(p *capture, job Job) (Result, error) {
	job.Target, job.Keys = Target{Addr: p.addr, Path: "/v1"}, p.sessions[:job.Conns]
	first := c.next
	r, err := c.do(job)
	if err != nil {
		return r, err
	}
	e := newEntry(first, job.Keys, r)
	if job.Stream {
		e.chunks = job.Chunks
	}
	p.ledger = append(p.ledger, e)
	return r, nil
}

// newEntry is what must be held after a job of whole calls, whose numbers begin with first.
func newEntry(first int64, sessions []string, r Result) entry {
	e := entry{first: first, sessions: sessions, answered: r.Answered, failed: map[int64]bool{}}
	for _, n := range r.Failed {
		e.failed[n] = true
	}
	return e
}
