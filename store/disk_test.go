package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/storetest"
)

var ctx = context.Background()

// TestFailingDisk fails one operation after another, for a while, in the middle of a session's life.
func TestFailingDisk(t *testing.T) {
	tests := []struct {
		name string
		err  error
		ops  []string
	}{
		{"full", store.ENOSPC, []string{store.OpWrite, store.OpCreate}},
		{"full, new segments can be made", store.ENOSPC, []string{store.OpWrite}},
		{"write error, nothing can be trimmed", store.EIO, []string{store.OpWrite, store.OpTrim}},
		{"flush fails", store.EIO, []string{store.OpSync}},
		{"flush fails, files cannot be removed", store.EIO, []string{store.OpSync, store.OpRemove}},
		{"directory flush fails", store.EIO, []string{store.OpWrite, store.OpSyncDir}},
		{"read-only", store.EROFS, []string{store.OpWrite, store.OpCreate, store.OpTrim, store.OpRemove, store.OpSync}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir, disk := t.TempDir(), new(store.FaultyDisk)
			l := open(t, dir, disk.Use(store.Options{}))
			s := storetest.Session(1)
			storetest.Create(t, l, s)
			storetest.Append(t, l, storetest.Call(s, 1), storetest.Call(s, 2))

			disk.Fail(test.err, test.ops...)
			for n := 3; n <= 5; n++ {
				err := <-l.Append(storetest.Call(s, n))
				if !errors.Is(err, test.err) {
					t.Fatalf("append on the failing disk: %v, want %v", err, test.err)
				}
			}
			if err := l.Healthy(); !errors.Is(err, test.err) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("Healthy: %v, want %v and the directory", err, test.err)
			}
			// What was written before stays readable.
			storetest.CheckCalls(t, l, s.ID, storetest.Call(s, 1), storetest.Call(s, 2))
			if err := l.CreateSession(ctx, storetest.Session(2)); !errors.Is(err, test.err) {
				t.Fatalf("create on the failing disk: %v, want %v", err, test.err)
			}
			if _, err := l.Session(ctx, storetest.Session(2).ID); !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("a session that could not be written is there: %v", err)
			}

			disk.Fail(nil)
			storetest.Append(t, l, storetest.Call(s, 4), storetest.Call(s, 6))
			if err := l.Healthy(); err != nil {
				t.Fatalf("Healthy after the disk was healed: %v", err)
			}
			want := []*record.Call{storetest.Call(s, 1), storetest.Call(s, 2), storetest.Call(s, 4), storetest.Call(s, 6)}
			storetest.CheckCalls(t, l, s.ID, want...)
			again := reopen(t, l, dir, store.Options{})
			noDamage(t, again)
			storetest.CheckCalls(t, again, s.ID, want...)
		})
	}
}

// TestFlushFailsOnce has one flush fail: the batch goes to a new segment and its writer notices nothing.
func TestFlushFailsOnce(t *testing.T) {
	for _, op := range []string{store.OpSync, store.OpWrite} {
		t.Run(op, func(t *testing.T) {
			dir, disk := t.TempDir(), new(store.FaultyDisk)
			l := open(t, dir, disk.Use(store.Options{}))
			s := storetest.Session(1)
			storetest.Create(t, l, s)
			var want []*record.Call
			for n := 1; n <= 4; n++ {
				failed := false
				disk.FailBy(func(o string) error {
					if o == op && !failed {
						failed = true
						return store.EIO
					}
					return nil
				})
				want = append(want, storetest.Call(s, n))
				storetest.Append(t, l, storetest.Call(s, n))
				if !failed {
					t.Fatal("nothing failed")
				}
			}
			if got := stats(t, l).Segments; got != 5 {
				t.Errorf("%d segments, want 5: one that failed is not written again", got)
			}
			storetest.CheckCalls(t, l, s.ID, want...)
			again := reopen(t, l, dir, store.Options{})
			noDamage(t, again)
			storetest.CheckCalls(t, again, s.ID, want...)
		})
	}
}

// TestHealthyProbes has a disk recover while nobody writes.
func TestHealthyProbes(t *testing.T) {
	disk := new(store.FaultyDisk)
	l := open(t, t.TempDir(), disk.Use(store.Options{}))
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	disk.Fail(store.ENOSPC, store.OpWrite)
	if err := <-l.Append(storetest.Call(s, 1)); err == nil {
		t.Fatal("the append succeeded")
	}
	disk.Fail(nil)
	for l.Healthy() != nil { // fails the test by its time limit
	}
	storetest.CheckCalls(t, l, s.ID)
}

// TestStuckDisk has the disk hang: Append returns, and beyond the limit says that it is busy.
func TestStuckDisk(t *testing.T) {
	disk := new(store.FaultyDisk)
	l := open(t, t.TempDir(), disk.Use(store.Options{MaxWaiting: 40 << 10}))
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	free := disk.Stick()
	var done []<-chan error
	for n := 1; n <= 100; n++ {
		done = append(done, l.Append(storetest.Call(s, n)))
	}
	waiting := stats(t, l)
	if waiting.WaitingWrites == 0 || waiting.WaitingBytes > 40<<10 {
		t.Errorf("waiting: %+v, want some and at most 40 KiB", waiting)
	}
	free()
	taken, busy := 0, 0
	for _, d := range done {
		switch err := <-d; {
		case err == nil:
			taken++
		case errors.Is(err, store.ErrBusy):
			busy++
		default:
			t.Fatal(err)
		}
	}
	if taken == 0 || busy == 0 {
		t.Errorf("%d calls taken, %d refused as busy; want some of both", taken, busy)
	}
	calls, err := l.Calls(ctx, s.ID)
	if err != nil || len(calls) != taken {
		t.Errorf("%d calls (%v), want the %d that were taken", len(calls), err, taken)
	}
}

// TestGroupCommit counts flushes: what waits together is flushed together.
func TestGroupCommit(t *testing.T) {
	disk := new(store.FaultyDisk)
	l := open(t, t.TempDir(), disk.Use(store.Options{}))
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	before := disk.Count(store.OpSync)
	free := disk.Stick()
	var done []<-chan error
	for n := 1; n <= 64; n++ {
		done = append(done, l.Append(storetest.Call(s, n)))
	}
	free()
	for _, d := range done {
		if err := <-d; err != nil {
			t.Fatal(err)
		}
	}
	if flushes := disk.Count(store.OpSync) - before; flushes > 4 {
		t.Errorf("%d flushes for 64 calls that waited together", flushes)
	}
}

// reopen closes a log and opens it again, on a disk that is well.
func reopen(t testing.TB, l *store.Log, dir string, opts store.Options) *store.Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(fmt.Errorf("close: %w", err))
	}
	return open(t, dir, opts)
}

func noDamage(t testing.TB, l *store.Log) {
	t.Helper()
	for _, d := range l.Damage() {
		t.Errorf("damage: %v", d)
	}
}
