package store_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/storetest"
)

var update = flag.Bool("update", false, "write the fixture of the current format anew")

// fixtureFile is a log in the current format, oldFixtures are those of earlier ones. Each is written once per format and never
// changed: what it holds must stay readable.
var (
	fixtureFile = filepath.Join("testdata", "format2.log")
	oldFixtures = []string{filepath.Join("testdata", "format1.log")}
)

// fixture is what the file holds: a session with a small conversation, a closed one, and a deleted one.
func fixture() (running, closed *record.Session, calls []*record.Call) {
	running, closed = storetest.Session(1), storetest.Session(2)
	end := closed.CreatedAt.Add(1e9)
	closed.Status, closed.ClosedAt, closed.Outcome = record.Completed, &end, &record.Verdict{Status: "completed"}
	first := smallCall(running, 1)
	first.Choices[0].PromptIDs = make([]int32, 200)
	first.Choices[0].Logprobs = []float64{math.NaN(), -0.1}
	first.Messages = append(first.Messages, []byte(`{"role":"user", "content":"a message that is long enough"}`))
	first.Tools = append(first.Tools, []byte(`{}`))
	second := smallCall(running, 2)
	second.Choices[0].PromptIDs = make([]int32, 300)
	second.Messages = append(second.Messages, first.Messages[0], first.Messages[0])
	second.Choices[0].Message = first.Messages[0]
	return running, closed, []*record.Call{first, second}
}

// TestFixture opens logs that earlier versions wrote, and goes on writing.
func TestFixture(t *testing.T) {
	if *update {
		writeFixture(t)
	}
	for _, file := range append(oldFixtures, fixtureFile) {
		t.Run(filepath.Base(file), func(t *testing.T) { readFixture(t, file) })
	}
}

func readFixture(t *testing.T, file string) {
	running, closed, calls := fixture()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, firstSegment), data, 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, store.Options{})
	noDamage(t, l)
	storetest.CheckCalls(t, l, running.ID, calls...)
	storetest.CheckCalls(t, l, closed.ID)
	got, err := l.Session(ctx, closed.ID)
	if err != nil || got.Status != record.Completed || !got.ClosedAt.Equal(*closed.ClosedAt) {
		t.Fatalf("the closed session reads %+v, %v", got, err)
	}
	if n := stats(t, l).Sessions; n != 2 {
		t.Fatalf("%d sessions, want 2: the third was deleted", n)
	}
	next := storetest.Call(running, 3)
	next.Messages = append(calls[1].Messages, next.Messages...)
	storetest.Append(t, l, next)
	l = reopen(t, l, dir, store.Options{})
	noDamage(t, l)
	storetest.CheckCalls(t, l, running.ID, append(calls, next)...)
	if file == fixtureFile {
		return
	}
	after, err := os.ReadFile(filepath.Join(dir, firstSegment))
	if err != nil || !bytes.Equal(bytes.TrimRight(after, "\x00"), bytes.TrimRight(data, "\x00")) {
		t.Fatalf("a segment of an old format was written into: its version says what is in it (%v)", err)
	}
}

func writeFixture(t *testing.T) {
	t.Helper()
	running, closed, calls := fixture()
	dir := t.TempDir()
	l := open(t, dir, store.Options{})
	storetest.Create(t, l, running, storetest.Session(2), storetest.Session(3))
	storetest.Append(t, l, calls...)
	if err := l.PutSession(ctx, closed); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteSession(ctx, storetest.Session(3).ID); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, firstSegment))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(fixtureFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fixtureFile, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
