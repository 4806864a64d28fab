package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/storetest"
)

func open(t testing.TB, dir string, opts store.Options) *store.Log {
	t.Helper()
	l, err := store.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func stats(t testing.TB, l *store.Log) store.Stats {
	t.Helper()
	s, err := l.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// standardCalls makes n calls of unique content, over sessions of 100 calls each.
func standardCalls(b *testing.B, l *store.Log, n int) []*record.Call {
	calls := make([]*record.Call, n)
	for i := range calls {
		s := storetest.Session(i / 100)
		if i%100 == 0 {
			storetest.Create(b, l, s)
		}
		calls[i] = storetest.Call(s, i%100+1)
	}
	return calls
}

// BenchmarkAppendOne is one durable write of the standard call at a time.
func BenchmarkAppendOne(b *testing.B) {
	l := open(b, b.TempDir(), store.Options{})
	calls := standardCalls(b, l, b.N)
	before := stats(b, l).LiveBytes
	b.ResetTimer()
	for _, c := range calls {
		if err := <-l.Append(c); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(stats(b, l).LiveBytes-before)/float64(b.N), "disk-B/turn")
}

// BenchmarkAppend64 is 64 writers, each waiting for its own write.
func BenchmarkAppend64(b *testing.B) {
	l := open(b, b.TempDir(), store.Options{})
	calls := standardCalls(b, l, b.N)
	var next atomic.Int64
	b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := <-l.Append(calls[next.Add(1)-1]); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// longSession returns the 200 calls of a session that grows to 128k tokens, and the bytes of its distinct text.
func longSession(s *record.Session) (calls []*record.Call, text int) {
	var messages []json.RawMessage
	var prompt []int32
	const turns, tokens = 200, 128 << 10
	for n := 1; n <= turns; n++ {
		for _, role := range []string{"assistant", "tool"} {
			content := make([]byte, 0, 1300)
			for len(content) < 1280 {
				content = fmt.Appendf(content, "%s %d %d;", role, n, len(content))
			}
			m := json.RawMessage(fmt.Sprintf(`{"role":%q,"content":%q}`, role, content))
			text += len(m)
			messages = append(messages, m)
		}
		c := storetest.Call(s, n)
		c.Messages = append([]json.RawMessage{}, messages...)
		c.Body, c.Cuts = storetest.Body(c.Messages)
		for len(prompt) < n*tokens/turns-64 {
			prompt = append(prompt, int32(len(prompt)*7919%150000))
		}
		c.Choices[0].PromptIDs = append([]int32{}, prompt...)
		prompt = append(prompt, c.Choices[0].SampledIDs...)
		calls = append(calls, c)
	}
	return calls, text
}

// BenchmarkLongSession reads the session of SPEC 9 and reports what it takes: disk beyond its text, memory of the index
// and dictionary, memory of its calls.
func BenchmarkLongSession(b *testing.B) {
	l := open(b, b.TempDir(), store.Options{})
	s := storetest.Session(1)
	calls, text := longSession(s)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	empty := heap()
	storetest.Create(b, l, s)
	for _, c := range calls {
		storetest.Append(b, l, c)
	}
	index := heap() - empty
	before := heap()
	got, err := l.Calls(context.Background(), s.ID)
	if err != nil {
		b.Fatal(err)
	}
	held := heap() - before
	runtime.KeepAlive(got)
	runtime.KeepAlive(calls)
	const mib = 1 << 20
	b.ResetTimer()
	for b.Loop() {
		if _, err := l.Calls(context.Background(), s.ID); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(stats(b, l).LiveBytes)/mib, "disk-MiB")
	b.ReportMetric(float64(stats(b, l).LiveBytes-int64(text))/mib, "disk-beyond-text-MiB")
	b.ReportMetric(float64(index)/mib, "index-MiB")
	b.ReportMetric(float64(held)/mib, "calls-MiB")
}

// BenchmarkOpen rebuilds the index of a log of 10,000 standard calls.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	l := open(b, dir, store.Options{})
	var done []<-chan error
	for _, c := range standardCalls(b, l, 10_000) {
		done = append(done, l.Append(c))
	}
	for _, d := range done {
		if err := <-d; err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(stats(b, l).LiveBytes)
	b.ResetTimer()
	for b.Loop() {
		l = reopen(b, l, dir, store.Options{})
	}
}
