package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// demoTask is what the demo's agent is told to do.
const demoTask = "Echo a few steps, one after the other."

func newDemo() *cobra.Command {
	var config Config
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work, no engine needed",
		Long: `demo starts the built-in engine and the proxy on free loopback ports, lets a scripted agent play one task over real HTTP
(streamed answers, tool calls, a title call, a retry), closes the session, and shows what was recorded. The agent's commands
are not run.`,
		Example: "  capture-proxy demo\n  capture-proxy demo --out rollout.json --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOut(out); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			var say teller = func(what, format string, args ...any) {
				fmt.Fprintf(w, "%-10s %s\n", what, plain(fmt.Sprintf(format, args...)))
			}
			if asJSON {
				say = func(string, string, ...any) {}
			}
			config.Logger = zap.NewNop() // a store or an engine that fails shows in the document
			doc, path, err := demo(cmd.Context(), config, out, say)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(w, resultOf(doc, path))
			}
			return printSummary(w, doc, path)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file for the rollout (default ./rollout-<session>.json)")
	f.StringVar(&config.Data, "data", "", "directory of the store (default a temporary one)")
	f.BoolVar(&asJSON, "json", false, "print only what came of it, as JSON")
	return cmd
}

// demo plays one task and returns its rollout, and where that was written.
func demo(ctx context.Context, c Config, out string, say teller) (doc *export.Rollout, path string, err error) {
	fake, err := fakeengine.Start(fakeengine.Options{Model: "demo-model"})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, fake.Close()) }()
	c.Engine.URL = fake.URL
	rec, err := startRecording(ctx, c, control.CreateRequest{
		Purpose: record.PurposeTrain,
		// What the built-in engine tokenizes with, for who wants to read the tokens when it is gone.
		Metadata: map[string]json.RawMessage{"tokenizer": json.RawMessage(`"o200k_base"`)},
	})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, rec.close()) }()
	id := rec.created.SessionID
	say("engine", "%s  (built in, with real token ids)", fake.URL)
	say("proxy", "%s", rec.app.URL())
	say("session", "%s  (the agent's API key)", id)

	if err := newAgent(rec.app.URL()+"/v1", id, "demo-model", say).play(ctx, demoTask); err != nil {
		return nil, "", fmt.Errorf("the agent failed: %w", err)
	}
	if out == "" {
		out = rolloutFile(id)
	}
	doc, err = rec.finish(ctx, &control.Outcome{Status: string(record.Completed)}, out)
	return doc, out, err
}

// demoResult is what came of a demo, for scripts.
type demoResult struct {
	SessionID       string              `json:"session_id"`
	Path            string              `json:"path"`
	Trainable       bool                `json:"trainable"`
	Turns           int                 `json:"n_turns"`
	TrainableTokens int                 `json:"n_trainable_tokens"`
	Rows            map[export.Role]int `json:"rows"`
}

func resultOf(doc *export.Rollout, path string) demoResult {
	r := demoResult{doc.SessionID, path, doc.Trainable, doc.Stats.Turns, doc.Stats.TrainableTokens, map[export.Role]int{}}
	for i := range doc.Sequences {
		r.Rows[doc.Sequences[i].Role]++
	}
	return r
}
