package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is what was measured; the names of SPEC 9 come first.
type Report struct {
	ThroughputRatio    float64     `json:"throughput_ratio"`
	AddedTTFBP50       float64     `json:"added_ttfb_p50_us"`
	AddedTTFBP99       float64     `json:"added_ttfb_p99_us"`
	AddedChunkP50      float64     `json:"added_chunk_p50_us"`
	AddedOneshotP50    float64     `json:"added_oneshot_p50_us"`
	CPUPerCall         float64     `json:"cpu_per_call_us"`
	BareCPUPerCall     float64     `json:"bare_cpu_per_call_us"`
	LostOrMixedRecords int         `json:"lost_or_mixed_records"`
	StreamsRSS         float64     `json:"streams_1000_rss_mib"`
	LongSession        LongSession `json:"long_session"`

	// Calls are calls per second by the number of connections, of each way.
	Calls map[string]map[int]Spread `json:"calls_per_second"`
	// Bare figures are what a proxy adds that records nothing.
	BareAddedTTFBP50    float64 `json:"bare_added_ttfb_p50_us"`
	BareAddedTTFBP99    float64 `json:"bare_added_ttfb_p99_us"`
	BareAddedChunkP50   float64 `json:"bare_added_chunk_p50_us"`
	BareAddedOneshotP50 float64 `json:"bare_added_oneshot_p50_us"`
	// Relay figures are what a process adds that copies bytes.
	RelayAddedTTFBP50    float64 `json:"relay_added_ttfb_p50_us"`
	RelayAddedChunkP50   float64 `json:"relay_added_chunk_p50_us"`
	RelayAddedOneshotP50 float64 `json:"relay_added_oneshot_p50_us"`
	// Burst figures are those of the first byte of streams whose chunks come back to back.
	AddedBurstTTFBP50     float64 `json:"added_burst_ttfb_p50_us"`
	BareAddedBurstTTFBP50 float64 `json:"bare_added_burst_ttfb_p50_us"`
	// Spreads are the extremes of the same figures over the rounds.
	Spreads           map[string]Spread `json:"spreads"`
	UniqueRate        float64           `json:"unique_calls_per_second"`
	StoreBytesPerTurn float64           `json:"store_bytes_per_turn"`
	Checked           int               `json:"checked_records"`
	FailedCalls       int               `json:"failed_calls"`
	Problems          []string          `json:"problems"`
	Machine           Machine           `json:"machine"`
	Seconds           float64           `json:"seconds"`
}

// LongSession is a session of many turns.
type LongSession struct {
	Turns     int     `json:"turns"`
	Tokens    int     `json:"tokens"`
	ExportMS  float64 `json:"export_ms"`
	MemoryMiB float64 `json:"memory_mib"`
	DiskMiB   float64 `json:"disk_mib"`
	TextMiB   float64 `json:"text_mib"` // of that, its messages, each once
	Seconds   float64 `json:"seconds"`
}

// Machine is where it was measured.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

// Spread is a figure over the rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newReport() *Report {
	return &Report{
		Calls: map[string]map[int]Spread{}, Spreads: map[string]Spread{}, Problems: []string{},
		Machine: Machine{processor(), runtime.NumCPU(), runtime.GOOS + "/" + runtime.GOARCH, runtime.Version()},
	}
}

func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	return Spread{rounded(median(v)), rounded(slices.Min(v)), rounded(slices.Max(v))}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

