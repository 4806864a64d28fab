package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"captureproxy/proxy/control"
)

// policy lets a page use this origin's own files and nothing else: even a text that broke out of its place could neither run,
// nor load, nor send anything.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

const (
	cookieName = "capture_proxy_ui"
	cookieLife = 24 * time.Hour
	maxLogins  = 1000
	// maxWrong is how many wrong keys may be tried in a row; one more may be for each wrongEvery that passes.
	maxWrong   = 20
	wrongEvery = 2 * time.Second
)

// guard decides who may see the pages. Whoever has logged in holds a cookie with a random token; the key itself is in none.
type guard struct {
	isKey    func(string) bool // nil when no key is needed
	loopback bool
	public   string
	secure   bool
	now      func() time.Time

	mu     sync.Mutex
	logins map[[sha256.Size]byte]time.Time // hashes of tokens, and until when they hold
	// wrongUntil is when the wrong keys so far are forgotten, each of which put it off by wrongEvery: one number for all
	// who guess, since an address of its own costs an attacker nothing.
	wrongUntil time.Time
}

func newGuard(isKey func(string) bool, loopback bool, public string, secure bool) *guard {
	return &guard{isKey: isKey, loopback: loopback, public: public, secure: secure, now: time.Now, logins: map[[sha256.Size]byte]time.Time{}}
}

func (g *guard) headers(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store") // ids of sessions are keys
}

// checkOrigin keeps pages of other origins out, as the control API does. A POST must come from one of these pages or from
// no page at all.
func (g *guard) checkOrigin(r *http.Request) error {
	return control.CheckOrigin(r, g.loopback, g.public)
}

// admits reports whether a request may see what needs the key.
func (g *guard) admits(r *http.Request) bool {
	if g.isKey == nil {
		return true
	}
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && g.isKey(strings.TrimSpace(key)) {
		return true
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	token := sha256.Sum256([]byte(c.Value))
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.logins[token]
	return ok && g.now().Before(until)
}

// try says whether a key is the right one, and whether so many were wrong lately that this one was not even looked at. Whoever
// has the key can still send it as a bearer's.
func (g *guard) try(key string) (right bool, wait time.Duration) {
	if g.isKey == nil {
		return true, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if again := g.wrongUntil.Add(-(maxWrong - 1) * wrongEvery); now.Before(again) {
		return false, again.Sub(now)
	}
	if g.isKey(key) {
		return true, 0
	}
	if g.wrongUntil.Before(now) {
		g.wrongUntil = now
	}
	g.wrongUntil = g.wrongUntil.Add(wrongEvery)
	return false, 0
}

// open makes a token for somebody who knew the key.
func (g *guard) open() *http.Cookie {
	value := rand.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for token, until := range g.logins {
		if len(g.logins) >= maxLogins || now.After(until) {
			delete(g.logins, token)
		}
	}
	g.logins[sha256.Sum256([]byte(value))] = now.Add(cookieLife)
	return g.cookie(value, int(cookieLife.Seconds()))
}

func (g *guard) close(r *http.Request) *http.Cookie {
	if c, err := r.Cookie(cookieName); err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.logins, sha256.Sum256([]byte(c.Value)))
	}
	return g.cookie("", -1)
}

func (g *guard) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/ui/", MaxAge: age, HttpOnly: true, Secure: g.secure, SameSite: http.SameSiteStrictMode}
}

// loginPage asks for the key.
type loginPage struct {
	frame
	Next  string
	Wrong bool
	Later bool // too many wrong keys came lately
}

// askLogin sends a person to the form, and tells a script that it is not logged in.
func (u *UI) askLogin(w http.ResponseWriter, r *http.Request) {
	to := "/ui/login?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	if r.Header.Get("HX-Request") != "" {
		w.Header().Set("HX-Redirect", "/ui/login")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet {
		to = "/ui/login"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (u *UI) showLogin(w http.ResponseWriter, r *http.Request) error {
	next := nextOf(r.URL.Query().Get("next"))
	if u.guard.admits(r) {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	f := u.frame("Log in")
	f.Login = false
	return u.render(w, "login", loginPage{frame: f, Next: next})
}

// maxForm bounds a login.
const maxForm = 64 << 10

func (u *UI) login(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &control.Error{Status: http.StatusBadRequest, Message: "the form could not be read"}
	}
	next := nextOf(r.PostForm.Get("next"))
	if right, wait := u.guard.try(strings.TrimSpace(r.PostForm.Get("key"))); !right {
		f := u.frame("Log in")
		f.Login = false
		status := http.StatusUnauthorized
		if wait > 0 {
			status = http.StatusTooManyRequests
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		}
		w.WriteHeader(status)
		return u.render(w, "login", loginPage{frame: f, Next: next, Wrong: wait == 0, Later: wait > 0})
	}
	http.SetCookie(w, u.guard.open())
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

func (u *UI) logout(w http.ResponseWriter, r *http.Request) error {
	http.SetCookie(w, u.guard.close(r))
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
	return nil
}

// nextOf is where to go after a login: one of these pages, and nowhere else.
func nextOf(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/ui/") || strings.Contains(next, "\\") || strings.HasPrefix(u.Path, "/ui/log") {
		return "/ui/"
	}
	return next
}

// hashOf is a short name for a long text.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
