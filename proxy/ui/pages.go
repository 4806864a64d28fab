package ui

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"

	"captureproxy/proxy/control"
)

func (u *UI) open(r *http.Request) (*book, error) {
	return u.shelf.open(r.Context(), r.PathValue("id"))
}

func (u *UI) sessionCrumb(b *book) crumb {
	return crumb{short(b.doc.SessionID, 44), u.links.session(b.key)}
}

func (u *UI) showSession(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	return u.sessionPage(w, b, false)
}

// showGraph is the graph of a session of many turns: for its page, or with the page around it for who has no scripts.
func (u *UI) showGraph(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	if r.Header.Get("HX-Request") == "" {
		return u.sessionPage(w, b, true)
	}
	return u.render(w, "graph", draw(b, u.links))
}

func (u *UI) sessionPage(w http.ResponseWriter, b *book, graph bool) (err error) {
	p := sessionPage{frame: u.frame("Session " + short(b.doc.SessionID, 44)), sessionView: u.sessionView(b, u.links), Steps: stepsOf(b, u.links, 0, stepsAtOnce)}
	if graph {
		p.Graph, p.GraphLoad = draw(b, u.links), ""
	}
	if p.State, err = stateOf(b); err != nil {
		return err
	}
	if p.sessionView.Running {
		p.Live = u.live(b.key)
	}
	return u.render(w, "session", p)
}

// stateOf changes when a session's page does.
func stateOf(b *book) (string, error) {
	version, err := versionOf(b.status)
	if err != nil {
		return "", err
	}
	return hashOf(fmt.Sprintf("%s %d", version, b.status.InFlight)), nil
}

