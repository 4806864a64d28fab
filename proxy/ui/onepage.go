package ui

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"io"
	"math"

	"captureproxy/export"
)

// onePage is a document on one page.
type onePage struct {
	sessionPage
	StyleHash string // for the page's own Content-Security-Policy
	Omitted   string // what would have made the file too large
}

// Bounds of the one page, so that it stays one that can be sent to somebody.
const (
	maxOneTurns  = 400
	maxOneTokens = 40_000
)

// WritePage writes a document as one page that needs nothing else: no script, no other file, no server.
func WritePage(ctx context.Context, w io.Writer, doc *export.Rollout, engine func(*export.Rollout) Detokenize) error {
	docs := NewDocuments([]*export.Rollout{doc})
	u, err := New(Options{Source: docs, Engine: engine})
	if err != nil {
		return err
	}
	b, err := u.shelf.open(ctx, docs.keys[0])
	if err != nil {
		return err
	}
	l := links{inline: true, only: true}
	p := onePage{sessionPage: sessionPage{
		frame: u.frame("Session " + short(doc.SessionID, 44)), sessionView: u.sessionView(b, l), Steps: stepsOf(b, l, 0, math.MaxInt32),
	}}
	p.Inline, p.Style = true, template.CSS(u.style) //nolint:gosec // our own
	sum := sha256.Sum256([]byte(u.style))
	p.StyleHash = "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	p.Steps.Load, p.Steps.Batches = "", nil
	u.fillOnePage(ctx, b, l, &p)
	return u.templates.ExecuteTemplate(w, "onepage", p)
}

func (u *UI) fillOnePage(ctx context.Context, b *book, l links, p *onePage) {
	for i := range b.doc.Turns {
		if i >= maxOneTurns {
			p.Omitted = "The conversations of turns from " + number(i) + " on are left out: `capture-proxy view` shows them."
			break
		}
		// The turn before has the earlier messages; one that begins a conversation has them itself.
		from := 0
		if parent := b.turn(b.doc.Turns[i].ParentID); parent >= 0 {
			from = min(len(b.doc.Turns[parent].RequestMessages), len(b.doc.Turns[i].RequestMessages))
		}
		v := u.turnView(ctx, b, l, i, from)
		p.Turns = append(p.Turns, v)
		if r := u.ruptureOf(ctx, b, l, i); r != nil {
			p.Broken = append(p.Broken, r)
		}
	}
	room := maxOneTokens
	for k := range p.Rows {
		n := len(b.doc.Sequences[k].InputIDs)
		shown := min(n, room)
		room -= shown
		p.Tokens = append(p.Tokens, rowTokens{p.Rows[k], u.tokens(ctx, b, k, 0, shown), n - shown, u.decodedBy(ctx, b, k)})
	}
}
