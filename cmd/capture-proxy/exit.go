package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes (SPEC 1).
const (
	exitOK     = 0
	exitFailed = 1 // it ran and failed
	exitUsage  = 2 // wrong usage: nothing ran
)

// usageError is a mistake in how the command was called, found out while it was already running its own checks.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitStatus ends the program with a code and says nothing: what there is to say has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// execute runs the command line and returns the exit code.
func execute(args []string) int {
	started := false
	root := newRoot(&started)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	return report(cmd.ErrOrStderr(), cmd, err, started)
}

// report says what went wrong and returns the exit code. An error before the command started is one of usage: cobra
// found an unknown command, flag or argument.
func report(w io.Writer, cmd *cobra.Command, err error, started bool) int {
	var status exitStatus
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage) || !started:
		fmt.Fprintf(w, "%s: %v\nRun '%s --help' for usage.\n", cmd.CommandPath(), err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(w, "%s: %v\n", cmd.CommandPath(), err)
	return exitFailed
}
