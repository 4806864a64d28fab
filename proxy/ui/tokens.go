package ui

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"captureproxy/export"
)

// windowSize is how many tokens are loaded at once.
const windowSize = 512

// tokenWindow is a stretch of a row's tokens.
type tokenWindow struct {
	From, To int
	Load     string        // address of the tokens
	HTML     template.HTML // the tokens, "" when they are not here yet
	At       bool          // the one that was asked for
}

// windowsOf cuts a row into stretches; only the one around at is filled.
func (u *UI) windowsOf(ctx context.Context, b *book, l links, k, at int) []tokenWindow {
	n := len(b.doc.Sequences[k].InputIDs)
	var list []tokenWindow
	for from := 0; from < n; from += windowSize {
		w := tokenWindow{From: from, To: min(from+windowSize, n)}
		if w.At = at >= w.From && at < w.To; w.At {
			w.HTML = u.tokens(ctx, b, k, w.From, w.To)
		}
		if n > windowSize { // also of the one that is here: a page that scrolls far away gives it up
			w.Load = l.tokens(b.key, k, from)
		}
		list = append(list, w)
	}
	return list
}

// tokens renders tokens [from, to) of a row. It writes the markup itself: there are thousands of them on a page.
func (u *UI) tokens(ctx context.Context, b *book, k, from, to int) template.HTML {
	row := &b.doc.Sequences[k]
	from, to = max(from, 0), min(to, len(row.InputIDs))
	if from >= to {
		return ""
	}
	ids := row.InputIDs[from:to]
	texts, _ := u.decoder.pieces(ctx, b.doc, ids)
	kinds := kindsOf(row)[from:to]
	logprobs := logprobsOf(b, row, from, to)
	var out strings.Builder
	out.Grow(len(ids) * 96)
	for i, id := range ids {
		writeToken(&out, token{at: from + i, id: id, kind: int(kinds[i]), logprob: logprobs[i]}, textAt(texts, i))
	}
	return template.HTML(out.String()) //nolint:gosec // escaped piece by piece
}

type token struct {
	at      int
	id      int32
	kind    int
	logprob float64 // NaN for none
}

func textAt(texts []string, i int) string {
	if i < len(texts) {
		return texts[i]
	}
	return ""
}

func writeToken(out *strings.Builder, t token, text string) {
	out.WriteString(`<span class="t `)
	out.WriteString(kindNames[t.kind])
	if !math.IsNaN(t.logprob) {
		out.WriteString(" l")
		out.WriteString(strconv.Itoa(surprise(t.logprob)))
	}
	if text == "" {
		out.WriteString(" id")
	}
	out.WriteString(`" title="`)
	fmt.Fprintf(out, "%d: id %d, %s", t.at, t.id, kindNames[t.kind])
	if !math.IsNaN(t.logprob) {
		fmt.Fprintf(out, ", logprob %s, p %.3g", strconv.FormatFloat(t.logprob, 'g', 5, 64), math.Exp(t.logprob))
	}
	out.WriteString(`">`)
	if text == "" {
		out.WriteString(strconv.Itoa(int(t.id)))
	} else {
		writePiece(out, text)
	}
	out.WriteString("</span>")
}

// writePiece shows a token's text; spaces at its ends and line breaks are seen.
func writePiece(out *strings.Builder, s string) {
	s, _, rest := window(s, 0, 500)
	code := func(c string) {
		out.WriteString(`<span class="esc">`)
		out.WriteString(c)
		out.WriteString("</span>")
	}
	eachVisible(s, func(p string) {
		for {
			line, after, more := strings.Cut(p, "\n")
			template.HTMLEscape(out, []byte(line))
			if !more {
				return
			}
			out.WriteString("<i>↵</i>\n")
			p = after
		}
	}, code)
	if rest > 0 {
		out.WriteString("…")
	}
}

// surprise sorts logprobs into six classes.
func surprise(logprob float64) int {
	for i, limit := range [...]float64{-0.05, -0.3, -1, -2.5, -5} {
		if logprob >= limit {
			return i
		}
	}
	return 5
}

// logprobsOf are those of sampled tokens, of untrained ones too: the turns have them all.
func logprobsOf(b *book, row *export.Row, from, to int) []float64 {
	out := make([]float64, to-from)
	for i := range out {
		out[i] = math.NaN()
	}
	for _, id := range row.NodeIDs {
		i := b.turn(id)
		if i < 0 {
			continue
		}
		t := &b.doc.Turns[i]
		start, end := t.NPrompt, t.NPrompt+t.NSampled
		if end <= from || start >= to || len(t.SampledLogprobs) != t.NSampled {
			continue
		}
		for at := max(start, from); at < min(end, to); at++ {
			out[at-from] = t.SampledLogprobs[at-start]
		}
	}
	return out
}
