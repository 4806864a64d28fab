package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"captureproxy/internal/bench"
)

func newBench() *cobra.Command {
	var opts bench.Options
	var full, tiny, asJSON bool
	var growth string
	var peers []string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what capturing costs on this machine",
		Long: `bench puts the same load on a lean engine directly, through a bare reverse proxy that records nothing, and through this
proxy with a durable store, one after the other, round by round. It prints medians and extremes, kills the proxy, and looks
for every answered call in its store. It exits with 1 when one is missing or mixed with another, or a call failed.

The default takes about 40 seconds on two cores. Nothing else should be busy meanwhile. The disk that is measured is that of
--dir. docs/performance.md says how each figure comes about.

--growth measures something else instead: how cost grows, with up to 10,000 streams at the same time, sessions of up to 2,000
turns and prompts of up to a million tokens. It takes some minutes and 2 GiB of memory, and writes growth.json and
a picture per series into the directory that it is given.

--peer measures something else, too: the standard call through other proxies that run already, in front of the engine that
--engine names, in turns with direct calls, the bare proxy and this proxy. Per way it prints calls per second, what the median
call takes longer, processor time if the process is named (pid=), and errors; where it knows how sessions are made and read back
(sessions=openenv, sessions=rllm), also how many of the answered calls were recorded as they were. Headers after the address,
"Authorization: Bearer KEY", go with every call. docs/peers/run.sh does all of it for some proxies that are known.`,
		Example: `  capture-proxy bench
  capture-proxy bench --full --json --dir /var/lib/capture
  capture-proxy bench --growth ./growth
  capture-proxy bench --engine http://127.0.0.1:9000 --peer other=http://127.0.0.1:9001 --peer openenv=http://127.0.0.1:9002,pid=123,sessions=openenv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			opts.Size = bench.Default()
			switch {
			case tiny:
				opts.Size = bench.Tiny()
			case full:
				opts.Size = bench.Full()
			}
			opts.Engine = strings.TrimRight(strings.TrimPrefix(opts.Engine, "http://"), "/")
			if opts.Host, err = benchHost(); err != nil {
				return err
			}
			if !asJSON {
				opts.Progress = cmd.ErrOrStderr()
			}
			if len(peers) > 0 {
				return benchPeers(ctx, cmd, opts, peers, tiny, asJSON)
			}
			if growth != "" {
				return benchGrowth(ctx, cmd, opts, growth, tiny, asJSON)
			}
			report, failure := bench.Run(ctx, opts)
			if report == nil || opts.Profile != "" {
				return failure
			}
			return printBench(cmd, report, failure, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print the figures as JSON")
	f.BoolVar(&full, "full", false, "take several minutes and measure more often")
	f.StringVar(&growth, "growth", "", "measure how cost grows, and write figures and pictures into `DIR`")
	f.StringArrayVar(&peers, "peer", nil, "another `PROXY` to measure beside this one: NAME=URL[,pid=PID][,sessions=API][,HEADER: VALUE]; may be repeated")
	f.StringVar(&opts.Dir, "dir", "", "directory for the stores that are written and removed again (default the system's for temporary files)")
	f.StringVar(&opts.Profile, "profile", "", "`FILE` for a CPU profile of the proxy at 64 connections; nothing else is measured")
	f.BoolVar(&opts.ProfileStream, "profile-stream", false, "profile streams, not whole calls")
	f.BoolVar(&tiny, "tiny", false, "show that it works, in a moment; the figures mean nothing")
	f.StringVar(&opts.Engine, "engine", "", "`URL` of a lean engine that runs already; docs/peers/run.sh starts one")
	for _, hidden := range []string{"tiny", "profile-stream"} {
		cobra.CheckErr(f.MarkHidden(hidden))
	}
	cmd.MarkFlagsMutuallyExclusive("peer", "growth", "profile")
	cmd.MarkFlagsMutuallyExclusive("peer", "full")
	cmd.AddCommand(newBenchWorker())
	return cmd
}

// benchGrowth measures how cost grows.
func benchGrowth(ctx context.Context, cmd *cobra.Command, opts bench.Options, dir string, tiny, asJSON bool) error {
	size := bench.DefaultGrowth()
	if tiny {
		size = bench.TinyGrowth()
	}
	g, failure := bench.Grow(ctx, opts, size, dir)
	if g == nil {
		return failure
	}
	return printBench(cmd, g, failure, asJSON)
}

// benchPeers measures other proxies beside this one.
func benchPeers(ctx context.Context, cmd *cobra.Command, opts bench.Options, texts []string, tiny, asJSON bool) error {
	if opts.Engine == "" {
		return usagef("--peer needs --engine: the engine that the other proxies stand in front of; docs/peers/run.sh starts one")
	}
	var peers []bench.Peer
	for _, text := range texts {
		p, err := bench.ParsePeer(text)
		if err != nil {
			return usageError{err}
		}
		peers = append(peers, p)
	}
	size := bench.DefaultPeers()
	if tiny {
		size = bench.TinyPeers()
	}
	report, failure := bench.Compare(ctx, opts, size, peers)
	if report == nil {
		return failure
	}
	return printBench(cmd, report, failure, asJSON)
}

// measured is what came of a bench, for people and for programs.
type measured interface {
	Table(w io.Writer) error
	JSON(w io.Writer) error
}

// printBench prints what was measured, also where something of it failed.
func printBench(cmd *cobra.Command, m measured, failure error, asJSON bool) error {
	print := m.Table
	if asJSON {
		print = m.JSON
	}
	return errors.Join(failure, print(cmd.OutOrStdout()))
}

// benchHost says how the bench starts this program again.
func benchHost() (bench.Host, error) {
	binary, err := os.Executable()
	return bench.Host{Binary: binary, Name: os.Args[0]}, err
}

// newBenchWorker is what the bench's processes are. They end with their standard input.
func newBenchWorker() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "A process of the bench", Hidden: true, Args: cobra.NoArgs, RunE: needsCommand}
	var addr, upstream, data, profile string
	var stay bool
	add := func(name, what string, run func(ctx context.Context, cmd *cobra.Command) error) {
		sub := &cobra.Command{Use: name, Short: what, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, cmd)
		}}
		sub.Flags().StringVar(&addr, "listen", "127.0.0.1:0", "address to listen on")
		sub.Flags().StringVar(&upstream, "upstream", "", "the engine's URL")
		sub.Flags().StringVar(&data, "data", "", "directory of the store")
		sub.Flags().StringVar(&profile, "cpuprofile", "", "`FILE` for a CPU profile")
		sub.Flags().BoolVar(&stay, "stay", false, "do not end with standard input")
		cmd.AddCommand(sub)
	}
	add("engine", "The lean engine", func(ctx context.Context, cmd *cobra.Command) error {
		return benchServer(ctx, cmd, addr, stay, bench.Engine)
	})
	add("bare", "The bare proxy", func(ctx context.Context, cmd *cobra.Command) error {
		return benchServer(ctx, cmd, addr, stay, func(ctx context.Context, l net.Listener) error { return bench.Bare(ctx, l, upstream) })
	})
	add("relay", "The relay of bytes", func(ctx context.Context, cmd *cobra.Command) error {
		return benchServer(ctx, cmd, addr, stay, func(ctx context.Context, l net.Listener) error { return bench.Relay(ctx, l, upstream) })
	})
	add("load", "The load generator", func(_ context.Context, cmd *cobra.Command) error {
		return bench.Answer(cmd.InOrStdin(), cmd.OutOrStdout(), bench.Load)
	})
	add("proxy", "The proxy, whose heap can be asked for", func(ctx context.Context, cmd *cobra.Command) error {
		return profiled(profile, func() error { return benchProxy(ctx, cmd, addr, upstream, data) })
	})
	return cmd
}

// profiled writes a CPU profile of what runs, if a file for it is named.
func profiled(path string, run func() error) (err error) {
	if path == "" {
		return run()
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return run()
}

// benchServer serves until the one who started it is gone.
func benchServer(ctx context.Context, cmd *cobra.Command, addr string, stay bool, serve func(context.Context, net.Listener) error) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if !stay {
		ended, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx = ended
		go func() {
			io.Copy(io.Discard, cmd.InOrStdin()) //nolint:errcheck // its end is what counts, however it comes
			cancel()
		}()
	}
	fmt.Fprintln(cmd.OutOrStdout(), baseURL(l))
	return serve(ctx, l)
}

// benchProxy is serve with its defaults, which beside that answers how much memory is in use after a collection.
func benchProxy(ctx context.Context, cmd *cobra.Command, addr, upstream, data string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	serve := newServe()
	serve.SetArgs([]string{"--listen", addr, "--upstream", upstream, "--data", data})
	serve.SetOut(cmd.OutOrStdout())
	go func() {
		served <- serve.ExecuteContext(ctx)
		stop()
	}()
	asked := make(chan error, 1)
	go func() {
		asked <- bench.Answer(cmd.InOrStdin(), cmd.OutOrStdout(), func(struct{}) (bench.Heap, error) { return heap(), nil })
	}()
	select {
	case err := <-served:
		return err
	case err := <-asked:
		stop()
		return errors.Join(err, <-served)
	}
}

// heap is what is in use, after a collection.
func heap() bench.Heap {
	runtime.GC()
	runtime.GC() // what the first one found to be finalised is gone after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return bench.Heap{Bytes: int64(m.HeapAlloc)}
}
