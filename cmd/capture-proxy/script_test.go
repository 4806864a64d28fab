package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"

	"captureproxy/internal/fakeengine"
)

// The scripts run the commands as processes of their own: testscript starts this test binary under their names.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"capture-proxy": main,
		"agent":         playAgent,
	})
}

func TestScripts(t *testing.T) {
	engine, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("ENGINE", engine.URL)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "ready": ready, "json": jsonField, "post": post, "keep": keep,
		},
	})
}

// playAgent is a harness that knows nothing but what every OpenAI client reads from its environment.
func playAgent() {
	say := func(what, format string, args ...any) { fmt.Printf("%s: %s\n", what, fmt.Sprintf(format, args...)) }
	a := newAgent(os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"), "any-model", say)
	if err := a.play(context.Background(), demoTask); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

var address = regexp.MustCompile(`http://[0-9.:]+`)

// ready FILE VAR waits until a server has printed its address into a file, and then until it answers.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ready FILE VAR")
	}
	for ; ; time.Sleep(10 * time.Millisecond) { // until go test's own timeout
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		url := address.FindString(string(text))
		if url == "" {
			continue
		}
		if resp, err := http.Get(url + "/health"); err == nil {
			resp.Body.Close()
			ts.Setenv(args[1], url)
			return
		}
	}
}

// json FILE PATH WANT compares what stands at a gjson path of a document; stdout is that of the last command. A WANT that
// begins with ~ is a regular expression.
func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH WANT")
	}
	text := ts.ReadFile(args[0])
	if !gjson.Valid(text) {
		ts.Fatalf("%s is no JSON: %.500s", args[0], text)
	}
	got, want := gjson.Get(gjson.Get(text, "@ugly").Raw, args[1]).String(), args[2]
	same := got == want
	if pattern, ok := strings.CutPrefix(want, "~"); ok {
		same = regexp.MustCompile(pattern).MatchString(got)
	}
	if same == neg {
		ts.Fatalf("%s: %s is %q, want %q (negated: %t)", args[0], args[1], got, want, neg)
	}
}

// code N CMD ARG… runs a command that must end with the exit code N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// post URL KEY BODY makes a POST and prints the status and the answer.
func post(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: post URL KEY BODY")
	}
	req, err := http.NewRequest(http.MethodPost, args[0], strings.NewReader(args[2]))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+args[1])
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%d\n%s\n", resp.StatusCode, answer)
	ts.Check(err)
}

// keep VAR FILE puts the first line of a file, or of stdout, into a variable.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keep VAR FILE")
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	ts.Setenv(args[0], line)
}
