// Package ui serves pages about sessions to people: the list as it moves, a session's graph and rows, its turns as
// conversations, their tokens, and why a conversation broke. It is one http.Handler for everything below /ui/:
//
//	pages, err := ui.New(ui.Options{Source: ui.NewLive(api), URL: "http://127.0.0.1:8100"})
//	mux.Handle("/ui/", pages)
//
// Pages are rendered on the server (templates/), with a little script for what moves (static/, all of it embedded; nothing
// comes from elsewhere). What they show is what the control API and the document say, looked up in a [Source]: there is
// no rule of its own here, only words and pictures. [WritePage] makes one file of a document that opens from disk.
//
// A page is a file here: what it looks up (index.go, session.go, turn.go, tokens.go, breaks.go, group.go) and a template
// of the same name. Everything in a document is foreign text; text.go and html/template see to it that it stays text, and
// the Content-Security-Policy in guard.go holds even if they failed.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/proxy/control"
	"captureproxy/proxy/events"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

//go:embed templates static
var files embed.FS

// Options are what pages are made of.
type Options struct {
	Source Source
	// URL is how the proxy is reached, for commands to copy.
	URL string
	// IsKey tells the admin's key from others, nil for pages that need none.
	IsKey func(string) bool
	// Loopback says that only this machine reaches the listener, Public is a host name that leads to it all the same.
	Loopback bool
	Public   string
	// Secure says that the pages are reached over TLS, by way of whatever stands in front.
	Secure bool
	// Events is where changes can be followed, nil for documents that stand still.
	Events *events.Hub
	// Engine finds the tokenizer of a document's engine, nil where none can be asked.
	Engine func(doc *export.Rollout) Detokenize
	Logger *zap.Logger
}

// UI serves the pages.
type UI struct {
	source    Source
	actor     Actor // nil for documents
	shelf     *shelf
	decoder   *decoder
	guard     *guard
	events    *events.Hub
	templates *template.Template
	style     string
	asset     string // a hash of the static files, so that browsers may keep them
	url       string
	key       bool
	links     links
	logger    *zap.Logger
	now       func() time.Time
	mux       *http.ServeMux
}

// New returns the pages.
func New(o Options) (*UI, error) {
	u := &UI{
		source: o.Source, shelf: &shelf{source: o.Source}, decoder: newDecoder(o.Engine), events: o.Events, url: o.URL, key: o.IsKey != nil,
		logger: o.Logger, now: time.Now, mux: http.NewServeMux(),
	}
	u.actor, _ = o.Source.(Actor) //nolint:errcheck // documents are none
	if u.logger == nil {
		u.logger = zap.NewNop()
	}
	u.guard = newGuard(o.IsKey, o.Loopback, o.Public, o.Secure)
	if err := u.load(); err != nil {
		return nil, err
	}
	u.routes()
	return u, nil
}

// load parses what is embedded.
func (u *UI) load() error {
	style, err := files.ReadFile("static/style.css")
	if err != nil {
		return err
	}
	u.style = string(style)
	sum := sha256.New()
	err = fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		sum.Write(content) //nolint:errcheck // a hash takes everything
		return err
	})
	if err != nil {
		return err
	}
	u.asset = hex.EncodeToString(sum.Sum(nil))[:16]
	u.templates, err = template.New("").Funcs(u.functions()).ParseFS(files, "templates/*.html")
	return err
}

func (u *UI) routes() {
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /ui/{$}":                              u.showIndex,
		"GET /ui/list":                             u.showList,
		"GET /ui/group":                            u.showGroup,
		"GET /ui/sessions/{id}":                    u.showSession,
		"GET /ui/sessions/{id}/live":               u.showLive,
		"GET /ui/sessions/{id}/graph":              u.showGraph,
		"GET /ui/sessions/{id}/turns":              u.showSteps,
		"GET /ui/sessions/{id}/turns/{n}":          u.showTurn,
		"GET /ui/sessions/{id}/rows/{n}":           u.showRow,
		"GET /ui/events":                           u.follow,
		"POST /ui/sessions/{id}/close":             u.closeSession,
		"POST /ui/sessions/{id}/cancel":            u.cancelSession,
		"POST /ui/logout":                          u.logout,
		"GET /ui/sessions/{id}/rows/{n}/strip":     u.showStrip,
		"GET /ui/sessions/{id}/rows/{n}/tokens":    u.showTokens,
		"GET /ui/sessions/{id}/turns/{n}/text":     u.showText,
		"GET /ui/sessions/{id}/turns/{n}/messages": u.showMessages,
		"GET /ui/sessions/{id}/turns/{n}/break":    u.showBreak,
	} {
		u.mux.Handle(pattern, u.serve(handle, true))
	}
	u.mux.Handle("GET /ui/login", u.serve(u.showLogin, false))
	u.mux.Handle("POST /ui/login", u.serve(u.login, false))
	u.mux.Handle("GET /ui/static/{hash}/{name}", u.serve(u.showStatic, false))
	u.mux.Handle("/ui/", u.serve(func(_ http.ResponseWriter, r *http.Request) error {
		return &control.Error{Status: http.StatusNotFound, Message: "there is no such page: " + plain(r.URL.Path)}
	}, true))
	u.mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusSeeOther))
}

