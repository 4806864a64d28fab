package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/storetest"
)

// model is what a log should hold.
type model struct {
	l        *store.Log
	dir      string
	sessions map[string]*record.Session
	calls    map[string][]*record.Call
	made     int
}

func (m *model) open(t *rapid.T) {
	l, err := store.Open(m.dir, (&store.FaultyDisk{NoSync: true}).Use(store.Options{SegmentSize: 8 << 10}))
	if err != nil {
		t.Fatal(err)
	}
	m.l = l
	if d := l.Damage(); len(d) > 0 {
		t.Fatalf("damage: %v", d)
	}
}

func (m *model) pick(t *rapid.T) *record.Session {
	ids := make([]string, 0, len(m.sessions))
	for id := range m.sessions {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Skip("no session")
	}
	slices.Sort(ids)
	return m.sessions[rapid.SampledFrom(ids).Draw(t, "session")]
}

// TestAnyHistory does anything in any order, with a new segment every few calls so that segments are removed and
// compacted, and closes and opens the log in between: it always holds what a map would.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		m := &model{dir: dir, sessions: map[string]*record.Session{}, calls: map[string][]*record.Call{}}
		m.open(t)
		defer func() {
			if err := errors.Join(m.l.Close(), os.RemoveAll(dir)); err != nil {
				t.Fatal(err)
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				m.made++
				s := storetest.Session(m.made % 4) // ids are used again
				if m.sessions[s.ID] != nil {
					t.Skip("exists")
				}
				s.Instance = fmt.Sprint(m.made)
				storetest.Create(t, m.l, s)
				m.sessions[s.ID], m.calls[s.ID] = s, nil
			},
			"put": func(t *rapid.T) {
				s := *m.pick(t)
				s.Status = rapid.SampledFrom([]record.Status{record.Running, record.Completed}).Draw(t, "status")
				if err := m.l.PutSession(ctx, &s); err != nil {
					t.Fatal(err)
				}
				m.sessions[s.ID] = &s
			},
			"append": func(t *rapid.T) {
				s := m.pick(t)
				for range rapid.IntRange(1, 2).Draw(t, "calls") {
					c := smallCall(s, len(m.calls[s.ID])+1)
					c.Body = bytes.Repeat([]byte("0123456789"), len(m.calls[s.ID])*20)
					c.Choices[0].PromptIDs = make([]int32, rapid.SampledFrom([]int{3, 130, 400}).Draw(t, "prompt"))
					storetest.Append(t, m.l, c)
					m.calls[s.ID] = append(m.calls[s.ID], c)
				}
			},
			"delete": func(t *rapid.T) {
				s := m.pick(t)
				if err := m.l.DeleteSession(ctx, s.ID); err != nil {
					t.Fatal(err)
				}
				delete(m.sessions, s.ID)
			},
			"reopen": func(t *rapid.T) {
				if err := m.l.Close(); err != nil {
					t.Fatal(err)
				}
				m.open(t)
			},
		})
		m.check(t)
		if err := m.l.Close(); err != nil {
			t.Fatal(err)
		}
		m.open(t)
		m.check(t)
	})
}

func (m *model) check(t *rapid.T) {
	sessions, _, err := m.l.Sessions(ctx, store.Filter{})
	if err != nil || len(sessions) != len(m.sessions) {
		t.Fatalf("%d sessions (%v), want %d", len(sessions), err, len(m.sessions))
	}
	for _, s := range sessions {
		want := m.sessions[s.ID]
		if want == nil || want.Status != s.Status || want.Instance != s.Instance || s.CaptureFailed != "" {
			t.Fatalf("session %+v, want %+v", s, want)
		}
		storetest.CheckCalls(t, m.l, s.ID, m.calls[s.ID]...)
	}
}

