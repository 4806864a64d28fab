package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"captureproxy/cmd/capture-proxy/harness"
	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

func newRun() *cobra.Command {
	var proxy proxyFlags
	var session sessionFlags
	var out string
	agent := &choice{allowed: harnessNames()}
	cmd := &cobra.Command{
		Use:   "run --upstream URL [flags] -- CMD [ARG...]",
		Short: "Record one rollout of one agent",
		Long: `run starts a proxy on a free port, creates a session, and runs CMD with the base URL and the API key of every dialect in its
environment (OPENAI_BASE_URL, OPENAI_API_BASE, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, GOOGLE_GEMINI_BASE_URL,
GEMINI_API_KEY, and CAPTURE_PROXY_SESSION, CAPTURE_PROXY_URL). For an agent that reads a configuration file instead,
--harness NAME prepares one in a temporary directory, and nothing of the user's own is changed; capture-proxy harnesses
lists the names. When CMD ends, the session is closed, its rollout written, and a
summary printed on standard error.

The exit code is CMD's: 128 + N when signal N ended it, 127 when it could not be started.`,
		Example: `  capture-proxy run --upstream http://127.0.0.1:8000 -- my-agent "fix the tests"
  capture-proxy run --upstream http://127.0.0.1:8000 --harness codex -- codex exec "fix the tests"
  capture-proxy run --upstream http://127.0.0.1:8000 --max-model-calls 50 --out rollout.json -- python agent.py`,
		Args: need("CMD", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := proxy.take()
			if err != nil {
				return err
			}
			if config.Engine.URL == "" {
				return usagef("--upstream is missing: which engine is to answer?")
			}
			req, err := session.request()
			if err != nil {
				return err
			}
			if err := checkOut(out); err != nil {
				return err
			}
			path, err := exec.LookPath(args[0])
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "capture-proxy run: %v\n", err)
				return exitStatus(exitNotStarted)
			}
			child := exec.Command(path, args[1:]...)
			child.Args[0] = args[0]
			known, _ := harness.Lookup(agent.value) // without --harness it is one that has no recipe
			return runRecorded(cmd.Context(), cmd.ErrOrStderr(), config, req, known, child, out)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows CMD is CMD's
	f.Var(agent, "harness", "prepare CMD's configuration for this agent, see capture-proxy harnesses")
	f.StringVar(&out, "out", "", "file for the rollout (default ./rollout-<session>.json)")
	f.StringVar(&proxy.config.Data, "data", "", "directory of the store (default a temporary one)")
	proxy.addCapture(f)
	proxy.log.add(f, "warn")
	session.add(f)
	return cmd
}

// runRecorded records one run of a child that is the agent, and ends with its exit code.
func runRecorded(ctx context.Context, w io.Writer, c Config, req control.CreateRequest, agent harness.Harness, child *exec.Cmd, out string) error {
	rec, err := startRecording(ctx, c, req)
	if err != nil {
		return err
	}
	id := rec.created.SessionID
	if rec.created.CaptureLevel == nil {
		fmt.Fprintln(w, "capture-proxy: the engine does not answer yet; going on, it is measured when it first does")
	}
	recipe, err := point(ctx, agent, c, rec)
	if err != nil {
		return errors.Join(err, rec.close())
	}
	child.Env = append(childEnvironment(os.Environ(), rec.app.URL(), id), recipe.env...)
	end := runChild(child)
	complain(c.Logger, recipe.remove())
	if end.code == exitNotStarted {
		fmt.Fprintln(w, "capture-proxy: the command could not be started:", end.problem)
	}

	outcome := &control.Outcome{Status: string(record.Completed)}
	if end.problem != "" {
		outcome = &control.Outcome{Status: string(record.Failed), Error: end.problem}
	}
	if out == "" {
		out = rolloutFile(id)
	}
	doc, err := rec.finish(ctx, outcome, out)
	if err != nil {
		dir, halting := rec.keep()
		err = errors.Join(fmt.Errorf("%w\nThe recording is kept: capture-proxy show --data %s %s", err, dir, id), halting)
		if end.code != 0 {
			fmt.Fprintln(w, "capture-proxy:", err)
			return exitStatus(end.code)
		}
		return err
	}
	complain(c.Logger, rec.close())
	if err := printSummary(w, doc, out); err != nil {
		complain(c.Logger, err)
	}
	if end.code != 0 {
		return exitStatus(end.code)
	}
	return nil
}

// checkOut refuses a place that a rollout cannot be written to: it would be noticed only after the run.
func checkOut(path string) error {
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usagef("--out %s: there is no directory %s", path, dir)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usagef("--out %s is a directory: name a file", path)
	}
	return nil
}

// rolloutFile is where a rollout goes when nobody says.
func rolloutFile(session string) string { return "./rollout-" + session + ".json" }

// printSummary shows a rollout and where it is.
func printSummary(w io.Writer, doc *export.Rollout, path string) error {
	fmt.Fprintln(w)
	if err := show.Tree(w, doc, show.Options{Color: bool(colours(w))}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nrollout: %s\n", path)
	return err
}