// pairs compares two ways round by round.
func (s sample) pairs(a, b string, f func(a, b float64) float64) Spread {
	var out []float64
	for i := range s[a] {
		if v := f(s[a][i], s[b][i]); !math.IsInf(v, 0) && !math.IsNaN(v) { // a run in which the other side did nothing says nothing
			out = append(out, v)
		}
	}
	return spread(out)
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

// standard takes the figures of the rounds.
func (r *Report) standard(rates map[int]sample, t timings) {
	most := 0
	for conns, s := range rates {
		most = max(most, conns)
		for _, kind := range kinds {
			if r.Calls[kind] == nil {
				r.Calls[kind] = map[int]Spread{}
			}
			r.Calls[kind][conns] = spread(s[kind])
		}
	}
	note := func(name string, s Spread) float64 {
		r.Spreads[name] = s
		return s.Median
	}
	r.ThroughputRatio = note("throughput_ratio", rates[most].pairs(captured, bare, over))
	added := func(name string, s sample) (relay, bared, capture float64) {
		relay = note("relay_"+name, s.pairs(relayed, direct, minus))
		bared = note("bare_"+name, s.pairs(bare, direct, minus))
		return relay, bared, note(name, s.pairs(captured, direct, minus))
	}
	r.RelayAddedOneshotP50, r.BareAddedOneshotP50, r.AddedOneshotP50 = added("added_oneshot_p50_us", t.oneshot)
	r.RelayAddedTTFBP50, r.BareAddedTTFBP50, r.AddedTTFBP50 = added("added_ttfb_p50_us", t.first)
	_, r.BareAddedTTFBP99, r.AddedTTFBP99 = added("added_ttfb_p99_us", t.first99)
	_, r.BareAddedBurstTTFBP50, r.AddedBurstTTFBP50 = added("added_burst_ttfb_p50_us", t.burst)
	r.RelayAddedChunkP50, r.BareAddedChunkP50, r.AddedChunkP50 = added("added_chunk_p50_us", t.delay)
	r.CPUPerCall = note("cpu_per_call_us", spread(t.usage[captured]))
	r.BareCPUPerCall = note("bare_cpu_per_call_us", spread(t.usage[bare]))
}

// failures notes calls that got no good answer.
func (r *Report) failures(from Result) {
	r.FailedCalls += len(from.Failed)
	r.LostOrMixedRecords += from.Mixed
	for _, p := range from.Problems {
		r.problem(p)
	}
}

// lose notes a record that is missing, or not its own.
func (r *Report) lose(format string, args ...any) {
	r.LostOrMixedRecords++
	r.problem(fmt.Sprintf(format, args...))
}

func (r *Report) problem(text string) {
	if len(r.Problems) < 20 {
		r.Problems = append(r.Problems, text)
	}
}

func (r *Report) failure() error {
	if r.LostOrMixedRecords == 0 && r.FailedCalls == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(r.LostOrMixedRecords, " records are lost or mixed, ", r.FailedCalls, " calls failed: ", strings.Join(r.Problems, "; ")))
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	m := r.Machine
	fmt.Fprintf(t, "%s, %d cores, %s, %s; %.0f s\n\n", m.Processor, m.Cores, m.System, m.Go, r.Seconds)
	fmt.Fprint(t, "calls per second\tdirect\tbare proxy\tcapture-proxy\tratio\n")
	var conns []int
	for n := range r.Calls[direct] {
		conns = append(conns, n)
	}
	slices.Sort(conns)
	for _, n := range conns {
		d, b, c := r.Calls[direct][n], r.Calls[bare][n], r.Calls[captured][n]
		fmt.Fprintf(t, "  %d connections\t%.0f (%.0f–%.0f)\t%.0f (%.0f–%.0f)\t%.0f (%.0f–%.0f)\t%.2f\n",
			n, d.Median, d.Min, d.Max, b.Median, b.Min, b.Max, c.Median, c.Min, c.Max, c.Median/b.Median)
	}
	line := func(what, name, target string) {
		fmt.Fprintf(t, "  %s", what)
		for _, s := range []Spread{r.Spreads["relay_"+name], r.Spreads["bare_"+name], r.Spreads[name]} {
			if s == (Spread{}) {
				fmt.Fprint(t, "\t")
				continue
			}
			fmt.Fprintf(t, "\t%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max)
		}
		fmt.Fprintf(t, "\t%s\n", target)
	}
	fmt.Fprint(t, "\nadded over direct, µs\trelay of bytes\tbare proxy\tcapture-proxy\ttarget\n")
	line("first byte of a stream, p50", "added_ttfb_p50_us", "≤ 150")
	line("first byte of a stream, p99", "added_ttfb_p99_us", "")
	line("the same, chunks back to back, p50", "added_burst_ttfb_p50_us", "")
	line("a streamed chunk, p50", "added_chunk_p50_us", "≤ 30")
	line("a whole call, flushed, p50", "added_oneshot_p50_us", "≤ 500")
	line("processor time of the proxy per call", "cpu_per_call_us", "")
	l := r.LongSession
	fmt.Fprintf(t, "\nthroughput ratio at most connections\t\t\t%.2f (%.2f–%.2f)\t≥ 0.6\n", r.ThroughputRatio, r.Spreads["throughput_ratio"].Min, r.Spreads["throughput_ratio"].Max)
	fmt.Fprintf(t, "records lost or mixed\t\t\t%d of %d, at %.0f unique calls a second\t0\n", r.LostOrMixedRecords, r.Checked, r.UniqueRate)
	fmt.Fprintf(t, "memory at 1,000 streams\t\t\t%.0f MiB\t≤ 300\n", r.StreamsRSS)
	fmt.Fprintf(t, "store, per turn\t\t\t%.0f bytes\t\n", r.StoreBytesPerTurn)
	fmt.Fprintf(t, "%d turns to %d tokens\texport\t\t%.0f ms\t≤ 300\n", l.Turns, l.Tokens, l.ExportMS)
	fmt.Fprintf(t, "\tmemory\t\t%.1f MiB\t≤ 4\n", l.MemoryMiB)
	fmt.Fprintf(t, "\tdisk\t\t%.1f MiB, %.1f of them text\t≤ 8 and the text\n", l.DiskMiB, l.TextMiB)
	return t.Flush()
}