// TestSpaceIsGivenBack deletes sessions from a log of many segments, some wholly, some but for one call.
func TestSpaceIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, noSync())
	keep := storetest.Session(0)
	storetest.Create(t, l, keep)
	var want []*record.Call
	for n := 1; n <= 20; n++ {
		s := storetest.Session(n)
		storetest.Create(t, l, s)
		for i := 1; i <= 6; i++ {
			storetest.Append(t, l, storetest.Call(s, i))
		}
		if n%5 == 0 {
			want = append(want, smallCall(keep, n))
			storetest.Append(t, l, smallCall(keep, n))
		}
	}
	full := stats(t, l)
	for n := 1; n <= 20; n++ {
		if err := l.DeleteSession(ctx, storetest.Session(n).ID); err != nil {
			t.Fatal(err)
		}
	}
	l = reopen(t, l, dir, noSync()) // Close waits for what the compactor has begun
	storetest.CheckCalls(t, l, keep.ID, want...)
	if err := l.PutSession(ctx, keep); err != nil { // wakes it again
		t.Fatal(err)
	}
	for stats(t, l).Segments > 2 { // fails the test by its time limit
	}
	storetest.CheckCalls(t, l, keep.ID, want...)
	after := stats(t, l)
	if after.Bytes > full.Bytes/10 || after.ReclaimError != nil {
		t.Errorf("%+v after all but one session were deleted, %+v before", after, full)
	}
	l = reopen(t, l, dir, noSync())
	noDamage(t, l)
	storetest.CheckCalls(t, l, keep.ID, want...)
	if s := stats(t, l).Sessions; s != 1 {
		t.Errorf("%d sessions, want 1: deleted ones came back", s)
	}
}

// TestSmallStoreIsSmall looks at what a demo leaves on disk.
func TestSmallStoreIsSmall(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, store.Options{})
	s := storetest.Session(1)
	storetest.Create(t, l, s)
	storetest.Append(t, l, storetest.Call(s, 1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, firstSegment))
	if err != nil || info.Size() > 16<<10 {
		t.Errorf("one call takes %d bytes (%v)", info.Size(), err)
	}
}

// TestPrivate checks that nobody else can read prompts.
func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	open(t, dir, store.Options{})
	storetest.Create(t, open(t, filepath.Join(dir, "inner"), store.Options{}), storetest.Session(1))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneProcess has a second opener told what to do.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, store.Options{})
	if _, err := store.Open(dir, store.Options{}); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Fatalf("second open: %v, want an error that says what to do", err)
	}
	reopen(t, l, dir, store.Options{})
}

// TestCannotOpen lists what Open refuses.
func TestCannotOpen(t *testing.T) {
	c := crash(t, 2)
	newer := slices.Clone(c.log)
	newer[6]++
	for name, test := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"a file": {func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) }, "not a directory"},
		"newer":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, firstSegment), newer, 0o600) }, "newer capture-proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := errors.Join(os.Mkdir(dir, 0o700), test.prepare(dir)); err != nil {
				t.Fatal(err)
			}
			if l, err := store.Open(dir, store.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Open: %v, %v; want an error with %q", l, err, test.want)
			}
		})
	}
}

// TestLostSegments damages or removes whole segments: the log opens, says so, and the rest is there.
func TestLostSegments(t *testing.T) {
	tests := map[string]func(path string) error{
		"removed": os.Remove,
		"header destroyed": func(path string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(data, 0)
			return os.WriteFile(path, data, 0o600)
		},
		"cut short": func(path string) error { return os.Truncate(path, 100) },
		"renamed": func(path string) error {
			return os.Rename(path, filepath.Join(filepath.Dir(path), "00000099.log"))
		},
	}
	for name, ruin := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir, noSync())
			s := storetest.Session(1)
			storetest.Create(t, l, s)
			for n := 1; n <= 12; n++ {
				storetest.Append(t, l, storetest.Call(s, n))
			}
			if stats(t, l).Segments < 3 {
				t.Fatal("too few segments for this test")
			}
			if err := errors.Join(l.Close(), ruin(filepath.Join(dir, "00000002.log"))); err != nil {
				t.Fatal(err)
			}
			l = open(t, dir, noSync())
			if len(l.Damage()) == 0 {
				t.Fatal("no damage was found")
			}
			marked, err := l.Session(ctx, s.ID)
			if err != nil || marked.CaptureFailed == "" {
				t.Fatalf("the session is not marked: %+v, %v", marked, err)
			}
			calls, err := l.Calls(ctx, s.ID)
			if len(calls) == 0 || len(calls) >= 12 || !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("%d calls, %v; want some and ErrDamaged", len(calls), err)
			}
			storetest.Append(t, l, storetest.Call(s, 13))
			if _, err := l.Body(ctx, s.ID, 13); err != nil && !errors.Is(err, store.ErrDamaged) {
				t.Fatal(err)
			}
		})
	}
}
