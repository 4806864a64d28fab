package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"captureproxy/internal/fakeengine"
)

// newFakeEngine serves the built-in engine for scripts and CI. It is hidden: nobody looks for it among the product's
// commands.
func newFakeEngine() *cobra.Command {
	var opts fakeengine.Options
	var wire, odd, forced string
	cmd := &cobra.Command{
		Use:    "fake-engine",
		Short:  "Serve the built-in scripted engine",
		Hidden: true,
		Long: `fake-engine answers as a vLLM server does, or as another one with --wire, with real token ids and a scripted coding agent's
answers. The first line of its output is its URL. It serves until it is interrupted.`,
		Example: "  capture-proxy fake-engine --listen 127.0.0.1:8000 --steps 5 --reasoning",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			var err error
			if opts.Odd, err = fakeengine.ParseOdd(odd); err != nil {
				return usageError{err}
			}
			opts.Forced.Mode = fakeengine.ForcedMode(forced)
			if opts.Steps == 0 {
				opts.Steps = -1 // its zero value stands for the default
			}
			opts.Wire = fakeengine.Wire(wire)
			engine, err := fakeengine.Start(opts)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), engine.URL)
			<-ctx.Done()
			return engine.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Addr, "listen", "127.0.0.1:0", "address to listen on")
	f.StringVar(&wire, "wire", string(fakeengine.WireVLLM), fmt.Sprintf("whose answers to give: %v", fakeengine.Wires()))
	f.StringVar(&opts.Key, "key", "", "credential that the hosted wires ask for")
	f.StringVar(&opts.Model, "model", fakeengine.DefaultModel, "served model name")
	f.IntVar(&opts.MaxModelLen, "max-model-len", fakeengine.DefaultMaxModelLen, "context window in tokens")
	f.IntVar(&opts.Steps, "steps", fakeengine.DefaultSteps, "tool calls before the final answer")
	f.BoolVar(&opts.Reasoning, "reasoning", false, "put a thought before every answer")
	f.DurationVar(&opts.FirstToken, "first-token", 0, "time before the first token")
	f.StringVar(&odd, "odd", "", "in what the past is rendered otherwise than it was sampled: arguments, thinking, field, space, split, or all")
	f.StringVar(&forced, "forced", "", "what becomes of prompt ids beside messages: ignore, refuse, truncate or alter (default followed)")
	f.DurationVar(&opts.PerToken, "per-token", 0, "time that each token takes")
	return cmd
}
