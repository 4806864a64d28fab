package store_test

import (
	"testing"
	"time"

	"captureproxy/store"
	"captureproxy/store/storetest"
)

// Deleting sessions frees their space on disk; what stays is whole.
func TestDeletingFreesSpace(t *testing.T) {
	const sessions, kept, segment = 400, 7, 64 << 10
	l, err := store.Open(t.TempDir(), (&store.FaultyDisk{NoSync: true}).Use(store.Options{SegmentSize: segment}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	for n := range sessions {
		s := storetest.Session(n)
		storetest.Create(t, l, s)
		for number := 1; number <= 3; number++ {
			storetest.Append(t, l, storetest.Call(s, number))
		}
	}
	taken := func() int64 {
		stats, err := l.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return stats.Bytes
	}
	before := taken()
	if before < 10*segment {
		t.Fatalf("%d bytes are too few to show anything", before)
	}
	for n := kept; n < sessions; n++ {
		if err := l.DeleteSession(t.Context(), storetest.Session(n).ID); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for taken() > before/4 {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes before, %d after", before, taken())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := range kept {
		s := storetest.Session(n)
		storetest.CheckCalls(t, l, s.ID, storetest.Call(s, 1), storetest.Call(s, 2), storetest.Call(s, 3))
	}
	if list, _, err := l.Sessions(t.Context(), store.Filter{}); err != nil || len(list) != kept {
		t.Errorf("%d sessions, %v", len(list), err)
	}
}
