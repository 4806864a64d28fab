// Package wiretest reads the recorded exchanges of real engines that lie beside the project, for tests.
package wiretest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Shared returns the path of a file or folder in ../shared, seen from the project's root.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("where is this file?")
	}
	root := filepath.Join(filepath.Dir(here), "..", "..")
	return filepath.Join(append([]string{root, "..", "shared"}, elem...)...)
}

// Exchange is one recorded request and its answer.
type Exchange struct {
	Name         string
	Method, Path string
	Request      []byte
	Status       int
	Header       map[string]string // names in lower case
	Body         []byte
}

// SSE says whether the answer is an event stream.
func (e *Exchange) SSE() bool {
	return strings.HasPrefix(e.Header["content-type"], "text/event-stream")
}

// Load reads one exchange of an engine's folder, for example Load(t, "vllm-0.32.0", "b_hi_full").
func Load(t testing.TB, engine, name string) *Exchange {
	t.Helper()
	file, err := os.ReadFile(Shared(t, "wire", engine, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	e := &Exchange{Name: name, Header: map[string]string{}}
	head, rest, _ := bytes.Cut(file, []byte("\n<<< "))
	line, request, _ := bytes.Cut(head, []byte{'\n'})
	first := strings.Fields(strings.TrimPrefix(string(line), ">>> "))
	if len(first) < 2 {
		t.Fatalf("%s: no request line", name)
	}
	e.Method, e.Path, e.Request = first[0], first[1], request
	status, rest, _ := bytes.Cut(rest, []byte{'\n'})
	if e.Status, err = strconv.Atoi(strings.Fields(string(status))[0]); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	headers, body, _ := bytes.Cut(rest, []byte("\n\n"))
	for _, h := range strings.Split(string(headers), "\n") {
		if key, value, ok := strings.Cut(h, ": "); ok {
			e.Header[strings.ToLower(key)] = value
		}
	}
	e.Body = bytes.TrimSuffix(body, []byte{'\n'}) // the file ends in a newline of its own
	if n, err := strconv.Atoi(e.Header["content-length"]); err == nil && n <= len(body) {
		e.Body = body[:n]
	}
	return e
}

// All reads every exchange of an engine's folder.
func All(t testing.TB, engine string) []*Exchange {
	t.Helper()
	files, err := filepath.Glob(Shared(t, "wire", engine, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings of %s: %v", engine, err)
	}
	out := make([]*Exchange, len(files))
	for i, f := range files {
		out[i] = Load(t, engine, strings.TrimSuffix(filepath.Base(f), ".txt"))
	}
	return out
}
