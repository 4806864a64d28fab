package ui

import (
	"fmt"
	"strconv"

	"captureproxy/export"
	"captureproxy/validate"
)

// Kinds of tokens in a row.
const (
	kindContext   = iota // what the model was given
	kindTrained          // sampled, and this row trains it
	kindShared           // sampled, and an earlier row trains it too
	kindUntrained        // sampled, and no training uses it
)

var kindNames = [...]string{"context", "trained", "shared", "untrained"}

// shapes tell the kinds apart without colour: context is a thin line, trained fills the strip, shared its upper half and
// untrained its lower.
var shapes = [...]struct{ from, back string }{
	kindContext: {" 6v4h", "V6z"}, kindTrained: {" 0v16h", "V0z"}, kindShared: {" 0v8h", "V0z"}, kindUntrained: {" 8v8h", "V8z"},
}

// run is a stretch of tokens of one kind.
type run struct {
	kind, start, end int
}

// kindsOf says of each token of a row what it is. What is trained says the mask, and the row's gate.
func kindsOf(row *export.Row) []uint8 {
	kinds := make([]uint8, len(row.InputIDs))
	each := func(spans [][2]int, f func(i int)) {
		for _, s := range spans {
			for i := max(s[0], 0); i < min(s[1], len(kinds)); i++ {
				f(i)
			}
		}
	}
	each(row.TurnSpans, func(i int) {
		kinds[i] = kindUntrained
		if row.Trainable && i < len(row.LossMask) && row.LossMask[i] == 1 {
			kinds[i] = kindTrained
		}
	})
	each(row.SharedSpans, func(i int) { kinds[i] = kindShared })
	return kinds
}

// runsOf cuts a row into its stretches.
func runsOf(row *export.Row) []run {
	var runs []run
	for i, kind := range kindsOf(row) {
		if k := len(runs) - 1; k >= 0 && runs[k].kind == int(kind) {
			runs[k].end = i + 1
		} else {
			runs = append(runs, run{int(kind), i, i + 1})
		}
	}
	return runs
}

// strip is a row drawn to scale: one path per kind, in units of tokens.
type strip struct {
	Paths  []stripPath
	Tokens int // width of the row
	Scale  int // width of the longest row, which all are measured against
	Label  string
}

type stripPath struct{ Kind, D string }

func stripOf(row *export.Row, scale int) *strip {
	s := &strip{Tokens: len(row.InputIDs), Scale: max(scale, 1)}
	var d [len(kindNames)][]byte
	var counts [len(kindNames)]int
	for _, r := range runsOf(row) {
		b := append(d[r.kind], 'M')
		b = strconv.AppendInt(b, int64(r.start), 10)
		shape := shapes[r.kind]
		b = append(b, shape.from...)
		b = strconv.AppendInt(b, int64(r.end-r.start), 10)
		d[r.kind] = append(b, shape.back...)
		counts[r.kind] += r.end - r.start
	}
	for kind, path := range d {
		if len(path) > 0 {
			s.Paths = append(s.Paths, stripPath{kindNames[kind], string(path)})
		}
	}
	s.Label = fmt.Sprintf("%s tokens: %s context, %s trained, %s shared, %s untrained", number(s.Tokens), number(counts[kindContext]),
		number(counts[kindTrained]), number(counts[kindShared]), number(counts[kindUntrained]))
	return s
}

// worst is the level of the findings that matters most, "" without any.
func worst(findings []validate.Finding) string {
	level := ""
	for _, f := range findings {
		switch {
		case f.Level == validate.Fatal:
			return "fatal"
		case f.Level == validate.Warn:
			level = "warn"
		case level == "":
			level = "info"
		}
	}
	return level
}
