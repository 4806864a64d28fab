package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"captureproxy/export"
	"captureproxy/validate"
)

// Tree writes one screen about a rollout: what it is, whether it may be trained on, the graph, the rows, the findings.
func Tree(w io.Writer, r *export.Rollout, o Options) error {
	t := &tree{printer: printer{w: w}, r: r, o: o, role: Roles(r), children: map[string][]int{}, drawn: make([]bool, len(r.Turns))}
	t.o.Width = cmp.Or(o.Width, 100)
	t.header()
	t.graph()
	t.failed()
	t.rows()
	t.findings()
	return t.err
}

type tree struct {
	printer
	r        *export.Rollout
	o        Options
	role     map[string]export.Role
	children map[string][]int
	drawn    []bool // a damaged document may lead in circles
}

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// line writes a line of at most Width columns, in a style where colour was asked for.
func (t *tree) line(style, text string) {
	text = cut(text, t.o.Width)
	if t.o.Color && style != "" {
		text = "\x1b[" + style + "m" + text + "\x1b[0m"
	}
	t.linef("%s", text)
}

// text writes a text that may take several lines, each behind its indent.
func (t *tree) text(style, indent, text string) {
	room := max(t.o.Width-utf8.RuneCountInString(indent), 20)
	for text != "" {
		part := text
		if utf8.RuneCountInString(text) > room {
			part = string([]rune(text)[:room])
			if k := strings.LastIndexByte(part, ' '); k > room/2 {
				part = part[:k]
			}
		}
		t.line(style, indent+part)
		text = strings.TrimLeft(text[len(part):], " ")
	}
}

func (t *tree) header() {
	r := t.r
	head := fmt.Sprintf("session %s  %s  %s", r.SessionID, r.Status, r.RolloutType)
	if r.CaptureLevel != "" {
		head += "  level " + string(r.CaptureLevel)
	}
	if r.Reward != nil {
		head += fmt.Sprintf("  reward %v", *r.Reward)
	}
	t.line(bold, clean(head))
	if r.Outcome != nil && r.Outcome.Error != nil {
		t.line(red, "  "+clean(*r.Outcome.Error))
	}
	style := yellow
	if r.Trainable {
		style = green
	}
	t.line(style, "  "+Verdict(r))
	s := r.Stats
	t.line("", fmt.Sprintf("  %s, %s, %s, %d discarded, %s", count(s.Turns, "turn"), count(s.Roots, "root"), count(s.Forks, "fork"),
		s.Discarded, count(s.FailedCalls, "failed call")))
	if text := continuity(r); text != "" {
		t.line("", "  "+text)
	}
}

func (t *tree) graph() {
	var roots []int
	for i := range t.r.Turns {
		if p := t.r.Turns[i].ParentID; p == "" {
			roots = append(roots, i)
		} else {
			t.children[p] = append(t.children[p], i)
		}
	}
	if len(roots) > 0 {
		t.line(bold, "graph  (turn, prompt → sampled tokens)")
	}
	for _, i := range roots {
		t.node(i, "  ", "  ")
	}
	for i := range t.r.Turns {
		if !t.drawn[i] {
			t.node(i, "  ? ", "  ") // its parent is nowhere in the document
		}
	}
}

// node draws a turn and what follows it. A turn with one child is followed straight down, so that a long
// conversation stays in its column.
func (t *tree) node(i int, first, rest string) {
	for !t.drawn[i] {
		t.drawn[i] = true
		t.turn(&t.r.Turns[i], first, rest)
		below := t.children[t.r.Turns[i].NodeID]
		if len(below) > 1 {
			t.fork(below, rest)
		}
		if len(below) != 1 {
			return
		}
		i, first = t.skipPlain(below[0], rest), rest
	}
}

func (t *tree) turn(turn *export.Turn, first, rest string) {
	t.line(t.style(turn), first+label(turn)+t.marks(turn))
	for _, f := range turn.Validation {
		t.text(levelStyle(f.Level), rest+"    ", clean(f.String()))
	}
	if text := carried(turn); text != "" {
		t.text(dim, rest+"    ", clean(text))
	}
	if b := turn.Break; b != nil {
		t.text(yellow, rest+"    ", clean(fmt.Sprintf("continues %s, broken: %s: %s", turn.Continues, b.Cause, b.Detail)))
	}
}

