package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/storetest"
)

const (
	firstSegment      = "00000001.log"
	segmentHeaderSize = 40
)

// smallCall is a call whose frame is a few hundred bytes, for tests that go through every byte.
func smallCall(s *record.Session, n int) *record.Call {
	return &record.Call{Session: s.ID, Instance: s.Instance, Number: n, Body: fmt.Appendf(nil, "body %d", n), Outcome: record.Complete,
		Choices: []record.Choice{{PromptIDs: []int32{1, 2, int32(n)}, SampledIDs: []int32{int32(n)}, Logprobs: []float64{-0.5}}}}
}

// crashed is a log of which a copy was taken before it was closed, as a crash leaves it, after each call.
type crashed struct {
	sessions []*record.Session
	sizes    []int64 // where the log ended after each call, which was acknowledged then
	log      []byte  // up to the end of the last
}

// crash writes n calls, in turn to two sessions, and takes the log away.
func crash(t *testing.T, n int) crashed {
	t.Helper()
	dir := t.TempDir()
	l := open(t, dir, store.Options{})
	c := crashed{sessions: []*record.Session{storetest.Session(1), storetest.Session(2)}}
	storetest.Create(t, l, c.sessions...)
	for i := range n {
		storetest.Append(t, l, smallCall(c.sessions[i%2], i/2+1))
		c.sizes = append(c.sizes, end(t, l))
	}
	data, err := os.ReadFile(filepath.Join(dir, firstSegment))
	if err != nil {
		t.Fatal(err)
	}
	c.log = data[:c.sizes[n-1]]
	return c
}

// end is where a log ends of which everything is live and in one segment.
func end(t *testing.T, l *store.Log) int64 { return segmentHeaderSize + stats(t, l).LiveBytes }

// check fails unless the log holds the first n calls.
func (c crashed) check(t *testing.T, l *store.Log, n int) {
	t.Helper()
	for i, s := range c.sessions {
		var want []*record.Call
		for j := i; j < n; j += 2 {
			want = append(want, smallCall(s, j/2+1))
		}
		storetest.CheckCalls(t, l, s.ID, want...)
	}
}

// open opens a log that holds the given bytes.
func (c crashed) open(t *testing.T, data []byte) (*store.Log, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, firstSegment), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, dir, noSync()), dir
}

// noSync are options for tests that open many logs.
func noSync() store.Options {
	return (&store.FaultyDisk{NoSync: true}).Use(store.Options{SegmentSize: 16 << 10})
}

// TestTornTail leaves of the last call any number of bytes, with nothing, zeros or rubbish behind them in turn: what is
// whole is there, the rest is cut off without complaint, and the log goes on.
func TestTornTail(t *testing.T) {
	c := crash(t, 4)
	rubbish := make([]byte, 600)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range rubbish {
		rubbish[i] = byte(rng.Uint32())
	}
	tails := [][]byte{nil, make([]byte, 600), rubbish, slices.Concat(rubbish[:30], make([]byte, 600))}
	for size := c.sizes[2]; size <= c.sizes[3]; size++ {
		if size > c.sizes[2]+64 && size < c.sizes[3]-8 && size%3 != 0 { // alike: header whole, payload not
			continue
		}
		data := slices.Concat(c.log[:size], tails[size%4])
		whole := 3 // a frame that ends in zeros is whole when zeros follow
		for whole < 4 && bytes.HasPrefix(data, c.log[:c.sizes[whole]]) {
			whole++
		}
		l, dir := c.open(t, data)
		noDamage(t, l)
		storetest.Append(t, l, smallCall(c.sessions[whole%2], whole/2+1))
		l = reopen(t, l, dir, noSync())
		noDamage(t, l)
		c.check(t, l, whole+1)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("with %d bytes and tail %d", size, size%4)
		}
	}
}

