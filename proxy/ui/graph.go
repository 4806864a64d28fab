package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/internal/record"
)

// drawing is the graph of a session to scale in time. Positions along the time axis are percentages, so that the picture
// is as wide as its place.
type drawing struct {
	Marks  []mark
	Edges  []edge
	Ticks  []tick
	Height int
	Size   int // class of its least width: many turns need room
	Failed bool
}

// mark is a turn or a failed call.
type mark struct {
	X, W   string // percent: begin, and how long it took
	Y      int
	Shape  string // agent, auxiliary, discarded, failed
	Href   string
	Title  string
	Label  string // "" where there is no room
	Broken bool
	Level  string // of its worst finding
}

// edge joins a turn's end with what follows it. Broken ones are conversations that go on without their tokens.
type edge struct {
	X1, X2 string
	Y1, Y2 int
	Broken bool
}

type tick struct{ X, Label string }

const (
	laneHeight = 30
	topMargin  = 34
)

// chain is a stretch of turns, each the main child of the one before, that is drawn on one line.
type chain struct {
	turns      []int
	begin, end float64
	lane       int
	from       *chain // the one that it forks or broke from
}

// draw lays out a session's graph.
func draw(b *book, l links) *drawing {
	doc := b.doc
	if len(doc.Turns) == 0 && len(doc.FailedCalls) == 0 {
		return nil
	}
	d := &drawing{Failed: len(doc.FailedCalls) > 0, Size: sizeClass(len(doc.Turns))}
	at := newTimeScale(doc, widths[d.Size])
	chains := chainsOf(b, at)
	lanes := assignLanes(chains)
	first := topMargin
	if d.Failed {
		first += laneHeight
	}
	y := make([]int, len(doc.Turns))
	for _, c := range chains {
		for _, i := range c.turns {
			y[i] = first + c.lane*laneHeight
		}
	}
	d.Height = first + max(lanes, 1)*laneHeight
	lastLabel := map[int]float64{}
	room := 100 / (float64(widths[d.Size]) / 26)
	for i := range doc.Turns {
		t := &doc.Turns[i]
		begin, end := at.turn(t)
		m := mark{
			X: percent(begin), W: percent(max(end-begin, 0.05)), Y: y[i], Shape: string(b.role(i)), Href: l.turn(b.key, i), Title: markTitle(t),
			Broken: t.Break != nil, Level: worst(t.Validation),
		}
		if last, ok := lastLabel[y[i]]; !ok || begin-last >= room {
			m.Label, lastLabel[y[i]] = strconv.Itoa(i), begin
		}
		d.Marks = append(d.Marks, m)
		if p := b.turn(t.ParentID); p >= 0 {
			_, from := at.turn(&doc.Turns[p])
			d.Edges = append(d.Edges, edge{X1: percent(from), X2: percent(begin), Y1: y[p], Y2: y[i]})
		}
		if p := b.turn(t.Continues); p >= 0 && t.Break != nil {
			_, from := at.turn(&doc.Turns[p])
			d.Edges = append(d.Edges, edge{X1: percent(from), X2: percent(begin), Y1: y[p], Y2: y[i], Broken: true})
		}
	}
	for _, f := range doc.FailedCalls {
		d.Marks = append(d.Marks, mark{
			X: percent(at.call(f.Call)), W: "0%", Y: topMargin, Shape: "failed", Href: l.session(b.key) + failedAnchor(l, f.Call),
			Title: fmt.Sprintf("call %d: %s %s", f.Call, plain(string(f.Outcome)), short(f.Detail, 120)),
		})
	}
	d.Ticks = at.ticks(widths[d.Size] / tickRoom)
	return d
}

func failedAnchor(l links, call int) string {
	if l.inline {
		return ""
	}
	return fmt.Sprintf("#call-%d", call)
}

// widths are the least widths in pixels that the style sheet gives to the classes of sizes.
var widths = [...]int{560, 1200, 4000, 12000, 30000}

func sizeClass(turns int) int {
	for i, w := range widths {
		if turns*18 <= w {
			return i
		}
	}
	return len(widths) - 1
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) + "%" }

func markTitle(t *export.Turn) string {
	s := fmt.Sprintf("turn %d (call %d): %s → %s tokens", t.Index, t.Call, number(t.NPrompt), number(t.NSampled))
	if t.FinishReason != "" {
		s += ", " + plain(t.FinishReason)
	}
	if t.Outcome != record.Complete {
		s += ", " + plain(string(t.Outcome))
	}
	if t.Discarded {
		s += ", discarded: " + plain(t.DiscardReason)
	}
	if t.Break != nil {
		s += ", broke from an earlier turn: " + plain(t.Break.Cause)
	}
	return s
}

