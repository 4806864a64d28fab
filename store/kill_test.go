package store_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"captureproxy/store"
	"captureproxy/store/storetest"
)

// killDir has the test binary, started again, write to a log until it is killed.
const killDir = "STORE_TEST_KILL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		if err := writeUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// killedWriters is the number of concurrent writers, each with a session of its own.
const killedWriters = 8

// writeUntilKilled appends calls and prints each one that is acknowledged.
func writeUntilKilled(dir string) error {
	l, err := store.Open(dir, store.Options{SegmentSize: 256 << 10})
	if err != nil {
		return err
	}
	if d := l.Damage(); len(d) > 0 {
		return d[0]
	}
	var wg sync.WaitGroup
	errs := make(chan error, killedWriters)
	for n := range killedWriters {
		s := storetest.Session(n)
		if _, err := l.Session(ctx, s.ID); err != nil {
			if err := l.CreateSession(ctx, s); err != nil {
				return err
			}
		}
		calls, err := l.Calls(ctx, s.ID)
		if err != nil {
			return err
		}
		first := 1
		if len(calls) > 0 {
			first = calls[len(calls)-1].Number + 1
		}
		wg.Go(func() {
			for i := first; ; i++ {
				if err := <-l.Append(storetest.Call(s, i)); err != nil {
					errs <- err
					return
				}
				fmt.Printf("%d %d\n", n, i) // one write, to the pipe at once
			}
		})
	}
	wg.Wait()
	return <-errs
}

// TestKill kills a writing process several times at random moments: every call that it was told is durable is there,
// whole, and the next process goes on.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := make([]int, killedWriters) // calls of each session
	for range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + rand.IntN(300)
		lines := bufio.NewScanner(out)
		for lines.Scan() { // what it still said after the kill counts too
			var n, i int
			if _, err := fmt.Sscan(lines.Text(), &n, &i); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if i != acknowledged[n]+1 && left > 0 && i <= acknowledged[n] {
				t.Fatalf("call %d of writer %d was acknowledged twice", i, n)
			}
			acknowledged[n] = max(acknowledged[n], i)
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || left > 0 {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		checkKilled(t, dir, acknowledged)
	}
}

// checkKilled opens the log and compares what was acknowledged. A call that was on its way may be there too.
func checkKilled(t *testing.T, dir string, acknowledged []int) {
	t.Helper()
	l := open(t, dir, store.Options{SegmentSize: 256 << 10})
	noDamage(t, l)
	for n, want := range acknowledged {
		s := storetest.Session(n)
		calls, err := l.Calls(ctx, s.ID)
		if want == 0 && err != nil {
			continue // killed before the session was made
		}
		if err != nil || len(calls) < want || len(calls) > want+1 {
			t.Fatalf("session %d: %d calls (%v), want the %d acknowledged", n, len(calls), err, want)
		}
		for i, c := range calls {
			if c.Number != i+1 {
				t.Fatalf("session %d: call %d stands at place %d", n, c.Number, i+1)
			}
		}
		if len(calls) > 0 {
			last := storetest.Call(s, len(calls))
			body, err := l.Body(ctx, s.ID, last.Number)
			if err != nil || string(body) != string(last.Body) {
				t.Fatalf("session %d: the last body is %q (%v)", n, body, err)
			}
		}
		acknowledged[n] = len(calls)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
