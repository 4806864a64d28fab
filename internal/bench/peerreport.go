package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// PeerReport is how this proxy and others fared with the same calls.
type PeerReport struct {
	Ways       []Way     `json:"ways"` // direct, the bare proxy, this proxy, then the peers
	Machine    Machine   `json:"machine"`
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"`
	LoadBefore string    `json:"load_before"` // of the machine, as the system averages it over 1, 5 and 15 minutes
	LoadAfter  string    `json:"load_after"`
}

// Way is what was measured of one way. What is not known is null.
type Way struct {
	Name  string         `json:"name"`
	Calls map[int]Spread `json:"calls_per_second"` // by the number of connections; good answers only
	// AddedP50 is at the fewest connections, over direct calls of the same round.
	AddedP50 *Spread `json:"added_p50_us"`
	// CPU is processor time per call of the process whose pid is known, at the most connections.
	CPU      *Spread      `json:"cpu_per_call_us"`
	Answered int          `json:"answered"` // calls, those that warmed it up among them
	Errors   int          `json:"errors"`   // calls without a good answer; a status that is not 200 is none
	Records  *PeerRecords `json:"records"`
	Problems []string     `json:"problems"`
}

// PeerRecords is what became of the answered calls.
type PeerRecords struct {
	Answered int `json:"answered"`
	Own      int `json:"own"` // recorded, with every id, logprob and text that the engine gave for it
	Missing  int `json:"missing"`
	Wrong    int `json:"wrong"`  // recorded with something else; of this proxy, missing ones too
	Unread   int `json:"unread"` // their session could not be read, or not in time
}

func (w *Way) problem(text string) {
	if len(w.Problems) < 5 && !slices.Contains(w.Problems, text) {
		w.Problems = append(w.Problems, text)
	}
}

// failure is what went wrong on our own side.
func (r *PeerReport) failure(ways []*way) error {
	var errs []error
	for i, w := range r.Ways {
		if ways[i].ours && (w.Errors > 0 || w.Records != nil && w.Records.Own != w.Records.Answered) {
			errs = append(errs, fmt.Errorf("%s: %d calls failed or were not recorded as they were: %s", w.Name, w.Errors, strings.Join(w.Problems, "; ")))
		}
	}
	return errors.Join(errs...)
}

// JSON writes the report for programs.
func (r *PeerReport) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the report for people.
func (r *PeerReport) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	m, conns := r.Machine, r.connections()
	fmt.Fprintf(t, "%s, %d cores, %s, %s; %s, %.0f s, load %s before and %s after\n\n", m.Processor, m.Cores, m.System, m.Go,
		r.Began.Format("2006-01-02 15:04 MST"), r.Seconds, r.LoadBefore, r.LoadAfter)
	fmt.Fprint(t, "the standard call")
	for _, n := range conns {
		fmt.Fprintf(t, "\tcalls/s at %d", n)
	}
	fmt.Fprintf(t, "\tadded p50 at %d, µs\tCPU per call at %d, µs\terrors\trecorded as they were\n", conns[0], conns[len(conns)-1])
	for _, w := range r.Ways {
		fmt.Fprint(t, w.Name)
		for _, n := range conns {
			fmt.Fprintf(t, "\t%s", w.Calls[n])
		}
		fmt.Fprintf(t, "\t%s\t%s\t%d of %d\t%s\n", orNone(w.AddedP50), orNone(w.CPU), w.Errors, w.Errors+w.Answered, w.Records)
	}
	for _, w := range r.Ways {
		for _, p := range w.Problems {
			fmt.Fprintf(t, "%s: %s\n", w.Name, p)
		}
	}
	return t.Flush()
}

// String is the median, with the extremes.
func (s Spread) String() string { return fmt.Sprintf("%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max) }

func orNone(s *Spread) string {
	if s == nil {
		return "-"
	}
	return s.String()
}

func (f *PeerRecords) String() string {
	if f == nil {
		return "-"
	}
	text := fmt.Sprintf("%d of %d", f.Own, f.Answered)
	for _, more := range []struct {
		n    int
		what string
	}{{f.Missing, "missing"}, {f.Wrong, "wrong"}, {f.Unread, "not read"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}