// chainsOf takes the graph apart into lines. A turn's main child is the first that is not discarded.
func chainsOf(b *book, at *timeScale) []*chain {
	doc := b.doc
	of := make([]*chain, len(doc.Turns))
	taken := map[int]bool{} // turns whose main child is known
	mains := map[int]int{}
	for pass := range 2 {
		for i := range doc.Turns {
			p := b.turn(doc.Turns[i].ParentID)
			if p < 0 || p >= i || taken[p] || pass == 0 && doc.Turns[i].Discarded {
				continue
			}
			taken[p], mains[p] = true, i
		}
	}
	var chains []*chain
	for i := range doc.Turns {
		begin, end := at.turn(&doc.Turns[i])
		p := b.turn(doc.Turns[i].ParentID)
		if p >= 0 && p < i && mains[p] == i && of[p] != nil {
			of[i] = of[p]
		} else {
			of[i] = &chain{begin: begin, end: end}
			if e := b.turn(doc.Turns[i].Continues); p < 0 && doc.Turns[i].Break != nil {
				p = e
			}
			if p >= 0 && p < i {
				of[i].from = of[p]
			}
			chains = append(chains, of[i])
		}
		c := of[i]
		c.turns, c.end = append(c.turns, i), max(c.end, end)
	}
	return chains
}

// assignLanes puts each chain on the first line that is free while it lasts.
func assignLanes(chains []*chain) int {
	sorted := slices.Clone(chains)
	slices.SortStableFunc(sorted, func(a, b *chain) int { return cmp.Compare(a.begin, b.begin) })
	var free []float64 // per lane, from when on
	const gap = 3
	for _, c := range sorted {
		c.lane = len(free)
		for lane, until := range free {
			if until <= c.begin && (c.from == nil || c.from.lane != lane) { // on one line it would look like the next step
				c.lane = lane
				break
			}
		}
		if c.lane == len(free) {
			free = append(free, 0)
		}
		free[c.lane] = c.end + gap
	}
	return len(free)
}

// timeScale turns moments into percentages of the picture.
type timeScale struct {
	doc        *export.Rollout
	begin, end time.Time
	left, span float64 // percent: where it begins, and how far it reaches
}

// tickRoom is about how many pixels lie between two ticks.
const tickRoom = 140

// newTimeScale leaves room for the marks at both ends of a picture that is at least so many pixels wide.
func newTimeScale(doc *export.Rollout, width int) *timeScale {
	const left, right = 22, 40 // pixels
	s := &timeScale{doc: doc, left: 100 * left / float64(width)}
	s.span = 100 - s.left - 100*right/float64(width)
	for i := range doc.Turns {
		from, to := moments(&doc.Turns[i])
		if from.IsZero() {
			continue
		}
		if s.begin.IsZero() || from.Before(s.begin) {
			s.begin = from
		}
		if to.After(s.end) {
			s.end = to
		}
	}
	return s
}

// moments are when a turn began and ended, as far as its document says.
func moments(t *export.Turn) (from, to time.Time) {
	for _, m := range []export.Time{t.Timing.Received, t.Timing.Dispatched, t.Timing.FirstToken, t.Timing.LastToken, t.Timing.Recorded} {
		if m.IsZero() {
			continue
		}
		if from.IsZero() {
			from = m.Time
		}
		to = m.Time
	}
	if !t.Timing.LastToken.IsZero() {
		to = t.Timing.LastToken.Time
	}
	return from, to
}

func (s *timeScale) percent(m time.Time) float64 {
	whole := s.end.Sub(s.begin)
	if whole <= 0 || m.IsZero() {
		return s.left
	}
	return s.left + s.span*min(max(float64(m.Sub(s.begin))/float64(whole), 0), 1)
}

func (s *timeScale) turn(t *export.Turn) (begin, end float64) {
	from, to := moments(t)
	if from.IsZero() || !s.end.After(s.begin) { // without times, in order
		begin = s.left + s.span*float64(t.Index)/float64(max(len(s.doc.Turns), 1))
		return begin, begin
	}
	return s.percent(from), s.percent(to)
}

// call places a failed call, which has no times, between the turns around it.
func (s *timeScale) call(n int) float64 {
	before, after := -1.0, -1.0
	for i := range s.doc.Turns {
		t := &s.doc.Turns[i]
		begin, end := s.turn(t)
		if t.Call < n {
			before = max(before, end)
		} else if after < 0 || begin < after {
			after = begin
		}
	}
	switch {
	case before < 0 && after < 0:
		return s.left
	case before < 0:
		return max(after-s.left, s.left/2)
	case after < 0:
		return min(before+s.left, 100-s.left)
	}
	return (before + after) / 2
}

// tickSteps are the distances that ticks may have.
var tickSteps = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// ticks are at round times, about n of them.
func (s *timeScale) ticks(n int) []tick {
	whole := s.end.Sub(s.begin)
	if whole <= 0 {
		return nil
	}
	step := whole/time.Duration(n) + 1
	for _, round := range tickSteps {
		if round >= step {
			step = round
			break
		}
	}
	var list []tick
	for at := time.Duration(0); at <= whole; at += step {
		list = append(list, tick{percent(s.left + s.span*float64(at)/float64(whole)), "+" + roundDuration(at)})
	}
	return list
}

// roundDuration writes a round time span as short as it can be.
func roundDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.of; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			d -= n * unit.of
		}
	}
	return cmp.Or(strings.Join(parts, " "), duration(d))
}

// duration writes a time span in two or three digits.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

func verdictOf(b *book) string { return plain(show.Verdict(b.doc)) }
