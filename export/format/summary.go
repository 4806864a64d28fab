package format

import (
	"fmt"
	"slices"
	"strings"
)

// Summary counts an export.
type Summary struct {
	Format        string
	Sessions      int
	Rows          int // what the form has in place of rows: turns for openenv, groups are not counted
	TrainedTokens int
	// What was left out, and why, in the order in which the reasons came up.
	SessionsLeftOut, RowsLeftOut []Reason
	Notes                        []string

	zero int // sessions with advantage 0
}

// Reason counts what was left out for one reason.
type Reason struct {
	Why string
	N   int
}

func (s *Summary) leaveOut(list *[]Reason, why string) {
	i := slices.IndexFunc(*list, func(r Reason) bool { return r.Why == why })
	if i < 0 {
		i = len(*list)
		*list = append(*list, Reason{Why: why})
	}
	(*list)[i].N++
}

func (s *Summary) note(form string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(form, args...))
}

// String says the counts in a few lines.
func (s Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: sessions %d, rows %d, trained tokens %d\n", s.Format, s.Sessions, s.Rows, s.TrainedTokens)
	for _, list := range []struct {
		what string
		of   []Reason
	}{{"sessions", s.SessionsLeftOut}, {"rows", s.RowsLeftOut}} {
		for _, r := range list.of {
			fmt.Fprintf(&b, "left out: %s %d (%s)\n", list.what, r.N, r.Why)
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