// TestDamagedMiddle changes bytes of an acknowledged call in the middle of the log: that call alone is lost, its
// session says so, the other session does not, and both go on.
func TestDamagedMiddle(t *testing.T) {
	c := crash(t, 6)
	victim, other := c.sessions[0], c.sessions[1] // the third call is call 2 of the first session
	for at := c.sizes[1]; at < c.sizes[2]; at++ {
		if at > c.sizes[1]+64 && at%7 != 0 { // past the header all bytes are alike: one checksum covers them
			continue
		}
		data := slices.Clone(c.log)
		data[at] ^= 0x55
		l, dir := c.open(t, data)
		checkDamaged := func() {
			t.Helper()
			if len(l.Damage()) == 0 || l.Damage()[0].Offset != c.sizes[1] || l.Damage()[0].Length != c.sizes[2]-c.sizes[1] {
				t.Fatalf("byte %d: damage %v, want the frame at %d", at, l.Damage(), c.sizes[1])
			}
			marked, err := l.Session(ctx, victim.ID)
			if err != nil || !strings.Contains(marked.CaptureFailed, "damaged") {
				t.Fatalf("byte %d: the damaged session reads %+v, %v", at, marked, err)
			}
			calls, err := l.Calls(ctx, victim.ID)
			if !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("byte %d: Calls: %v, want ErrDamaged", at, err)
			}
			var numbers []int
			for _, call := range calls {
				numbers = append(numbers, call.Number)
			}
			if len(numbers) < 2 || numbers[0] != 1 || slices.Contains(numbers, 2) {
				t.Fatalf("byte %d: calls %v are read", at, numbers)
			}
			clean, err := l.Session(ctx, other.ID)
			if err != nil || clean.CaptureFailed != "" {
				t.Fatalf("byte %d: the session beside it reads %+v, %v", at, clean, err)
			}
		}
		checkDamaged()
		storetest.CheckCalls(t, l, other.ID, smallCall(other, 1), smallCall(other, 2), smallCall(other, 3))
		storetest.Append(t, l, smallCall(victim, 4), smallCall(other, 4))
		l = reopen(t, l, dir, noSync())
		checkDamaged()
		storetest.CheckCalls(t, l, other.ID, smallCall(other, 1), smallCall(other, 2), smallCall(other, 3), smallCall(other, 4))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedDictionary loses the call that brought what later calls refer to: those are reported, never guessed.
func TestDamagedDictionary(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, noSync())
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	first := storetest.Call(s, 1)
	storetest.Append(t, l, first)
	middle := end(t, l) - 200
	second, third := storetest.Call(s, 2), storetest.Call(s, 3)
	second.Choices[0].PromptIDs = slices.Concat(first.Choices[0].PromptIDs, first.Choices[0].SampledIDs)
	storetest.Append(t, l, second, third)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, firstSegment), middle)

	l = open(t, dir, noSync())
	calls, err := l.Calls(ctx, s.ID)
	if !errors.Is(err, store.ErrDamaged) || len(calls) > 1 {
		t.Fatalf("%d calls, %v; want those that do not need the lost one, and ErrDamaged", len(calls), err)
	}
	for _, c := range calls {
		if !slices.Equal(c.Choices[0].PromptIDs, third.Choices[0].PromptIDs) {
			t.Fatalf("call %d has ids that it never had", c.Number)
		}
	}
	if _, err := l.Body(ctx, s.ID, 1); !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("the lost body: %v", err)
	}
	// The next call starts a new dictionary and needs nothing of the lost one.
	fourth := storetest.Call(s, 4)
	fourth.Choices[0].PromptIDs = second.Choices[0].PromptIDs
	storetest.Append(t, l, fourth)
	calls, err = l.Calls(ctx, s.ID)
	if n := len(calls); !errors.Is(err, store.ErrDamaged) || n == 0 || !slices.Equal(calls[n-1].Choices[0].PromptIDs, fourth.Choices[0].PromptIDs) {
		t.Fatalf("the call after the damage cannot be read: %d calls, %v", n, err)
	}
}

// TestDamagedWhileOpen changes a byte under an open log.
func TestDamagedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, noSync())
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	storetest.Append(t, l, smallCall(s, 1))
	flip(t, filepath.Join(dir, firstSegment), end(t, l)-1)
	calls, err := l.Calls(ctx, s.ID)
	var damage *store.DamageError
	if !errors.As(err, &damage) || damage.Session != s.ID || len(calls) != 0 {
		t.Fatalf("Calls: %d calls, %v; want the damage, with the session's name", len(calls), err)
	}
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 0xff
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFrameInsideBody stores a copy of the log in a call, then damages the log: what looks like a frame inside a body is
// not taken for one.
func TestFrameInsideBody(t *testing.T) {
	c := crash(t, 2)
	l, dir := c.open(t, c.log)
	evil := smallCall(c.sessions[0], 2)
	evil.Body = c.log
	storetest.Append(t, l, evil)
	storetest.Append(t, l, smallCall(c.sessions[1], 2))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, firstSegment), c.sizes[1]+2) // the length of the frame that holds the copy
	l = open(t, dir, noSync())
	if len(l.Damage()) == 0 {
		t.Fatal("no damage was found")
	}
	storetest.CheckCalls(t, l, c.sessions[1].ID, smallCall(c.sessions[1], 1), smallCall(c.sessions[1], 2))
	marked, err := l.Session(ctx, c.sessions[0].ID)
	if err != nil || marked.CaptureFailed == "" {
		t.Fatalf("the session that lost its last call is not marked: %+v, %v", marked, err)
	}
	calls, err := l.Calls(ctx, c.sessions[0].ID)
	if len(calls) != 1 || !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("%d calls, %v; want the one before and ErrDamaged", len(calls), err)
	}
}
