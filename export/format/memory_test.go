package format

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/parquet-go/parquet-go"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// made makes each document anew when it is asked for, and looks at the heap once some and once all have come.
type made struct {
	n           int
	early, late uint64
}

const earlyAt = 8

func (m *made) Len() int          { return m.n }
func (m *made) Name(i int) string { return fmt.Sprint("document ", i) }

func (m *made) Rollout(_ context.Context, i int) (*export.Rollout, error) {
	switch i {
	case earlyAt:
		m.early = heap()
	case m.n - 1:
		m.late = heap()
	}
	reward := float64(i % 2)
	c := newCapture(fmt.Sprint("s", i), fmt.Sprint("g", i/4), &reward)
	call := c.turn([]json.RawMessage{text("user", "q")}, make([]int32, 4000), 10, 11)
	for range 4 {
		call = c.next(call, make([]int32, 1000), 12, 13)
	}
	return c.build(record.SharedOnce), nil
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestMemoryIsBounded: what an export holds does not grow with the sessions. Were they kept, it would by some 5 MB.
func TestMemoryIsBounded(t *testing.T) {
	for _, name := range Names() {
		src, o := &made{n: 32}, Options{}
		if name == "trl-async" { // the first pass too
			o.Advantage = AdvantageGroup
		}
		out := Output{Stream: io.Discard, Create: func(string) (io.WriteCloser, error) { return nopCloser{io.Discard}, nil }}
		s, err := Export(context.Background(), src, name, out, o, nil)
		if err != nil || s.Sessions != src.n {
			t.Fatalf("%s: %v, %d sessions", name, err, s.Sessions)
		}
		if src.late > src.early+1<<20 {
			t.Errorf("%s: the heap grew from %d KiB after %d sessions to %d KiB after %d", name, src.early>>10, earlyAt, src.late>>10, src.n)
		}
	}
}

// TestParquetRowGroups: Parquet is held by the row group, and row groups end.
func TestParquetRowGroups(t *testing.T) {
	var b bytes.Buffer
	s := newSink[trlSFTRow](&b, true)
	row := &trlSFTRow{InputIDs: make([]int32, tokensPerRowGroup/2), Labels: make([]int32, tokensPerRowGroup/2)}
	for range 5 {
		if err := s.put(row, len(row.InputIDs)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.RowGroups()); n != 3 || f.NumRows() != 5 {
		t.Errorf("%d rows in %d row groups, want 5 in 3", f.NumRows(), n)
	}
}
