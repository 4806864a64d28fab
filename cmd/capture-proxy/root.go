package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot builds the command tree. started is set once a command's own code runs.
func newRoot(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "capture-proxy",
		Short: "Record an agent's model calls as rollouts that can be trained on",
		Long: `capture-proxy stands between a coding agent and its inference engine. The agent changes nothing but a base URL and an
API key: the key is the session. Every model call passes through and is recorded; closing the session gives one document
with exact token ids, loss masks and logprobs.

Every flag can also be set in the environment: --upstream-key is CAPTURE_PROXY_UPSTREAM_KEY. A flag wins.
Exit codes: 0 success, 1 it ran and failed, 2 wrong usage (nothing ran).`,
		Example: `  capture-proxy demo
  capture-proxy serve --upstream http://127.0.0.1:8000
  capture-proxy run --upstream http://127.0.0.1:8000 -- my-agent "fix the tests"`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd.Flags(), os.LookupEnv) },
	}
	root.AddCommand(
		newDemo(), newServe(), newRun(), newHarnesses(), newProbe(), newSession(), newShow(), newView(), newExport(), newValidate(), newBench(), newVersion(), newFakeEngine(),
	)
	noteStart(root, started)
	completeChoices(root)
	return root
}

// completeChoices lets shells complete the flags that take one of a few words.
func completeChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*choice); ok {
			// It fails for a flag that is completed already only.
			cobra.CheckErr(cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp)))
		}
	})
	for _, sub := range cmd.Commands() {
		completeChoices(sub)
	}
}

// need says what is missing where a command was given no argument.
func need(what string, check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s is missing: %s", what, cmd.UseLine())
		}
		return check(cmd, args)
	}
}

// noteStart makes every command set started before it runs.
func noteStart(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteStart(sub, started)
	}
}

// needsCommand is the RunE of a command that only groups others.
func needsCommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if len(args) == 0 {
		return usagef("a command is missing: %s", strings.Join(names, ", "))
	}
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		names = similar
	}
	return usagef("unknown command %q, there is: %s", args[0], strings.Join(names, ", "))
}

// variable is the environment's name of a flag.
func variable(flag string) string {
	return "CAPTURE_PROXY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that were not given from their variables. An empty variable counts as absent.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(variable(f.Name))
		if f.Changed || f.Name == "help" || !ok || value == "" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			// Set's own error names the flag, which nobody gave.
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			problems = append(problems, fmt.Errorf("%s: %w", variable(f.Name), err))
		}
	})
	return errors.Join(problems...)
}
