package ui

import (
	"context"
	"encoding/json"
	"html/template"
	"slices"
	"strconv"

	"captureproxy/export/show"
)

// rupture is a root that continues an earlier conversation although its tokens do not.
type rupture struct {
	Anchor        string
	Turn, Earlier int
	TurnHref      string
	EarlierHref   string
	Cause, What   string
	Avoid, Detail string
	Position      string // of the first token that differs, "" where there are no tokens to compare
	Left, Right   side   // the earlier turn, and the one that broke
	DecodedBy     string
}

// side is one of the two that are compared.
type side struct {
	Title    string
	Tokens   template.HTML
	Text     string // decoded
	Cut      bool   // more tokens follow
	End      bool   // there is nothing after the last common token
	Messages []message
}

// Sides are the two, for templates that show both alike.
func (r *rupture) Sides() []side { return []side{r.Left, r.Right} }

const (
	commonBefore  = 24
	differAfter   = 160
	differText    = 3000
	differMessage = 4
)

// ruptureOf compares a turn with the one that it continues, nil where there is nothing to compare.
func (u *UI) ruptureOf(ctx context.Context, b *book, l links, i int) *rupture {
	t := &b.doc.Turns[i]
	e := b.turn(t.Continues)
	if t.Break == nil || e < 0 {
		return nil
	}
	r := &rupture{
		Anchor: "break-" + strconv.Itoa(i), Turn: i, Earlier: e, TurnHref: l.turn(b.key, i), EarlierHref: l.turn(b.key, e),
		Cause: t.Break.Cause, Detail: t.Break.Detail,
	}
	r.What, r.Avoid = show.Cause(t.Break.Cause)
	r.Left.Title = "turn " + strconv.Itoa(e) + ", prompt and answer"
	r.Right.Title = "turn " + strconv.Itoa(i) + ", prompt"
	if t.Break.Position != nil {
		r.Position = number(*t.Break.Position)
		u.compareTokens(ctx, b, r, *t.Break.Position)
	}
	compareMessages(b, l, r)
	return r
}

func (u *UI) compareTokens(ctx context.Context, b *book, r *rupture, at int) {
	r.DecodedBy = u.fillSide(ctx, b, &r.Left, r.Earlier, at, b.doc.Turns[r.Earlier].NPrompt+b.doc.Turns[r.Earlier].NSampled)
	if by := u.fillSide(ctx, b, &r.Right, r.Turn, at, b.doc.Turns[r.Turn].NPrompt); by != "" {
		r.DecodedBy = by
	}
}

func (u *UI) fillSide(ctx context.Context, b *book, s *side, turn, at, end int) (by string) {
	row, _, _, ok := b.span(turn)
	if !ok {
		return ""
	}
	end = min(end, len(b.doc.Sequences[row].InputIDs))
	from, to := max(at-commonBefore, 0), min(at+differAfter, end)
	s.End, s.Cut = at >= end, to < end
	if from >= to {
		return ""
	}
	s.Tokens = u.tokens(ctx, b, row, from, min(at, to)) + `<b class="cut" title="from here on the two sides differ"></b>` + u.tokens(ctx, b, row, max(at, from), to)
	texts, by := u.decoder.pieces(ctx, b.doc, b.doc.Sequences[row].InputIDs[max(at, from):to])
	s.Text, _, _ = window(joined(texts), 0, differText)
	return by
}

// compareMessages shows both conversations from the first message that is not the same.
func compareMessages(b *book, l links, r *rupture) {
	was, now := &b.doc.Turns[r.Earlier], &b.doc.Turns[r.Turn]
	if was.RequestMessages == nil || now.RequestMessages == nil {
		return
	}
	left := slices.Clone(was.RequestMessages)
	if len(was.ResponseMessage) > 0 && string(was.ResponseMessage) != "null" {
		left = append(left, was.ResponseMessage)
	}
	k := 0
	for k < len(left) && k < len(now.RequestMessages) && sameMessage(left[k], now.RequestMessages[k]) {
		k++
	}
	fill := func(s *side, turn int, list []json.RawMessage) {
		for n := k; n < min(k+differMessage, len(list)); n++ {
			m := readMessage(list[n], n)
			if n == len(b.doc.Turns[turn].RequestMessages) {
				m.Number = -1
			}
			s.Messages = append(s.Messages, bounded(m, b, l, turn))
		}
	}
	fill(&r.Left, r.Earlier, left)
	fill(&r.Right, r.Turn, now.RequestMessages)
}

// sameMessage reports whether people would read the same.
func sameMessage(a, b json.RawMessage) bool {
	if string(a) == string(b) {
		return true
	}
	x, y := readMessage(a, 0), readMessage(b, 0)
	return x.Role == y.Role && x.Name == y.Name && slices.Equal(x.Parts, y.Parts)
}

func causeWords(cause string) (what, avoid string) { return show.Cause(cause) }
