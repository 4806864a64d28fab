package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"captureproxy/export"
	"captureproxy/proxy/control"
	"captureproxy/store"
)

// Heap is what a proxy's garbage collector holds when it has just been through: the answer of the hidden worker that is a
// proxy and can be asked.
type Heap struct{ Bytes int64 }

// longSession measures a conversation of many turns: what it costs to export, and what it takes in memory and on disk.
func (c *conductor) longSession(ctx context.Context) error {
	p, err := c.asked(ctx)
	if err != nil {
		return err
	}
	s, err := c.long(ctx, p, c.Size.Turns, c.Size.Tokens, c.Size.Exports)
	c.report.LongSession = s.LongSession
	return err
}

// asked starts a proxy whose memory can be asked for. It is the same App that serve runs.
func (c *conductor) asked(ctx context.Context, flags ...string) (*capture, error) {
	data := fmt.Sprintf("%s/asked-%d", c.dir, time.Now().UnixNano())
	args := append([]string{"bench", "worker", "proxy", "--data", data, "--upstream", "http://" + c.to}, flags...)
	child, err := c.Host.listen(ctx, "capture-proxy", args...)
	if err != nil {
		return nil, err
	}
	return &capture{child: child, data: data, api: control.Client{URL: "http://" + child.addr}}, nil
}

// longRun is what one long session cost.
type longRun struct {
	LongSession
	load LongResult
}

// long plays a session on a proxy and ends the proxy.
func (c *conductor) long(ctx context.Context, p *capture, turns, tokens, exports int) (run longRun, err error) {
	defer func() { err = errors.Join(err, p.kill()) }()
	run.LongSession = LongSession{Turns: turns, Tokens: tokens}
	if err := p.need(ctx, 1); err != nil {
		return run, err
	}
	id := p.sessions[0]
	before, err := ask[Heap](p.child, struct{}{})
	if err != nil {
		return run, err
	}
	long := LongJob{Key: id, Turns: turns, Tokens: tokens}
	r, err := ask[Result](c.load, Job{Target: Target{Addr: p.addr, Path: "/v1"}, Long: []LongJob{long}})
	if err != nil {
		return run, err
	}
	run.load = r.Long[0]
	after, err := ask[Heap](p.child, struct{}{})
	if err != nil {
		return run, err
	}
	run.MemoryMiB = max(mib(after.Bytes-before.Bytes), 0)
	run.TextMiB, run.Seconds = mib(run.load.TextBytes), run.load.Seconds
	var times []float64
	var text []byte
	for range exports {
		begin := time.Now()
		if text, err = p.api.Rollout(ctx, id, control.DocumentOptions{}); err != nil {
			return run, err
		}
		times = append(times, time.Since(begin).Seconds()*1e3)
	}
	run.ExportMS = median(times)
	if wrong := long.differs(string(text)); wrong != "" {
		c.report.lose("the long session of %d turns: %s", turns, wrong)
	}
	c.report.Checked += turns
	if err := p.stop(); err != nil {
		return run, err
	}
	log, err := store.Open(p.data, store.Options{})
	if err != nil {
		return run, err
	}
	stats, err := log.Stats()
	run.DiskMiB = mib(stats.LiveBytes)
	return run, errors.Join(err, log.Close())
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// differs compares a document with the conversation.
func (j LongJob) differs(text string) string {
	doc, err := export.Read(strings.NewReader(text))
	if err != nil {
		return err.Error()
	}
	if doc.Stats.Turns != j.Turns || len(doc.Sequences) != 1 {
		return fmt.Sprintf("%d turns in %d rows", doc.Stats.Turns, len(doc.Sequences))
	}
	row := &doc.Sequences[0]
	var want []int32
	for i := range j.promptOf(j.Turns-1) + sampledLen {
		want = append(want, longID(i))
	}
	if !slices.Equal(row.InputIDs, want) {
		return fmt.Sprintf("its row of %d ids is not what the engine said", len(row.InputIDs))
	}
	trained := 0
	for _, m := range row.LossMask {
		trained += int(m)
	}
	if trained != j.Turns*sampledLen {
		return fmt.Sprintf("%d tokens are trained, %d were sampled", trained, j.Turns*sampledLen)
	}
	return ""
}
