package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// growStreams measures many streams at the same time.
func (c *conductor) growStreams(ctx context.Context, size GrowthSize, limit uint64) (*Series, error) {
	return c.growStreamsInto(ctx, &Series{Name: "growth-streams", Title: "Streams at the same time", Axis: "concurrent streams"}, size, limit)
}

func (c *conductor) growStreamsInto(ctx context.Context, s *Series, size GrowthSize, limit uint64) (*Series, error) {
	for _, n := range size.Streams {
		if most := int(limit-spareDescriptors) / 2; n > most {
			s.Notes = append(s.Notes, fmt.Sprintf("%d streams need %d descriptors in the proxy, and a process may open %d here (the hard limit, which could not be raised): %d streams were run instead",
				n, 2*n+spareDescriptors, limit, most))
			n = most
		}
		c.say("%d streams", n)
		if err := c.growStream(ctx, s, size, n); err != nil {
			return nil, fmt.Errorf("%d streams: %w", n, err)
		}
	}
	return s, nil
}

func (c *conductor) growStream(ctx context.Context, s *Series, size GrowthSize, n int) (err error) {
	p, err := c.asked(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	if err := p.need(ctx, n); err != nil {
		return err
	}
	before, err := p.heap()
	if err != nil {
		return err
	}
	passed, err := c.passed(ctx)
	if err != nil {
		return err
	}
	w, err := p.watch(ctx)
	if err != nil {
		return err
	}
	job := Job{Conns: n, Calls: 1, Stream: true, Chunks: size.Chunks, Gap: size.Pace, Spread: 1 + n/5000}
	r, err := c.through(p, job)
	if err != nil {
		return err
	}
	used, err := w.stop(ctx)
	if err != nil {
		return err
	}
	upstream, err := c.passed(ctx)
	if err != nil {
		return err
	}
	after, err := p.heap()
	if err != nil {
		return err
	}
	bytes := float64(r.Bytes + upstream - passed)
	job.Target = Target{Addr: c.to, Path: "/v1"}
	direct, err := c.do(job)
	if err != nil {
		return err
	}
	plain, err := c.bareStreams(job)
	if err != nil {
		return err
	}
	if r.AtOnce < n {
		s.Notes = append(s.Notes, fmt.Sprintf("of %d streams at most %d were being answered at one time", n, r.AtOnce))
	}
	chunks := float64(n * size.Chunks)
	s.point(n, bytes)
	s.note("cpu_s", "processor time of the proxy", "s", used.cpu)
	s.noteOf("cpu_per_chunk_us", "processor time per chunk", "µs", used.cpu/chunks*1e6, bytes/chunks)
	s.noteOf("bare_cpu_per_chunk_us", "the same of the bare proxy", "µs", plain.cpu/chunks*1e6, bytes/chunks)
	s.note("wall_s", "until all had ended", "s", r.Seconds)
	s.note("bare_wall_s", "the same through the bare proxy", "s", plain.Seconds)
	s.note("direct_wall_s", "the same without a proxy", "s", direct.Seconds)
	s.note("first_byte_p50_ms", "first byte, median", "ms", r.TTFB.P50/1e3)
	s.note("bare_first_byte_p50_ms", "the same through the bare proxy", "ms", plain.TTFB.P50/1e3)
	s.note("direct_first_byte_p50_ms", "the same without a proxy", "ms", direct.TTFB.P50/1e3)
	s.note("rss_mib", "peak memory, idle taken off", "MiB", used.peak)
	s.noteOf("rss_per_stream_kib", "peak memory per stream", "KiB", used.peak*1024/float64(n), bytes/float64(n))
	s.note("bare_peak_mib", "peak memory of the bare proxy, all of it", "MiB", plain.peak)
	s.note("kept_mib", "memory in use afterwards", "MiB", mib(after-before))
	s.note("commit_ms", "durable write, mean of the streams", "ms", used.said[sumStore]/float64(n)*1e3)
	if err := p.kill(); err != nil {
		return err
	}
	if err := c.check(ctx, p); err != nil {
		return err
	}
	disk, err := liveBytes(p.data)
	s.note("disk_mib", "disk", "MiB", mib(disk))
	return err
}

// bareRun is what many streams cost the bare proxy.
type bareRun struct {
	Result
	cpu  float64 // seconds
	peak float64 // of its memory, MiB; it has served the smaller sizes before
}

// bareStreams runs the same streams through the bare proxy.
func (c *conductor) bareStreams(job Job) (b bareRun, err error) {
	pid := c.bare.cmd.Process.Pid
	if err := forgetPeak(pid); err != nil {
		return b, err
	}
	before, err := finecpu(pid)
	if err != nil {
		return b, err
	}
	job.Target = Target{Addr: c.bare.addr, Path: "/v1"}
	if b.Result, err = c.do(job); err != nil {
		return b, err
	}
	after, err := finecpu(pid)
	if err != nil {
		return b, err
	}
	b.cpu = after - before
	_, b.peak, err = memory(pid)
	return b, err
}

// growTurns measures sessions of many turns.
func (c *conductor) growTurns(ctx context.Context, size GrowthSize) (*Series, error) {
	s := &Series{Name: "growth-turns", Title: "Turns of one session", Axis: "turns"}
	for _, n := range size.Turns {
		c.say("a session of %d turns", n)
		long := LongJob{Turns: n, Tokens: n * size.PerTurn, Pairs: min(size.Pairs, n)}
		if err := c.growLong(ctx, s, n, 1, size.Repeats, long); err != nil {
			return nil, fmt.Errorf("a session of %d turns: %w", n, err)
		}
	}
	return s, nil
}

// growChains measures sessions of many turns in which each call names the answer before it and sends what is new: the proxy puts
// the conversation together from its record.
func (c *conductor) growChains(ctx context.Context, size GrowthSize) (*Series, error) {
	s := &Series{Name: "growth-chains", Title: "Turns of one session, each naming the response before it", Axis: "turns"}
	for _, n := range size.Chains {
		c.say("a chain of %d responses", n)
		long := LongJob{Turns: n, Tokens: n * size.PerTurn, Chain: true, Pairs: min(size.Pairs, n)}
		if err := c.growLong(ctx, s, n, 1, size.Repeats, long); err != nil {
			return nil, fmt.Errorf("a chain of %d responses: %w", n, err)
		}
	}
	return s, nil
}

// passed asks the engine how many bytes it has read and written.
func (c *conductor) passed(ctx context.Context) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.to+passedPath, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// growPrompts measures single calls with long prompts, each in a session of its own.
func (c *conductor) growPrompts(ctx context.Context, size GrowthSize, stream bool) (*Series, error) {
	s := &Series{Name: "growth-prompts", Title: "Length of one prompt", Axis: "prompt tokens"}
	if stream {
		s.Name, s.Title = s.Name+"-streamed", s.Title+", the answer streamed"
	}
	for _, n := range size.Prompts {
		c.say("a prompt of %d tokens, streamed: %t", n, stream)
		if err := c.growLong(ctx, s, n, size.Repeats, size.Repeats, LongJob{Turns: 1, Tokens: n + sampledLen, Stream: stream, Pairs: 1}); err != nil {
			return nil, fmt.Errorf("a prompt of %d tokens: %w", n, err)
		}
	}
	return s, nil
}

// growLong plays sessions on a proxy of their own, one after the other, and notes what one of them costs.
func (c *conductor) growLong(ctx context.Context, s *Series, size, sessions, exports int, long LongJob) (err error) {
	p, err := c.asked(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.kill()) }()
	if err := p.need(ctx, sessions); err != nil {
		return err
	}
	before, err := p.heap()
	if err != nil {
		return err
	}
	long.Beside = Target{Addr: c.to, Path: "/v1"}
	passed, err := c.passed(ctx)
	if err != nil {
		return err
	}
	w, err := p.watch(ctx)
	if err != nil {
		return err
	}
	var bytes float64
	var added []float64
	var last LongResult
	for _, id := range p.sessions {
		long.Key = id
		r, err := ask[Result](c.load, Job{Target: Target{Addr: p.addr, Path: "/v1"}, Long: []LongJob{long}})
		if err != nil {
			return err
		}
		last = r.Long[0]
		bytes, added = bytes+float64(last.Bytes-last.Beside), append(added, last.Added.P50)
	}
	used, err := w.stop(ctx)
	if err != nil {
		return err
	}
	after, err := p.heap()
	if err != nil {
		return err
	}
	upstream, err := c.passed(ctx)
	if err != nil {
		return err
	}
	bytes += float64(upstream - passed)
	per := func(v float64) float64 { return v / float64(sessions) }
	s.point(size, per(bytes))
	s.noteOf("added_ms", "added to the last calls, median", "ms", median(added)/1e3, float64(last.LastBytes))
	s.note("cpu_s", "processor time of the proxy", "s", per(used.cpu))
	s.note("dispatch_ms", "request read until sent on, sum", "ms", per(used.said[sumDispatch])*1e3)
	s.note("commit_ms", "durable writes, sum", "ms", per(used.said[sumStore])*1e3)
	s.note("rss_mib", "peak memory, idle taken off", "MiB", used.peak)
	s.note("kept_mib", "memory in use afterwards", "MiB", per(mib(after-before)))
	if err := c.exports(ctx, s, p, exports, long); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}
	disk, err := liveBytes(p.data)
	if err != nil {
		return err
	}
	s.note("disk_mib", "disk, text included", "MiB", per(mib(disk)))
	return c.derive(ctx, s, p, exports)
}

// growthNames are the figures that a picture shows, in order; the rest stands in growth.json and in the table.
func growthNames(series string) []string {
	switch {
	case series == "growth-streams":
		return []string{"cpu_s", "rss_mib", "disk_mib", "cpu_per_chunk_us", "rss_per_stream_kib", "first_byte_p50_ms"}
	case strings.HasPrefix(series, "growth-prompts"): // there is nothing to link
		return []string{"added_ms", "cpu_s", "commit_ms", "rss_mib", "disk_mib", "document_mib", "export_cpu_ms", "read_ms", "write_ms"}
	}
	return []string{"added_ms", "cpu_s", "commit_ms", "rss_mib", "kept_mib", "disk_mib", "export_cpu_ms", "link_ms", "document_mib"}
}