func (t *tree) fork(below []int, rest string) {
	for k, c := range below {
		if k < len(below)-1 {
			t.node(c, rest+"├─ ", rest+"│  ")
		} else {
			t.node(c, rest+"└─ ", rest+"   ")
		}
	}
}

// skipPlain passes over the turns of a long straight stretch of which there is nothing to say, and returns the turn
// to go on with.
func (t *tree) skipPlain(i int, rest string) int {
	const short = 4
	passed, end := 0, i
	for !t.drawn[end] && t.plain(end) {
		end = t.children[t.r.Turns[end].NodeID][0]
		if passed++; passed > len(t.r.Turns) {
			return i
		}
	}
	if passed <= short {
		return i
	}
	for i != end {
		t.drawn[i] = true
		i = t.children[t.r.Turns[i].NodeID][0]
	}
	t.line(dim, fmt.Sprintf("%s⋮ %d more turns", rest, passed))
	return end
}

// plain reports whether a turn has one child and no remark.
func (t *tree) plain(i int) bool {
	turn := &t.r.Turns[i]
	return len(t.children[turn.NodeID]) == 1 && len(turn.Validation) == 0 && turn.Break == nil && turn.NotContinued() == "" && t.marks(turn) == ""
}

func (t *tree) style(turn *export.Turn) string {
	switch {
	case turn.Discarded || t.role[turn.NodeID] == export.Auxiliary:
		return dim
	case validate.AnyFatal(turn.Validation):
		return yellow
	}
	return ""
}

func (t *tree) marks(turn *export.Turn) string {
	var marks []string
	if role := t.role[turn.NodeID]; role != "" && role != export.Agent {
		marks = append(marks, string(role))
	}
	if turn.DiscardReason != "" {
		marks = append(marks, turn.DiscardReason)
	}
	if turn.RetryOf > 0 {
		marks = append(marks, fmt.Sprintf("retry of call %d", turn.RetryOf))
	}
	if turn.Link == "messages" {
		marks = append(marks, "by messages")
	}
	if validate.AnyFatal(turn.Validation) {
		marks = append(marks, "context only")
	}
	if len(marks) == 0 {
		return ""
	}
	return clean("  [" + strings.Join(marks, ", ") + "]")
}

func (t *tree) failed() {
	if len(t.r.FailedCalls) > 0 {
		t.line(bold, "failed calls")
	}
	for _, f := range t.r.FailedCalls {
		t.line(dim, clean(fmt.Sprintf("  call %d  %s  %s", f.Call, f.Outcome, f.Detail)))
	}
}

func (t *tree) rows() {
	if len(t.r.Sequences) == 0 {
		return
	}
	t.line(bold, fmt.Sprintf("rows  (shared turns: %s)", clean(string(t.r.Shared))))
	t.line(dim, fmt.Sprintf("  %-10s %6s %8s %8s %8s  %s", "role", "turns", "prompt", "tokens", "trained", "row"))
	for i := range t.r.Sequences {
		row := &t.r.Sequences[i]
		style := dim
		if row.Trainable {
			style = green
		}
		t.line(style, fmt.Sprintf("  %-10s %6d %8d %8d %8d  %s", clean(string(row.Role)), row.NTurns, row.PromptLen, len(row.InputIDs), row.NTrainable, clean(row.RowID)))
		for _, f := range row.Validation {
			t.text(levelStyle(f.Level), "    ", clean(f.String()))
		}
	}
}

func (t *tree) findings() {
	if len(t.r.Validation) == 0 {
		return
	}
	t.line(bold, "findings")
	for _, f := range t.r.Validation {
		t.text(levelStyle(f.Level), "  ", clean(f.String()))
	}
}

func levelStyle(l validate.Level) string {
	switch l {
	case validate.Fatal:
		return red
	case validate.Warn:
		return yellow
	}
	return dim
}
