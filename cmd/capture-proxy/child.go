package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// exitNotStarted is a shell's exit code for a command that cannot be started, exitSignal what it adds to the number of
// the signal that ended one.
const (
	exitNotStarted = 127
	exitSignal     = 128
)

// ended is how a child process ended.
type ended struct {
	code int
	// problem says what was wrong with it, "" for an exit code of 0.
	problem string
}

// runChild runs a command to its end, with this process's standard streams, and hands on the signals that come.
//
// The child stays in this process group, so that it keeps the terminal and can be stopped and continued together with
// us. A key like Ctrl-C then reaches it directly and is not handed on a second time; we outlive it to write the rollout.
func runChild(cmd *exec.Cmd) ended {
	signals := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(sig) { // under nohup the child is to ignore it as well
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)

	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return ended{exitNotStarted, "StartError: " + err.Error()}
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && ownsTerminal() {
				continue
			}
			cmd.Process.Signal(sig) //nolint:errcheck // it may have ended just now
		case err := <-waited:
			return endedWith(cmd.ProcessState, err)
		}
	}
}

func endedWith(state *os.ProcessState, err error) ended {
	var exit *exec.ExitError
	switch status, ok := state.Sys().(syscall.WaitStatus); {
	case err == nil:
		return ended{}
	case !errors.As(err, &exit):
		return ended{exitFailed, "ExitError: " + err.Error()}
	case ok && status.Signaled():
		return ended{exitSignal + int(status.Signal()), "ExitError: " + state.String()}
	}
	return ended{state.ExitCode(), "ExitError: " + state.String()}
}