// showLive is what moves on a session's page. Nothing is sent when nothing changed.
func (u *UI) showLive(w http.ResponseWriter, r *http.Request) error {
	status, err := u.source.Status(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	state, err := stateOf(&book{status: status})
	if err != nil {
		return err
	}
	if r.Header.Get("X-State") == state {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	b, err := u.open(r)
	if err != nil {
		return err
	}
	batches := min(max(len(r.URL.Query()["batch"]), 1), 1000) // what the page has loaded so far
	p := sessionPage{sessionView: u.sessionView(b, u.links), Steps: stepsOf(b, u.links, 0, batches*stepsAtOnce)}
	if p.State, err = stateOf(b); err != nil {
		return err
	}
	if p.sessionView.Running {
		p.Live = u.live(b.key)
	}
	return u.render(w, "live", p)
}

func (u *UI) showSteps(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	steps := stepsOf(b, u.links, queryInt(r, "from", 0), stepsAtOnce)
	if r.Header.Get("HX-Request") == "" { // who has no scripts turns pages
		return u.render(w, "turnspage", struct {
			frame
			Steps stepPage
		}{u.frame("Turns", u.sessionCrumb(b)), steps})
	}
	return u.render(w, "steps", steps)
}

// turnPage is the page of a turn.
type turnPage struct {
	frame
	*turnView
}

func (u *UI) showTurn(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	i, err := numbered(r, len(b.doc.Turns), "turn")
	if err != nil {
		return err
	}
	from := queryInt(r, "from", max(len(b.doc.Turns[i].RequestMessages)-shownBefore, 0))
	p := turnPage{frame: u.frame(fmt.Sprintf("Turn %d", i), u.sessionCrumb(b)), turnView: u.turnView(r.Context(), b, u.links, i, from)}
	return u.render(w, "turn", p)
}

// showMessages are earlier messages of a turn.
func (u *UI) showMessages(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	i, err := numbered(r, len(b.doc.Turns), "turn")
	if err != nil {
		return err
	}
	from, to := queryInt(r, "from", 0), queryInt(r, "to", math.MaxInt32)
	return u.render(w, "messages", converse(b, u.links, i, max(from, to-4*moreMessages), to, false))
}

// showText is the next piece of a long text.
func (u *UI) showText(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	i, err := numbered(r, len(b.doc.Turns), "turn")
	if err != nil {
		return err
	}
	p, ok := further(b, u.links, i, queryInt(r, "m", -2), queryInt(r, "p", -1), queryInt(r, "from", 0))
	if !ok {
		return &control.Error{Status: http.StatusNotFound, Message: "there is no more of this text"}
	}
	if r.Header.Get("HX-Request") == "" {
		return u.render(w, "textpage", struct {
			frame
			part
		}{u.frame("Text", u.sessionCrumb(b), crumb{fmt.Sprintf("Turn %d", i), u.links.turn(b.key, i)}), p})
	}
	return u.render(w, "further", p)
}

// breakPage compares the two sides of a break.
type breakPage struct {
	frame
	*rupture
}

func (u *UI) showBreak(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	i, err := numbered(r, len(b.doc.Turns), "turn")
	if err != nil {
		return err
	}
	rupture := u.ruptureOf(r.Context(), b, u.links, i)
	if rupture == nil {
		return &control.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("turn %d continues no earlier conversation, or extends it without a break", i)}
	}
	f := u.frame("Break", u.sessionCrumb(b), crumb{fmt.Sprintf("Turn %d", i), u.links.turn(b.key, i)})
	return u.render(w, "break", breakPage{f, rupture})
}

// rowPage shows a row's tokens.
type rowPage struct {
	frame
	rowView
	Windows   []tokenWindow
	DecodedBy string
	Why       string // nothing can decode
	Jump      []jump
	At        int
}

// jump leads to the tokens of a turn.
type jump struct {
	Label, Href string
}

func (u *UI) showRow(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	k, err := numbered(r, len(b.doc.Sequences), "row")
	if err != nil {
		return err
	}
	at := queryInt(r, "at", 0)
	row := rowsOf(b, u.links)[k]
	row.Strip = stripOf(&b.doc.Sequences[k], row.Tokens)
	p := rowPage{frame: u.frame(fmt.Sprintf("Row %d", k), u.sessionCrumb(b)), rowView: row, Windows: u.windowsOf(r.Context(), b, u.links, k, at), At: at}
	p.DecodedBy = u.decodedBy(r.Context(), b, k)
	p.Jump = jumpsOf(b, u.links, k)
	return u.render(w, "row", p)
}

const maxJumps = 60

func jumpsOf(b *book, l links, k int) []jump {
	var list []jump
	ids := b.doc.Sequences[k].NodeIDs
	every := (len(ids) + maxJumps - 1) / maxJumps
	for n, id := range ids {
		if i := b.turn(id); i >= 0 && n%max(every, 1) == 0 {
			list = append(list, jump{fmt.Sprint(i), l.row(b.key, k, b.doc.Turns[i].NPrompt)})
		}
	}
	return list
}

// maxAsked bounds a stretch of tokens that is asked for by its ends.
const maxAsked = 2 * windowSize

func (u *UI) showTokens(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	k, err := numbered(r, len(b.doc.Sequences), "row")
	if err != nil {
		return err
	}
	from := max(queryInt(r, "from", 0), 0)
	to := min(max(queryInt(r, "to", from+windowSize), from), from+maxAsked)
	return u.render(w, "tokens", struct{ HTML template.HTML }{u.tokens(r.Context(), b, k, from, to)})
}

func (u *UI) showStrip(w http.ResponseWriter, r *http.Request) error {
	b, err := u.open(r)
	if err != nil {
		return err
	}
	k, err := numbered(r, len(b.doc.Sequences), "row")
	if err != nil {
		return err
	}
	longest := 1
	for i := range b.doc.Sequences {
		longest = max(longest, len(b.doc.Sequences[i].InputIDs))
	}
	return u.render(w, "strip", stripOf(&b.doc.Sequences[k], longest))
}

func (u *UI) closeSession(w http.ResponseWriter, r *http.Request) error {
	return u.end(w, r, func(ctx context.Context, id string) error { return u.actor.Close(ctx, id) })
}

func (u *UI) cancelSession(w http.ResponseWriter, r *http.Request) error {
	return u.end(w, r, func(ctx context.Context, id string) error { return u.actor.Cancel(ctx, id, "cancelled by hand") })
}

// end ends a session and goes to its page.
func (u *UI) end(w http.ResponseWriter, r *http.Request, how func(context.Context, string) error) error {
	if u.actor == nil {
		return &control.Error{Status: http.StatusMethodNotAllowed, Message: "these are documents on disk: nothing of them is running"}
	}
	if err := how(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	http.Redirect(w, r, u.links.session(r.PathValue("id")), http.StatusSeeOther)
	return nil
}
