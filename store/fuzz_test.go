package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"captureproxy/store"
	"captureproxy/store/storetest"
)

// FuzzOpen opens arbitrary bytes as a log. Whatever they are: no panic, and a log that opens takes a session with a call
// and has it when it is opened again.
func FuzzOpen(f *testing.F) {
	data, err := os.ReadFile(fixtureFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:segmentHeaderSize])
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, firstSegment), data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := store.Open(dir, noSync())
		if err != nil {
			return
		}
		sessions, _, err := l.Sessions(ctx, store.Filter{})
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			t.Fatal(err)
		}
		for _, s := range sessions {
			if _, err := l.Calls(ctx, s.ID); err != nil && !errors.Is(err, store.ErrDamaged) {
				t.Fatal(err)
			}
		}
		s := storetest.Session(9999)
		storetest.Create(t, l, s)
		storetest.Append(t, l, storetest.Call(s, 1))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, dir, noSync())
		storetest.CheckCalls(t, l, s.ID, storetest.Call(s, 1))
	})
}
