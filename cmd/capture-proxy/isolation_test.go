package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/fakeengine"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
)

const testAdminKey = "an-admin-key-of-the-test"

// walled is a whole proxy with an admin key and two sessions, a and b, of which b has said something that a must never read.
type walled struct {
	t      *testing.T
	app    *App
	client control.Client
	out    string // --out-dir
	answer string // the id of b's answer
}

const secretOfB = "the-secret-of-session-b"

func newWalled(t *testing.T) *walled {
	t.Helper()
	fake, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fake.Close() })
	w := &walled{t: t, out: filepath.Join(t.TempDir(), "out")}
	w.app, err = NewApp(t.Context(), Config{Listen: "127.0.0.1:0", Data: t.TempDir(), AdminKey: testAdminKey, OutDir: w.out, DrainTimeout: time.Second, SessionTTL: time.Hour,
		Engine: engine.Config{URL: fake.URL}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- w.app.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := w.app.Close(); err != nil {
			t.Error(err)
		}
	})
	w.client = control.Client{URL: w.app.URL(), Key: testAdminKey}
	for _, id := range []string{"a", "b"} {
		if _, err := w.client.Create(ctx, control.CreateRequest{SessionID: &id}); err != nil {
			t.Fatal(err)
		}
	}
	status, body := w.ask("POST", "/v1/responses", `{"model":"m","input":"`+secretOfB+`"}`, "Authorization", "Bearer b")
	_, rest, _ := strings.Cut(body, `"id":"`)
	w.answer, _, _ = strings.Cut(rest, `"`)
	if status != 200 || !strings.HasPrefix(w.answer, "resp_") {
		t.Fatalf("%d %s", status, body)
	}
	return w
}

