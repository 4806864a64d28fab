package format

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// thousand is 1,000 sessions of 20 turns, in groups of eight; each grows to 7,280 tokens, of which it samples 1,280.
type thousand struct{ peak uint64 }

func (*thousand) Len() int          { return 1000 }
func (*thousand) Name(i int) string { return fmt.Sprint("document ", i) }

func (s *thousand) Rollout(_ context.Context, i int) (*export.Rollout, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.peak = max(s.peak, m.HeapAlloc)
	reward := float64(i % 2)
	c := newCapture(fmt.Sprint("s", i), fmt.Sprint("g", i/8), &reward)
	sampled := make([]int32, 64)
	for k := range sampled {
		sampled[k] = int32(1000 + k)
	}
	call := c.turn([]json.RawMessage{text("user", "q")}, make([]int32, 300), sampled...)
	for range 19 {
		call = c.next(call, make([]int32, 300), sampled...)
	}
	return c.build(record.SharedOnce), nil
}

// BenchmarkExport writes them in each form; deriving the documents, which "build" measures alone, is part of it.
func BenchmarkExport(b *testing.B) {
	b.Run("build", func(b *testing.B) {
		src := &thousand{}
		for b.Loop() {
			for i := range src.Len() {
				if _, err := src.Rollout(context.Background(), i); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			src := &thousand{}
			var size counter
			for b.Loop() {
				size = 0
				out := Output{Stream: &size, Create: func(string) (io.WriteCloser, error) { return nopCloser{&size}, nil }}
				if _, err := Export(context.Background(), src, name, out, Options{}, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(src.peak)/(1<<20), "peak-MiB")
			b.ReportMetric(float64(size)/(1<<20), "written-MiB")
		})
	}
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
