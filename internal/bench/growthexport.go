package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"captureproxy/export"
	"captureproxy/graph"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
	"captureproxy/store"
)

// exports has the proxy write documents, and looks into one of each session.
func (c *conductor) exports(ctx context.Context, s *Series, p *capture, n int, long LongJob) error {
	var times []float64
	length, most := 0, max(n, len(p.sessions))
	w, err := p.watch(ctx)
	if err != nil {
		return err
	}
	for i := range most {
		begin := time.Now()
		text, err := p.api.Rollout(ctx, p.sessions[i%len(p.sessions)], control.DocumentOptions{})
		if err != nil {
			return err
		}
		times = append(times, time.Since(begin).Seconds()*1e3)
		length = len(text)
		if i >= len(p.sessions) {
			continue
		}
		c.report.Checked += long.Turns
		if wrong := long.differs(string(text)); wrong != "" {
			c.report.lose("a session of %d turns and %d tokens: %s", long.Turns, long.Tokens, wrong)
		}
	}
	used, err := w.stop(ctx)
	if err != nil {
		return err
	}
	s.note("export_ms", "export over HTTP", "ms", median(times))
	s.note("export_cpu_ms", "export: processor time", "ms", used.cpu/float64(most)*1e3)
	s.note("export_peak_mib", "export: memory at the peak", "MiB", used.peak)
	s.note("document_mib", "document", "MiB", mib(int64(length)))
	return nil
}

// derive does in this process what an export does, step by step, on the store of a proxy that is gone.
func (c *conductor) derive(ctx context.Context, s *Series, p *capture, n int) (err error) {
	log, err := store.Open(p.data, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	var reading, linking, building, writing []float64
	own := os.Getpid()
	timed := func(to *[]float64, do func() error) error {
		before, err := finecpu(own)
		if err != nil {
			return err
		}
		failed := do()
		after, err := finecpu(own)
		*to = append(*to, (after-before)*1e3)
		return errors.Join(failed, err)
	}
	for i := range n {
		id := p.sessions[i%len(p.sessions)]
		session, err := log.Session(ctx, id)
		if err != nil {
			return err
		}
		var calls []*record.Call
		err = timed(&reading, func() (err error) {
			calls, err = log.Calls(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
		var turns []graph.Turn
		for i, call := range calls {
			ch := &call.Choices[0]
			turns = append(turns, graph.Turn{ID: fmt.Sprint(i), Arrival: i, Prompt: ch.PromptIDs, Sampled: ch.SampledIDs,
				Logprobs: ch.Logprobs, Usable: true, Request: call.Messages, Reply: ch.Message, Tools: call.Tools})
		}
		var doc *export.Rollout
		for _, step := range []struct {
			to *[]float64
			do func() error
		}{
			{&linking, func() error { graph.Link(turns); return nil }},
			{&building, func() error { doc = export.Build(session, calls, export.Options{}); return nil }},
			{&writing, func() error { _, err := doc.WriteTo(io.Discard); return err }},
		} {
			if err := timed(step.to, step.do); err != nil {
				return err
			}
		}
	}
	s.note("read_ms", "export: of it reading", "ms", median(reading))
	s.note("link_ms", "export: of it linking", "ms", median(linking))
	s.note("build_ms", "export: linking, rows, checks", "ms", median(building))
	s.note("write_ms", "export: of it writing", "ms", median(writing))
	return nil
}

// heap is what the proxy has in use.
func (p *capture) heap() (int64, error) {
	h, err := ask[Heap](p.child, struct{}{})
	return h.Bytes, err
}

// liveBytes asks a store that nobody has open.
func liveBytes(data string) (n int64, err error) {
	log, err := store.Open(data, store.Options{})
	if err != nil {
		return 0, err
	}
	stats, err := log.Stats()
	return stats.LiveBytes, errors.Join(err, log.Close())
}
