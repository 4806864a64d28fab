package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// PeerSize is how much is measured beside other proxies.
type PeerSize struct {
	Rounds   int
	Conns    []int         // ascending
	Slice    time.Duration // of one run; calls that have begun are finished, and counted with the time that they took
	Patience time.Duration // for them
	Settle   time.Duration // in which a record may come that is written behind the answer
	Reading  time.Duration // for all records of a peer
}

// DefaultPeers takes about three minutes with four slow peers, and longer when other things run.
func DefaultPeers() PeerSize {
	return PeerSize{Rounds: 3, Conns: []int{1, 16, 64}, Slice: 2 * time.Second, Patience: 20 * time.Second, Settle: 3 * time.Second, Reading: time.Minute}
}

// TinyPeers shows that everything works, and measures nothing.
func TinyPeers() PeerSize {
	return PeerSize{Rounds: 2, Conns: []int{1, 4}, Slice: 30 * time.Millisecond, Patience: 20 * time.Second, Settle: 50 * time.Millisecond, Reading: time.Minute}
}

// way is one way from the load generator to the engine, and what was measured of it.
type way struct {
	report   *Way
	target   Target
	pid      int      // 0 for none that is known
	sessions sessions // nil for none
	ours     bool     // a failure is one of this program, not a property of somebody else's
	ledger   []entry

	rates map[int][]float64
	p50   []float64 // at the fewest connections; NaN in a round without an answer
	cpu   []float64 // per call at the most connections, the same
}

func newWay(name string, target Target) *way {
	return &way{report: &Way{Name: name, Calls: map[int]Spread{}, Problems: []string{}}, target: target, rates: map[int][]float64{}}
}

