package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"captureproxy/export/format"
	"captureproxy/internal/record"
)

// exportFlags say what to export, from where, and into which form.
type exportFlags struct {
	from              exportSource
	format            *choice
	shared, advantage *choice
	out               string
	minReward         float64
}

func newExport() *cobra.Command {
	var flags exportFlags
	cmd := &cobra.Command{
		Use:   "export --format NAME [FILE...]",
		Short: "Write rollouts in a trainer's format",
		Long: `export writes rollouts as a trainer's own loader reads them. They come from document files, from a store that no proxy has
open (--data), or from a running proxy (--url). Each sampled token is trained once over the whole export, unless --shared is
every. Sessions that may not be trained on are left out; the counts at the end say how many, and why.

` + formatList() + `
A damaged document ends the export, and no file is left behind.`,
		Example: `  capture-proxy export --format trl-sft --min-reward 1 --out sft.parquet rollouts/*.json
  capture-proxy export --format verl --data ./capture-data --group task-7 --out verl.jsonl
  capture-proxy export --format tinker --advantage group --url http://127.0.0.1:8100 --run r1 > tinker.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, o, err := flags.take(cmd.Flags())
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			flags.from.shared = o.Shared
			src, release, err := flags.from.open(ctx, cmd.Flags(), args)
			if err != nil {
				return err
			}
			return errors.Join(exportTo(ctx, cmd, flags.out, src, info, o), release())
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

func (flags *exportFlags) add(f *pflag.FlagSet) {
	flags.format = &choice{"", format.Names()}
	flags.shared = oneOf(string(record.SharedOnce), string(record.SharedEvery))
	flags.advantage = oneOf(string(format.AdvantageNone), string(format.AdvantageGroup))
	f.Var(flags.format, "format", "the format, see above")
	f.StringVar(&flags.out, "out", "", "file, or directory for nemo-gym; a name that ends in .parquet makes Parquet (default standard output)")
	f.Var(flags.shared, "shared", flags.shared.usage("in how many rows a turn that lies on several is trained"))
	f.Var(flags.advantage, "advantage", flags.advantage.usage("what an advantage is: none is the reward itself, group compares the sessions of a group"))
	f.Float64Var(&flags.minReward, "min-reward", 0, "leave out sessions with a smaller reward, and those without any")
	flags.from.add(f)
}

func formatList() string {
	var b strings.Builder
	for _, i := range format.All() {
		fmt.Fprintf(&b, "  %-11s %s\n", i.Name, i.About)
	}
	return b.String()
}

// take checks the flags that say what to write.
func (flags *exportFlags) take(f *pflag.FlagSet) (format.Info, format.Options, error) {
	o := format.Options{
		Advantage: format.Advantage(flags.advantage.value), Shared: record.Shared(flags.shared.value),
		Parquet: strings.HasSuffix(flags.out, ".parquet"),
	}
	if flags.format.value == "" {
		return format.Info{}, o, usagef("--format is missing, it is one of: %s", strings.Join(format.Names(), ", "))
	}
	info, err := format.Find(flags.format.value)
	if err != nil {
		return info, o, err
	}
	if f.Changed("min-reward") {
		if math.IsNaN(flags.minReward) {
			return info, o, usagef("--min-reward is not a number")
		}
		o.MinReward = &flags.minReward
	}
	switch {
	case info.Directory && flags.out == "":
		return info, o, usagef("format %s writes a file per row: name a directory with --out", info.Name)
	case o.Parquet && !info.Parquet:
		return info, o, usagef("format %s cannot be written as Parquet: choose another name for --out", info.Name)
	case info.Directory:
		return info, o, checkEmpty(flags.out)
	case flags.out != "":
		return info, o, checkOut(flags.out)
	}
	return info, o, nil
}

// checkEmpty refuses a directory with something in it: a trainer would read the files of an earlier export too.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return checkOut(dir)
	case err != nil:
		return usageError{err}
	case len(entries) > 0:
		return usagef("--out %s is not empty: name a new directory", dir)
	}
	return nil
}

// errNothing ends an export that wrote no session, so that no trainer starts on an empty file.
var errNothing = errors.New("nothing to export: no session is left to write")

// exportTo writes to the file or directory of a name, or to standard output, and says the counts.
func exportTo(ctx context.Context, cmd *cobra.Command, out string, src format.Source, info format.Info, o format.Options) error {
	notes := cmd.ErrOrStderr()
	write := func(to format.Output) error {
		bar := newProgress(notes)
		s, err := format.Export(ctx, src, info.Name, to, o, bar.show)
		bar.clear()
		if err != nil {
			return err
		}
		fmt.Fprint(notes, plainLines(s.String()))
		if s.Sessions == 0 {
			return errNothing
		}
		return nil
	}
	toStream := func(w io.Writer) error { return write(format.Output{Stream: w}) }
	switch {
	case info.Directory:
		return writeDirectory(out, func(dir string) error {
			return write(format.Output{Create: func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }})
		})
	case out != "":
		return writeFile(out, toStream)
	}
	return toStream(cmd.OutOrStdout())
}

// writeDirectory makes a directory that is there as a whole or not at all.
func writeDirectory(path string, content func(dir string) error) (err error) {
	path = filepath.Clean(path)
	tmp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := content(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Rename(tmp, path)
}

// plainLines makes each line fit for a terminal.
func plainLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(plain(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// progress is a line on a terminal that says how far a long work is; elsewhere it says nothing.
type progress struct {
	w     io.Writer // nil for none
	last  time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); !ok || !isTerminal(f) {
		return &progress{}
	}
	return &progress{w: w}
}

const progressEvery = 100 * time.Millisecond

func (p *progress) show(done, total int) {
	if p.w == nil || time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.shown = time.Now(), true
	fmt.Fprintf(p.w, "\rexporting %d of %d ", done, total)
}

// clear gives the line back.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
