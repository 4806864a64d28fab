package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "the-admin-key"

func locked(t *testing.T, o Options) *UI {
	t.Helper()
	o.Source, o.Loopback = NewDocuments(documents(t)), true
	o.IsKey = func(key string) bool { return key == secret }
	return newUI(t, o)
}

// send makes a request of any kind. Headers come as pairs.
func send(h http.Handler, method, path, body string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8100"
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	u := locked(t, Options{})
	for _, path := range []string{"/ui/", "/ui/login", "/ui/nowhere", "/ui/static/x/y", "/ui/sessions/x", "/ui/static/" + u.asset + "/app.js"} {
		got := get(t, u, path).Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the policy %q lacks %s", path, got, want)
			}
		}
		if strings.Contains(got, "unsafe") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestPagesHaveNothingInline(t *testing.T) {
	u := newUI(t, Options{Source: NewDocuments(documents(t)), Loopback: true})
	for _, path := range []string{"/ui/", key("s1"), key("s1") + "/turns/5", key("s1") + "/rows/2", key("s1") + "/turns/5/break", "/ui/group?id=g8"} {
		got := page(t, u, path)
		for _, bad := range []string{"<style", " style=", "<script>", "onclick", "javascript:", "http://www", "https://"} {
			if strings.Contains(got, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
}

func TestLogin(t *testing.T) {
	u := locked(t, Options{})
	for _, path := range []string{"/ui/", "/ui/list", "/ui/events", key("s1"), key("s1") + "/turns/0", key("s1") + "/rows/0/tokens", "/ui/group?id=g8"} {
		resp := get(t, u, path)
		if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), "/ui/login") {
			t.Errorf("%s without a login: %s to %q", path, resp.Status, resp.Header.Get("Location"))
		}
	}
	if resp := get(t, u, "/ui/list", "HX-Request", "true"); resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("HX-Redirect") == "" {
		t.Errorf("a part of a page without a login: %s", resp.Status)
	}
	for _, wrong := range []string{"", "wrong", secret + "x"} {
		if resp := send(u, "POST", "/ui/login", url.Values{"key": {wrong}}.Encode()); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) != 0 {
			t.Errorf("the key %q: %s, %v", wrong, resp.Status, resp.Cookies())
		}
	}
	resp := send(u, "POST", "/ui/login", url.Values{"key": {secret}, "next": {key("s1")}}.Encode())
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != key("s1") || len(cookies) != 1 {
		t.Fatalf("the right key: %s to %q with %v", resp.Status, resp.Header.Get("Location"), cookies)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/ui/" || strings.Contains(c.Value, secret) || len(c.Value) < 26 {
		t.Errorf("the cookie is %+v", c)
	}
	cookie := c.Name + "=" + c.Value
	page(t, u, "/ui/", "Cookie", cookie)
	if resp := get(t, u, "/ui/", "Cookie", c.Name+"="+secret); resp.StatusCode == http.StatusOK {
		t.Error("the key itself is a cookie")
	}
	page(t, u, "/ui/", "Authorization", "Bearer "+secret)
	if resp := get(t, u, "/ui/", "Authorization", "Bearer s1"); resp.StatusCode == http.StatusOK {
		t.Error("a session's key opens the pages")
	}
	send(u, "POST", "/ui/logout", "", "Cookie", cookie)
	if resp := get(t, u, "/ui/", "Cookie", cookie); resp.StatusCode == http.StatusOK {
		t.Error("the cookie works after a logout")
	}
}

func TestLoginsEnd(t *testing.T) {
	u := locked(t, Options{})
	cookie := u.guard.open()
	u.guard.now = func() time.Time { return time.Now().Add(cookieLife + time.Minute) }
	if resp := get(t, u, "/ui/", "Cookie", cookie.Name+"="+cookie.Value); resp.StatusCode == http.StatusOK {
		t.Error("a login of yesterday still works")
	}
	for range 3 * maxLogins {
		u.guard.open()
	}
	if n := len(u.guard.logins); n > maxLogins {
		t.Errorf("%d logins are kept", n)
	}
}

// Keys cannot be guessed faster than one every other second, however many ask at once; the right one works again after a moment.
func TestGuessing(t *testing.T) {
	u := locked(t, Options{})
	now := time.Now()
	u.guard.now = func() time.Time { return now }
	form := func(key string) string { return url.Values{"key": {key}}.Encode() }
	var looked, later atomic.Int64
	var all sync.WaitGroup
	for n := range 5 * maxWrong {
		all.Go(func() {
			switch resp := send(u, "POST", "/ui/login", form(fmt.Sprint("guess-", n))); resp.StatusCode {
			case http.StatusUnauthorized:
				looked.Add(1)
			case http.StatusTooManyRequests:
				later.Add(1)
				if resp.Header.Get("Retry-After") == "" {
					t.Error("nobody says when to come back")
				}
			}
		})
	}
	all.Wait()
	if looked.Load() != maxWrong || later.Load() != 4*maxWrong {
		t.Errorf("%d keys were looked at, %d not", looked.Load(), later.Load())
	}
	if resp := send(u, "POST", "/ui/login", form(secret)); resp.StatusCode != http.StatusTooManyRequests || len(resp.Cookies()) > 0 {
		t.Errorf("the right key among guesses: %s", resp.Status)
	}
	page(t, u, "/ui/", "Authorization", "Bearer "+secret)
	now = now.Add(wrongEvery)
	if resp := send(u, "POST", "/ui/login", form("wrong")); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a guess after a moment: %s", resp.Status)
	}
	if resp := send(u, "POST", "/ui/login", form("wrong")); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("another one: %s", resp.Status)
	}
	now = now.Add(wrongEvery)
	if resp := send(u, "POST", "/ui/login", form(secret)); resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		t.Errorf("the right key after a moment: %s", resp.Status)
	}
}

func TestSecureCookie(t *testing.T) {
	if u := locked(t, Options{Secure: true}); !u.guard.open().Secure {
		t.Error("a cookie of a TLS address goes over plain HTTP too")
	}
}

func TestNextLeadsNowhereElse(t *testing.T) {
	for _, next := range []string{"", "https://evil.example/ui/", "//evil.example/ui/", "/sessions", `/ui/\evil`, "/ui/login", "/ui/logout", "javascript:alert(1)", "ui/"} {
		if got := nextOf(next); got != "/ui/" {
			t.Errorf("after a login %q leads to %q", next, got)
		}
	}
	if got := nextOf("/ui/sessions/s?x=1"); got != "/ui/sessions/s?x=1" {
		t.Errorf("a page of ours becomes %q", got)
	}
}

func TestOtherSitesCanDoNothing(t *testing.T) {
	u := newUI(t, Options{Source: NewDocuments(documents(t)), Loopback: true})
	for _, header := range [][]string{
		{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"},
	} {
		for _, path := range []string{key("s1") + "/close", key("s1") + "/cancel", "/ui/login", "/ui/logout"} {
			if resp := send(u, "POST", path, "key=x", header...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%v may POST %s: %s", header, path, resp.Status)
			}
		}
	}
	if resp := send(u, "GET", "/ui/", "", "Host", "evil.example:8100"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a name that leads here is answered: %s", resp.Status)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		if resp := send(u, method, key("s1")+"/close", ""); resp.StatusCode < 400 {
			t.Errorf("%s closes a session: %s", method, resp.Status)
		}
	}
}
