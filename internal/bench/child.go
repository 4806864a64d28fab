package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Host says how the bench's processes are started: each is this program again, under hidden commands.
type Host struct {
	Binary string
	Name   string // what the program is called on its command line
}

// child is a process of the bench.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader // of its standard output
	said  *tail         // the end of its standard error
	addr  string

	waited  sync.Once
	problem error
}

// tail keeps the end of what is written.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 8<<10 {
		t.buf = bytes.Clone(t.buf[len(t.buf)-4<<10:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// start starts a process. It ends when the bench closes its standard input, or at once when ctx is done.
func (h Host) start(ctx context.Context, name string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.CommandContext(ctx, h.Binary), said: &tail{}}
	c.cmd.Args = append([]string{h.Name}, args...)
	c.cmd.Stderr = c.said
	for _, e := range os.Environ() { // flags come from here, not from the environment
		if !strings.HasPrefix(e, "CAPTURE_PROXY_") {
			c.cmd.Env = append(c.cmd.Env, e)
		}
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the bench's %s: %w", name, err)
	}
	c.lines = bufio.NewReaderSize(out, 1<<20)
	return c, nil
}

var address = regexp.MustCompile(`http://([0-9.]+:[0-9]+)`)

// listen starts a process that serves, and reads its address off its standard output.
func (h Host) listen(ctx context.Context, name string, args ...string) (*child, error) {
	c, err := h.start(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(c.failed(err), c.kill())
		}
		if found := address.FindStringSubmatch(line); found != nil {
			c.addr = found[1]
			break
		}
	}
	return c, nil
}

func (c *child) failed(err error) error {
	return fmt.Errorf("the bench's %s: %w; it said: %s", c.name, err, strings.TrimSpace(c.said.String()))
}

// ask gives a process a line of JSON and reads its answer.
func ask[T any](c *child, question any) (answer T, err error) {
	line, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return answer, c.failed(err)
	}
	var text []byte
	for len(text) == 0 || text[0] != '{' { // the proxy also says things to people
		if text, err = c.lines.ReadBytes('\n'); err != nil {
			return answer, c.failed(err)
		}
	}
	var got struct {
		Answer T
		Error  string
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return answer, c.failed(err)
	}
	if got.Error != "" {
		return got.Answer, fmt.Errorf("the bench's %s: %s", c.name, got.Error)
	}
	return got.Answer, nil
}

// Answer reads questions, a line of JSON each, and writes answers until there are no more.
func Answer[Q, A any](in io.Reader, out io.Writer, answer func(Q) (A, error)) error {
	lines, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q Q
		if err := lines.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := answer(q)
		reply := struct {
			Answer A
			Error  string
		}{a, ""}
		if err != nil {
			reply.Error = err.Error()
		}
		if err := enc.Encode(reply); err != nil {
			return err
		}
	}
}

// kill ends a process as a power cut does.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.wait()
}

// stop ends a process in good order.
func (c *child) stop() error {
	c.stdin.Close()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.AfterFunc(15*time.Second, func() { c.cmd.Process.Kill() }) //nolint:errcheck // it may have ended just now
	defer t.Stop()
	return c.wait()
}

// wait waits for the process's end. It may be called again.
func (c *child) wait() error {
	c.waited.Do(func() {
		var exit *exec.ExitError
		if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) { // how it ended is no business of the one who ended it
			c.problem = err
		}
	})
	return c.problem
}