func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) { u.mux.ServeHTTP(w, r) }

// serve makes a handler of a page: who may see it, and what goes wrong, is settled here.
func (u *UI) serve(handle func(http.ResponseWriter, *http.Request) error, closed bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.guard.headers(w.Header())
		err := u.guard.checkOrigin(r)
		if err == nil && closed && !u.guard.admits(r) {
			u.askLogin(w, r)
			return
		}
		if err == nil {
			err = handle(w, r)
		}
		if err != nil {
			u.fail(w, r, err)
		}
	})
}

// errorPage says what went wrong and what to do.
type errorPage struct {
	frame
	Status  int
	Message string
}

func (u *UI) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil { // nobody is there any more
		return
	}
	p := errorPage{frame: u.frame("Not possible"), Status: http.StatusInternalServerError, Message: "The proxy could not put this page together. Its log says why."}
	var known *control.Error
	switch {
	case errors.As(err, &known):
		p.Status, p.Message = known.Status, known.Message
	case errors.Is(err, session.ErrUnknown) || errors.Is(err, store.ErrNotFound):
		p.Status, p.Message = http.StatusNotFound, "no session has this id: it may have been deleted"
	default:
		u.logger.Error("a page could not be made", zap.Error(err))
	}
	if p.Status == http.StatusNotFound {
		p.Title = "Not found"
	}
	var out bytes.Buffer
	if err := u.templates.ExecuteTemplate(&out, "error", p); err != nil {
		u.logger.Error("a page could not be made", zap.Error(err))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	w.Write(out.Bytes()) //nolint:errcheck // the client may be gone
}

// frame is what every page has around it.
type frame struct {
	Title  string
	Crumbs []crumb
	Asset  string
	Style  template.CSS // on the one page
	Inline bool
	Login  bool   // somebody may log out
	Live   string // address of the events that move this page, "" for none
	Files  bool
}

type crumb struct{ Name, Href string }

func (u *UI) frame(title string, crumbs ...crumb) frame {
	return frame{Title: title, Crumbs: crumbs, Asset: u.asset, Login: u.key, Files: u.actor == nil}
}

func (u *UI) live(session string) string {
	if u.events == nil {
		return ""
	}
	if session != "" {
		return "/ui/events?session=" + session
	}
	return "/ui/events"
}

// render writes a page, or a part of one, whole or not at all.
func (u *UI) render(w http.ResponseWriter, name string, data any) error {
	var out bytes.Buffer
	if err := u.templates.ExecuteTemplate(&out, name, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(out.Bytes()) //nolint:errcheck // the client may be gone
	return nil
}

func (u *UI) functions() template.FuncMap {
	return template.FuncMap{
		"text": text, "number": number, "lower": strings.ToLower,
		"plain":  func(v any) string { return plain(wordOf(v)) },
		"short":  func(v any, n int) string { return short(wordOf(v), n) },
		"static": func(name string) string { return "/ui/static/" + u.asset + "/" + name },
		"pct":    func(part, whole int) string { return percent(100 * float64(part) / float64(max(whole, 1))) },
		"add":    func(a, b int) int { return a + b },
		"anchor": func(prefix string, n int) string { return prefix + strconv.Itoa(n) },
		"list":   func(s ...string) []string { return s },
	}
}

// wordOf takes the text out of strings, pointers to them, and the closed vocabularies that are strings.
func wordOf(v any) string {
	r := reflect.Indirect(reflect.ValueOf(v))
	if r.IsValid() && r.Kind() == reflect.String {
		return r.String()
	}
	return fmt.Sprint(v)
}

// showStatic serves what is embedded. Its address changes with its content.
func (u *UI) showStatic(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	content, err := files.ReadFile("static/" + path.Base(name))
	if err != nil || r.PathValue("hash") != u.asset {
		return &control.Error{Status: http.StatusNotFound, Message: "there is no such file: reload the page"}
	}
	kind := "text/plain; charset=utf-8"
	switch path.Ext(name) {
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	w.Write(content) //nolint:errcheck // the client may be gone
	return nil
}

// numbered reads a number out of a path, which must be that of one of n things.
func numbered(r *http.Request, n int, what string) (int, error) {
	i, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || i < 0 || i >= n {
		return 0, &control.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("this session has no %s %s", what, plain(r.PathValue("n")))}
	}
	return i, nil
}

// queryInt reads a number that may be absent.
func queryInt(r *http.Request, name string, absent int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < -1 || n > math.MaxInt32 {
		return absent
	}
	return n
}
