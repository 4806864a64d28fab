//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"captureproxy/export"
)

// shownDocuments are a demo's, and those of the repository: forked, retried and broken sessions, a group, an eval.
func shownDocuments(t *testing.T) []string {
	t.Helper()
	demo := filepath.Join(t.TempDir(), "demo.json")
	if out, code := command(t, nil, binary, "demo", "--out", demo); code != 0 {
		t.Fatal(out)
	}
	files, err := filepath.Glob("../../export/format/testdata/rollouts/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	return append(files, "../../export/testdata/rollout.json", demo, evalDocument(t))
}

// evalDocument plays a session of purpose eval.
func evalDocument(t *testing.T) string {
	t.Helper()
	p := serve(t, "--upstream", fakeEngine(t, "--reasoning"), "--data", t.TempDir())
	var created struct {
		ID string `json:"session_id"`
	}
	if err := json.Unmarshal(p.control(t, http.MethodPost, "/sessions", `{"purpose":"eval","env":{"id":"swe","name":"swe-mini"}}`), &created); err != nil {
		t.Fatal(err)
	}
	talk(t, p, created.ID, []message{{Role: "user", Content: "Say hello."}})
	file := filepath.Join(t.TempDir(), "eval.json")
	text := p.control(t, http.MethodPost, "/sessions/"+created.ID+"/close?include_messages=true&include_discarded=true", `{"reward":0.5}`)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPagesOfDocuments opens every page of documents on disk, on a wide screen and on a phone.
func TestPagesOfDocuments(t *testing.T) {
	t.Parallel()
	origin := strings.TrimSuffix(start(t, nil, binary, append([]string{"view"}, shownDocuments(t)...)...).line(t, `^(http://\S+)$`), "/ui/")
	b := newBrowser(t)
	seen, todo := map[string]bool{}, []string{origin + "/ui/"}
	kinds := map[string]bool{}
	for len(todo) > 0 {
		address := todo[0]
		todo = todo[1:]
		b.open(t, address)
		for _, d := range []device{devices[0], devices[3]} {
			b.hold(t, d)
			b.fits(t, address+" "+d.name)
		}
		b.quiet(t, address)
		kinds[kindOf(address)] = true
		for _, next := range b.links(t) {
			next, _, _ = strings.Cut(next, "#")
			// One page of each kind per session, and not every window of tokens: the others differ in their numbers only.
			same := kindOf(next) + sessionOf(next)
			if strings.HasPrefix(next, origin) && !seen[same] && !strings.Contains(next, "/static/") && !strings.Contains(next, "at=") {
				seen[same] = true
				todo = append(todo, next)
			}
		}
	}
	for _, kind := range []string{"index", "session", "turn", "row", "break", "group"} {
		if !kinds[kind] {
			t.Errorf("no page of kind %s was found", kind)
		}
	}
	b.check(t, origin)
}

func kindOf(address string) string {
	switch {
	case strings.HasSuffix(address, "/break"):
		return "break"
	case strings.Contains(address, "/turns/"):
		return "turn"
	case strings.Contains(address, "/rows/"):
		return "row"
	case strings.Contains(address, "/sessions/"):
		return "session"
	case strings.Contains(address, "/group?"):
		return "group"
	case strings.Contains(address, "open="):
		return "unfolded"
	}
	return "index"
}

func sessionOf(address string) string {
	_, rest, _ := strings.Cut(address, "/sessions/")
	id, _, _ := strings.Cut(rest, "/")
	return id
}

// TestPagesMove watches sessions as they run: new turns come by themselves, close and cancel work.
func TestPagesMove(t *testing.T) {
	t.Parallel()
	p := serve(t, "--upstream", fakeEngine(t, "--per-token", "5ms"), "--data", t.TempDir())
	id, other := p.session(t), p.session(t)
	list, b := newBrowser(t), newBrowser(t)
	list.open(t, p.url+"/ui/")
	b.open(t, p.url+"/ui/sessions/"+id)
	b.see(t, "no call has been recorded yet")
	pages := b.loaded()

	messages := []message{{Role: "user", Content: "Say hello."}}
	messages = append(messages, talk(t, p, id, messages), message{Role: "user", Content: "And once more."})
	b.until(t, "the first turn", func() bool { return count(t, b, "#turns .step.agent") == 1 })
	talk(t, p, id, messages)
	b.until(t, "the second turn", func() bool { return count(t, b, "#turns .step.agent") == 2 })
	list.until(t, "the list to count two turns", func() bool { return cell(t, list, id, "turns") == "2" })
	if b.loaded() != pages || list.loaded() != 1 {
		t.Errorf("pages were loaded again: %d, and the list %d times", b.loaded()-pages, list.loaded())
	}

	b.do(t, "close", chromedp.Click(`form[action$="/close"] button`))
	b.see(t, "completed")
	if got := p.rollout(t, id); string(got.Status) != "completed" {
		t.Errorf("the session is %s after a click on Close", got.Status)
	}

	held := make(chan struct{})
	go func() { // a call that is under way when its session is cancelled
		defer close(held)
		req, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"[[fault: slow 60000]]"}]}`))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+other)
		req.Header.Set("Content-Type", "application/json")
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close() //nolint:errcheck // cancelled
		}
	}()
	list.until(t, "the list to show a call in flight", func() bool { return cell(t, list, other, "in flight") == "1" })
	list.do(t, "cancel", chromedp.Click(`form[action$="/`+other+`/cancel"] button`))
	list.see(t, "cancelled by hand")
	<-held
	if got := p.rollout(t, other); string(got.Status) != "cancelled" {
		t.Errorf("the session is %s after a click on Cancel", got.Status)
	}
	b.check(t, p.url)
	list.check(t, p.url)
}

func count(t *testing.T, b *browser, selector string) int {
	t.Helper()
	var n int
	b.do(t, selector, chromedp.Evaluate(`document.querySelectorAll(`+quoted(selector)+`).length`, &n))
	return n
}

// cell reads a number out of the list's row of a session.
func cell(t *testing.T, b *browser, id, label string) string {
	t.Helper()
	var text string
	b.do(t, label, chromedp.Evaluate(`(document.getElementById(`+quoted("to-"+id)+`)?.closest("tr").querySelector('[data-label="`+label+`"]')?.innerText ?? "").trim()`, &text))
	return text
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is JSON
	}
	return string(text)
}

// TestPagesNeedTheKey logs in as a person does.
func TestPagesNeedTheKey(t *testing.T) {
	t.Parallel()
	const secret = "the-admin-key-of-this-test"
	p := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir(), "--admin-key", secret)
	b := newBrowser(t)
	b.open(t, p.url+"/ui/?status=running")
	b.see(t, "Log in")
	b.do(t, "log in", chromedp.SendKeys(`input[name=key]`, secret+"\r"))
	b.see(t, "Nothing fits")
	var cookies []*network.Cookie
	var visible string
	b.do(t, "cookies", chromedp.Evaluate(`document.cookie`, &visible), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		cookies, err = network.GetCookies().Do(ctx)
		return err
	}))
	if visible != "" || len(cookies) != 1 || !cookies[0].HTTPOnly || cookies[0].SameSite != network.CookieSameSiteStrict || strings.Contains(cookies[0].Value, secret) {
		t.Errorf("scripts see %q, the cookies are %+v", visible, cookies)
	}
	b.do(t, "log out", chromedp.Click(`form[action="/ui/logout"] button`))
	b.see(t, "Admin key")
	b.open(t, p.url+"/ui/")
	b.see(t, "Log in")
	b.check(t, p.url)
}

// TestOnePage opens show --html from disk with scripts off.
func TestOnePage(t *testing.T) {
	t.Parallel()
	for _, file := range shownDocuments(t) {
		page := filepath.Join(t.TempDir(), "page.html")
		if out, code := command(t, nil, binary, "show", file, "--html", page); code != 0 {
			t.Fatal(out)
		}
		info, err := os.Stat(page)
		if err != nil || info.Size() > 2<<20 {
			t.Errorf("%s: %v, %d bytes", file, err, info.Size())
		}
		b := newBrowser(t)
		b.do(t, "scripts off", emulation.SetScriptExecutionDisabled(true))
		b.open(t, "file://"+page)
		b.hold(t, devices[3])
		text := innerText(t, b)
		doc := documentFile(t, file)
		checkShown(t, doc, text)
		b.mu.Lock()
		if len(b.asked) != 1 || len(b.complaints) != 0 {
			t.Errorf("%s: the page asked for %q and complains %q", file, b.asked, b.complaints)
		}
		b.mu.Unlock()
	}
}

// innerText reads a page whose scripts are off.
func innerText(t *testing.T, b *browser) string {
	t.Helper()
	var text string
	b.do(t, "read the page", chromedp.Text("body", &text))
	return text
}

// checkShown looks for everything that a document says about its turns.
func checkShown(t *testing.T, doc *export.Rollout, text string) {
	t.Helper()
	for i := range doc.Turns {
		var m struct{ Content string }
		if json.Unmarshal(doc.Turns[i].ResponseMessage, &m) == nil && !strings.Contains(text, strings.ReplaceAll(m.Content, "\x00", `\u0000`)) {
			t.Errorf("%s: the answer of turn %d is not on the page", doc.SessionID, i)
		}
		for _, f := range doc.Turns[i].Validation {
			if !strings.Contains(text, f.Detail) {
				t.Errorf("%s: %s of turn %d is not on the page", doc.SessionID, f.Code, i)
			}
		}
	}
	for _, f := range doc.FailedCalls {
		if !strings.Contains(text, string(f.Outcome)) {
			t.Errorf("%s: failed call %d is not on the page", doc.SessionID, f.Call)
		}
	}
	for _, f := range doc.Validation {
		if !strings.Contains(text, f.Detail) {
			t.Errorf("%s: %s is not on the page", doc.SessionID, f.Code)
		}
	}
}

// TestPagesShot is not a test of its own: with UI_SCREENSHOTS it takes the pictures of docs/ui, and looks whether the pages fit.
func TestPagesShot(t *testing.T) {
	t.Parallel()
	files := shownDocuments(t)
	origin := strings.TrimSuffix(start(t, nil, binary, append([]string{"view"}, files...)...).line(t, `^(http://\S+)$`), "/ui/")
	demo := documentFile(t, files[len(files)-2]).SessionID
	b := newBrowser(t)
	for _, page := range []struct{ name, path string }{
		{"sessions", "/ui/?open=g1"}, {"session", "/ui/sessions/" + demo}, {"broken", "/ui/sessions/s1"}, {"turn", "/ui/sessions/" + demo + "/turns/3"},
		{"tokens", "/ui/sessions/" + demo + "/rows/2?at=0"}, {"break", "/ui/sessions/s1/turns/5/break"}, {"group", "/ui/group?id=g8"},
	} {
		for _, d := range devices {
			b.hold(t, d)
			b.open(t, origin+page.path)
			b.fits(t, page.name+" "+d.name)
			b.shoot(t, page.name+"-"+d.name)
		}
	}
	b.check(t, origin)
}
