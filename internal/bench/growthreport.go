package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// write writes the figures and the pictures.
func (g *Growth) write(dir string) error {
	text, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(dir, "growth.json"), append(text, '\n'), 0o644)}
	for _, s := range g.Series {
		errs = append(errs, os.WriteFile(filepath.Join(dir, s.Name+".svg"), s.picture(), 0o644))
	}
	return errors.Join(errs...)
}

// JSON writes the figures for programs.
func (g *Growth) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(g)
}

// steep is the power of the bytes from which on a figure counts as growing faster than they do: measurements scatter.
const steep = 1.15

// Table writes the figures for people.
func (g *Growth) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	m := g.Machine
	fmt.Fprintf(t, "%s, %d cores, %s, %s; %s, %.0f s, load %s before and %s after\n", m.Processor, m.Cores, m.System, m.Go,
		g.Began.Format("2006-01-02 15:04 MST"), g.Seconds, g.LoadBefore, g.LoadAfter)
	fmt.Fprintf(t, "records lost or mixed: %d of %d\n", g.LostOrMixedRecords, g.Checked)
	for _, s := range g.Series {
		fmt.Fprintf(t, "\n%s\t", s.Title)
		for _, n := range s.Sizes {
			fmt.Fprintf(t, "%s\t", sizeName(n))
		}
		fmt.Fprint(t, "last step, as a power of the bytes\nMiB that passed\t")
		for _, b := range s.Bytes {
			fmt.Fprintf(t, "%s\t", shown(b/(1<<20)))
		}
		fmt.Fprintln(t)
		for _, f := range s.Figures {
			fmt.Fprintf(t, "%s, %s\t", f.Title, f.Unit)
			for _, v := range f.Values {
				fmt.Fprintf(t, "%s\t", shown(v))
			}
			fmt.Fprintln(t, f.lastStep())
		}
		for _, note := range s.Notes {
			fmt.Fprintln(t, "note:", note)
		}
	}
	return t.Flush()
}

func (f *Figure) lastStep() string {
	if len(f.Steps) == 0 || f.Steps[len(f.Steps)-1] == 0 {
		return ""
	}
	last := f.Steps[len(f.Steps)-1]
	text := fmt.Sprintf("%.2f", last)
	if last > steep {
		text += " faster than the bytes"
	}
	return text
}

// shown is a value in three digits.
func shown(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	text := fmt.Sprintf("%.3g", v)
	if strings.Contains(text, "e") {
		text = fmt.Sprintf("%.6f", v)
	}
	return text
}
