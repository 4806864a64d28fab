package show

import (
	"fmt"
	"io"
	"strings"

	"captureproxy/export"
)

// Decode turns token ids into their text. An error means that nobody can.
type Decode func(ids []int32) (string, error)

// Text writes each row as text, in the stretches that were given as context and those that are trained on. Where the ids
// cannot be decoded they are written themselves.
func Text(w io.Writer, r *export.Rollout, decode Decode) error {
	p := &printer{w: w}
	for i := range r.Sequences {
		s := &r.Sequences[i]
		p.linef("row %d of %d · %s · %s", i+1, len(r.Sequences), s.Role, count(len(s.InputIDs), "token"))
		if len(s.InputIDs) == 0 {
			p.linef("  no token ids: the row has messages only")
		}
		for from := 0; from < len(s.InputIDs); {
			to := from + 1
			for to < len(s.InputIDs) && s.LossMask[to] == s.LossMask[from] && (from >= s.PromptLen) == (to >= s.PromptLen) {
				to++
			}
			kind := "context"
			switch {
			case s.LossMask[from] == 1:
				kind = "trained"
			case from < s.PromptLen:
				kind = "prompt"
			}
			p.linef("── %s %d–%d ──", kind, from, to-1)
			p.linef("%s", stretch(s.InputIDs[from:to], decode))
			from = to
		}
	}
	return p.err
}

// stretch is the text of ids; control characters are shown, line ends kept.
func stretch(ids []int32, decode Decode) string {
	text, err := decode(ids)
	if err != nil {
		return fmt.Sprint(ids)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = clean(line)
	}
	return strings.Join(lines, "\n")
}
