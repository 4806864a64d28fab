//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test gives up on it: generous, for it only bounds failures.
const patience = 2 * time.Minute

// output collects what a process writes; several goroutines may write and read.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a long-running child of the test.
type process struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr output
	ended  chan struct{} // closed when it has ended
}

// start runs a program until the test ends. What it said on stderr is shown if the test fails.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	out, in, err := os.Pipe() // not StdoutPipe: Wait would close it while it is read
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.stdout = in, out
	err = p.cmd.Start()
	in.Close() //nolint:errcheck // the child has its own
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait() //nolint:errcheck // how it ended is in its state
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop(t)
		out.Close() //nolint:errcheck // only read
		if t.Failed() {
			t.Logf("%s %s said:\n%s", name, strings.Join(args, " "), p.stderr.String())
		}
	})
	return p
}

// line waits for a line on stdout that matches and returns what the pattern's group holds.
func (p *process) line(t *testing.T, pattern string) string {
	t.Helper()
	found := make(chan string, 1)
	go func() {
		defer close(found)
		wanted := regexp.MustCompile(pattern)
		for lines := bufio.NewScanner(p.stdout); lines.Scan(); {
			if m := wanted.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
				break
			}
		}
		io.Copy(io.Discard, p.stdout) //nolint:errcheck // so that the process never blocks
	}()
	select {
	case line, ok := <-found:
		if ok {
			return line
		}
	case <-time.After(patience):
	}
	t.Fatalf("%s printed nothing like %s; on stderr:\n%s", p.cmd.Path, pattern, p.stderr.String())
	return ""
}

// stop ends the process politely, and if it will not, for good.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.kill()
		t.Errorf("%s did not end on SIGTERM", p.cmd.Path)
	}
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.ended: // its pid may be somebody else's by now
	default:
		p.cmd.Process.Signal(s) //nolint:errcheck // it may have ended just now
	}
}

// command runs a program to its end and returns what it printed.
func command(t *testing.T, env []string, name string, args ...string) (stdout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second // for a grandchild that keeps the pipes open
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s%s", name, err, out.String(), errs.String())
	}
	code = cmd.ProcessState.ExitCode()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s %s ended with %d and said:\n%s\n%s", name, strings.Join(args, " "), code, out.String(), errs.String())
		}
	})
	return out.String(), code
}