// ask sends a path exactly as it is written.
func (w *walled) ask(method, path, body string, header ...string) (status int, answer string) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.app.URL(), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.URL.Opaque = path
	if strings.HasPrefix(path, "//") {
		req.URL.Opaque = w.app.URL() + path // two slashes would begin a host
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The key of one session opens nothing of another one, on whatever way it is tried.
func TestSessionsAreWalledOff(t *testing.T) {
	w := newWalled(t)
	targets := []struct{ method, path, body string }{
		{"GET", "/sessions", ""}, {"GET", "/sessions/b", ""}, {"GET", "/sessions/b/rollout?include_messages", ""}, {"GET", "/sessions/b/trace_entries", ""}, {"GET", "/groups/b", ""}, {"GET", "/events", ""}, {"GET", "/events?session=b", ""}, {"GET", "/policy", ""},
		{"POST", "/sessions", `{}`}, {"POST", "/sessions/b/score", `{"reward":1}`}, {"POST", "/sessions/b/close", ""}, {"POST", "/sessions/b/cancel", ""}, {"DELETE", "/sessions/b", ""}, {"POST", "/policy", `{"version":7}`},
		{"GET", "/ui/", ""}, {"GET", "/ui/list", ""}, {"GET", "/ui/events", ""}, {"GET", "/ui/sessions/b", ""}, {"GET", "/ui/sessions/b/turns/0", ""}, {"GET", "/ui/sessions/b/turns/0/messages", ""}, {"GET", "/ui/sessions/b/rows/0/tokens", ""}, {"GET", "/ui/group?id=b", ""},
		{"POST", "/ui/sessions/b/cancel", ""}, {"POST", "/ui/sessions/b/close", ""},
	}
	ways := []func(string) (path string, header []string){
		func(p string) (string, []string) { return p, nil },
		func(p string) (string, []string) { return p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return p, []string{"X-Api-Key", "a"} },
		func(p string) (string, []string) { return p, []string{"X-Goog-Api-Key", "a"} },
		func(p string) (string, []string) { return p, []string{"Cookie", "capture_proxy_ui=a"} },
		func(p string) (string, []string) { return p, []string{"Authorization", "Bearer b"} }, // its own neither
		func(p string) (string, []string) { return "/s/a" + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return "/s/a/.." + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return "/s/a/../.." + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return "/v1/.." + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return "/v1" + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return "/" + p, []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) {
			return strings.Replace(p, "/b", "/%62", 1), []string{"Authorization", "Bearer a"}
		},
		func(p string) (string, []string) {
			return strings.Replace(p, "/b", "/a%2f..%2fb", 1), []string{"Authorization", "Bearer a"}
		},
		func(p string) (string, []string) {
			return strings.Replace(p, "/b", "/a/../b", 1), []string{"Authorization", "Bearer a"}
		},
		func(p string) (string, []string) { return strings.ToUpper(p), []string{"Authorization", "Bearer a"} },
		func(p string) (string, []string) { return p + "?key=a", nil },
	}
	for _, target := range targets {
		for n, way := range ways {
			path, header := way(target.path)
			if status, body := w.ask(target.method, path, target.body, header...); status < 300 || strings.Contains(body, secretOfB) {
				t.Errorf("%s %s, way %d: %d %.200s", target.method, path, n, status, body)
			}
		}
	}
	status, err := w.client.Status(t.Context(), "b")
	if err != nil || status.Status != "running" || status.Reward != nil {
		t.Errorf("%+v, %v", status, err)
	}
	// An answer of b continued by a is an answer that nobody gave.
	for _, path := range []string{"/v1/responses", "/s/a/v1/responses"} {
		code, body := w.ask("POST", path, `{"model":"m","input":"go on","previous_response_id":"`+w.answer+`"}`, "Authorization", "Bearer a")
		if code < 400 || strings.Contains(body, secretOfB) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := w.ask("POST", "/v1/responses", `{"model":"m","input":"go on","previous_response_id":"`+w.answer+`"}`, "Authorization", "Bearer b"); code != 200 {
		t.Errorf("b itself cannot go on: %d", code)
	}
}

// No name and no path leads out of where it belongs.
func TestNoPathLeadsOut(t *testing.T) {
	w := newWalled(t)
	for _, id := range []string{"..", ".", "../x", "x/../../y", "/etc/passwd", `..\x`, "a/b", ".hidden", "-rf", "a b", "a\n", "a\x00b", "a%2fb", "é", "", strings.Repeat("x", 129)} {
		if _, err := w.client.Create(t.Context(), control.CreateRequest{SessionID: &id}); err == nil {
			t.Errorf("a session is called %q", id)
		}
	}
	for _, id := range []string{"a", "b"} {
		if _, err := w.client.Close(t.Context(), id, control.CloseRequest{}, 0, control.DocumentOptions{}); err != nil {
			t.Error(err)
		}
	}
	var files []string
	err := filepath.WalkDir(filepath.Dir(w.out), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, w.out))
			if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s may be read by others", path)
			}
		}
		return err
	})
	if err != nil || fmt.Sprint(files) != "[/a.json /b.json]" {
		t.Errorf("%v %v", files, err)
	}
	admin := []string{"Authorization", "Bearer " + testAdminKey}
	_, login := w.ask("GET", "/ui/login", "")
	_, asset, _ := strings.Cut(login, "/ui/static/")
	asset, _, _ = strings.Cut(asset, "/")
	for _, path := range []string{
		"/ui/static/" + asset + "/..%2ftemplates%2flayout.html", "/ui/static/" + asset + "/../../templates/layout.html", "/ui/static/..%2f..%2fguard.go/x", "/ui/static/" + asset + "/%2fetc%2fpasswd", "/ui/static/" + asset + "/..%5c..%5cx",
		"/ui/../../etc/passwd", "/ui/sessions/..%2f..%2fetc%2fpasswd", "/ui/sessions/..", "/sessions/..%2fpolicy", "/sessions/" + url.PathEscape("../../"+w.out) + "/rollout", "/ui/sessions/a/rows/..%2f..%2fx/tokens", "/ui/sessions/a/turns/-1", "/ui/sessions/a/turns/99999999999999999999",
	} {
		if status, body := w.ask("GET", path, "", admin...); status < 300 || strings.Contains(body, "{{define") || strings.Contains(body, "root:") {
			t.Errorf("%s: %d %.100s", path, status, body)
		}
	}
}