// Compare measures the standard call through other proxies, interleaved with direct calls, the bare proxy and this proxy. What
// goes wrong at a peer is its result; an error is what goes wrong here.
func Compare(ctx context.Context, o Options, size PeerSize, peers []Peer) (r *PeerReport, err error) {
	c := &conductor{Options: o, report: newReport()}
	defer func() { err = errors.Join(err, c.close()) }()
	r = &PeerReport{Machine: c.report.Machine, Began: time.Now().UTC().Truncate(time.Second), LoadBefore: loadAverage()}
	begin := time.Now()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	p, err := c.capture(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	captureWay := newWay("capture-proxy", Target{Addr: p.addr, Path: "/v1"})
	captureWay.pid, captureWay.sessions = p.cmd.Process.Pid, ownSessions{p.api}
	bareWay := newWay("bare proxy", Target{Addr: c.bare.addr, Path: "/v1"})
	bareWay.pid = c.bare.cmd.Process.Pid
	ways := []*way{newWay(direct, Target{Addr: c.to, Path: "/v1"}), bareWay, captureWay}
	for _, w := range ways {
		w.ours = true
	}
	for _, peer := range peers {
		w := newWay(peer.Name, Target{Addr: peer.Addr, Path: peer.Path, Headers: peer.Headers})
		w.pid, w.sessions = peer.PID, peer.sessions()
		ways = append(ways, w)
	}
	if err := c.compare(ctx, size, ways); err != nil {
		return nil, err
	}
	for _, w := range ways {
		w.summarise(ways[0])
		if !w.ours && w.sessions != nil {
			c.say("reading what %s recorded", w.report.Name)
			w.report.Records = w.read(ctx, size)
		}
		r.Ways = append(r.Ways, *w.report)
	}
	c.say("killing the proxy, reading its store")
	if err := p.kill(); err != nil {
		return nil, err
	}
	p.ledger = captureWay.ledger
	if err := c.check(ctx, p); err != nil {
		return nil, err
	}
	own := &r.Ways[slices.Index(ways, captureWay)]
	own.Records = &PeerRecords{Answered: c.report.Checked, Own: c.report.Checked - c.report.LostOrMixedRecords, Wrong: c.report.LostOrMixedRecords}
	own.Problems = append(own.Problems, c.report.Problems...)
	r.Seconds, r.LoadAfter = time.Since(begin).Seconds(), loadAverage()
	return r, r.failure(ways)
}

// compare warms every way up, and then lets them take turns.
func (c *conductor) compare(ctx context.Context, size PeerSize, ways []*way) error {
	most := size.Conns[len(size.Conns)-1]
	for _, w := range ways {
		if _, _, err := c.along(ctx, w, Job{Conns: most, Calls: 1, Patience: size.Patience}); err != nil {
			return fmt.Errorf("%s at http://%s does not answer: it must run, in front of the same engine, before the bench begins: %w", w.report.Name, w.target.Addr, err)
		}
	}
	for round := range size.Rounds {
		c.say("round %d of %d", round+1, size.Rounds)
		for _, conns := range size.Conns {
			for _, w := range ways {
				if err := c.turn(ctx, w, size, conns); err != nil && (w.ours || ctx.Err() != nil) {
					return err
				} else if err != nil {
					w.report.Errors++
					w.report.problem(err.Error())
				}
			}
		}
	}
	return nil
}

// job makes a job's sessions, fresh ones, so that no peer pays for what it was asked before.
func (w *way) job(ctx context.Context, job Job) (_ Job, names []string, err error) {
	job.Target = w.target
	if w.sessions == nil {
		return job, nil, nil
	}
	for range job.Conns {
		s, err := w.sessions.open(ctx)
		if err != nil {
			return job, nil, fmt.Errorf("making a session: %w", err)
		}
		names, job.Paths = append(names, s.session), append(job.Paths, s.path)
		if s.key != "" {
			job.Keys = append(job.Keys, s.key)
		}
	}
	return job, names, nil
}

// turn is one way's turn: a slice of calls on some connections.
func (c *conductor) turn(ctx context.Context, w *way, size PeerSize, conns int) error {
	rate, p50, perCall := 0.0, math.NaN(), math.NaN()
	defer func() { // a turn that failed is one of no calls
		w.rates[conns] = append(w.rates[conns], rate)
		if conns == size.Conns[0] {
			w.p50 = append(w.p50, p50)
		}
		if conns == size.Conns[len(size.Conns)-1] {
			w.cpu = append(w.cpu, perCall)
		}
	}()
	r, spent, err := c.along(ctx, w, Job{Conns: conns, For: size.Slice, Patience: size.Patience})
	if err != nil || r.Calls == 0 {
		return err
	}
	rate, p50, perCall = float64(r.Calls)/r.Seconds, r.Latency.P50, spent/float64(r.Calls)
	return nil
}

// along does a job along a way, and returns the processor time that its process spent, if it is known.
func (c *conductor) along(ctx context.Context, w *way, job Job) (r Result, spent float64, err error) {
	job, names, err := w.job(ctx, job)
	if err != nil {
		return r, 0, err
	}
	before, after := 0.0, 0.0
	if w.pid != 0 {
		if before, err = cpu(w.pid); err != nil {
			return r, 0, err
		}
	}
	first := c.next
	if r, err = c.give(job); err != nil {
		return r, 0, err
	}
	w.report.Answered, w.report.Errors = w.report.Answered+r.Calls, w.report.Errors+len(r.Failed)
	for _, p := range r.Problems {
		w.report.problem(p)
	}
	if names != nil {
		w.ledger = append(w.ledger, newEntry(first, names, r))
	}
	if w.pid != 0 {
		after, err = cpu(w.pid)
	}
	return r, after - before, err
}

// summarise makes figures of the rounds.
func (w *way) summarise(direct *way) {
	for conns, rates := range w.rates {
		w.report.Calls[conns] = spread(rates)
	}
	if w != direct {
		var added []float64
		for i, p50 := range w.p50 {
			added = append(added, p50-direct.p50[i])
		}
		w.report.AddedP50 = known(added)
	}
	if w.pid != 0 {
		w.report.CPU = known(w.cpu)
	}
}

// known is a figure over the rounds that gave one, nil when none did.
func known(v []float64) *Spread {
	v = slices.DeleteFunc(v, math.IsNaN)
	if len(v) == 0 {
		return nil
	}
	s := spread(v)
	return &s
}

// read looks for every answered call in the session that asked, as the peer exports it.
func (w *way) read(ctx context.Context, size PeerSize) *PeerRecords {
	late := fmt.Errorf("its records were not all read: it took longer than %s", size.Reading)
	ctx, stop := context.WithTimeoutCause(ctx, size.Reading, late)
	defer stop()
	found := &PeerRecords{}
	settled := time.Now().Add(size.Settle)
	for _, e := range w.ledger {
		for i, session := range e.sessions {
			first := e.first + int64(i)*stride
			var asked []int64
			for n := first; n < first+e.answered[i]; n++ {
				if !e.failed[n] {
					asked = append(asked, n)
				}
			}
			if len(asked) == 0 {
				continue
			}
			found.Answered += len(asked)
			held, err := w.settled(ctx, session, asked, settled)
			if err != nil {
				found.Unread += len(asked)
				if ctx.Err() != nil { // and so it is with all others
					err = context.Cause(ctx)
				}
				w.report.problem(err.Error())
				continue
			}
			for _, n := range asked {
				found.look(w.report, held[n], n)
			}
		}
	}
	return found
}

// settled reads a session, again while records are missing that may still come.
func (w *way) settled(ctx context.Context, session string, asked []int64, until time.Time) (map[int64]*record.Call, error) {
	for {
		held, err := w.sessions.read(ctx, session)
		if err != nil {
			return nil, err
		}
		missing := slices.ContainsFunc(asked, func(n int64) bool { return held[n] == nil })
		if !missing || !time.Now().Before(until) {
			return held, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (f *PeerRecords) look(report *Way, call *record.Call, n int64) {
	if call == nil {
		f.Missing++
		report.problem(fmt.Sprintf("call %d was answered and is not recorded", n))
		return
	}
	if wrong := differs(call, n, 0); wrong != "" {
		f.Wrong++
		report.problem(fmt.Sprintf("call %d: %s", n, wrong))
		return
	}
	f.Own++
}

// ownSessions are those of this proxy. They are not read over HTTP: the store is looked into when the proxy is gone.
type ownSessions struct{ api control.Client }

func (o ownSessions) open(ctx context.Context) (seat, error) {
	made, err := o.api.Create(ctx, control.CreateRequest{})
	return seat{session: made.SessionID, key: made.SessionID, path: "/v1"}, err
}

func (o ownSessions) read(context.Context, string) (map[int64]*record.Call, error) {
	return nil, errors.ErrUnsupported
}

// connections are the numbers of connections that were measured, ascending.
func (r *PeerReport) connections() []int {
	return slices.Sorted(maps.Keys(r.Ways[0].Calls))
}
