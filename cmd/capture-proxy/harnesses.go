package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"captureproxy/cmd/capture-proxy/harness"
)

func newHarnesses() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "harnesses",
		Short: "List the agents that are known, and how to point each at the proxy",
		Long: `harnesses lists the coding agents that are known by name: the dialects each speaks, its default first, and how run starts it.
Most need nothing but the variables that run always sets. Where --harness stands in the command, run prepares what the
agent reads instead: variables of its own, or a configuration in a temporary directory that is removed afterwards.

Any other program works as well that takes a base URL and an API key from its environment or its arguments.`,
		Example: `  capture-proxy harnesses
  capture-proxy harnesses --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), harness.Known())
			}
			return printHarnesses(cmd.OutOrStdout(), harness.Known())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printHarnesses(w io.Writer, known []harness.Harness) error {
	rows := [][]string{{"NAME", "DIALECTS", "capture-proxy run --upstream URL …"}}
	for _, h := range known {
		start := "-- " + shellCommand(h.Command)
		if h.Recipe {
			start = "--harness " + h.Name + " " + start
		}
		rows = append(rows, []string{h.Name, strings.Join(h.Dialects, ", "), start})
		if h.Note != "" {
			rows = append(rows, []string{"", "", "  " + h.Note})
		}
	}
	return table(w, rows)
}

// shellCommand writes a command as one types it.
func shellCommand(args []string) string {
	var words []string
	for _, a := range args {
		if strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@") != "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		} else if a == harness.Task {
			a = `"` + a + `"`
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// harnessNames are the agents that --harness takes.
func harnessNames() []string {
	var names []string
	for _, h := range harness.Known() {
		names = append(names, h.Name)
	}
	return names
}
