package ui

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"captureproxy/export"
)

// documents reads what the repository has: forked, retried and broken sessions, a group, an eval.
func documents(t testing.TB) []*export.Rollout {
	t.Helper()
	files, err := filepath.Glob("../../export/format/testdata/rollouts/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents to show", err)
	}
	var docs []*export.Rollout
	for _, file := range append(files, "../../export/testdata/rollout.json") {
		docs = append(docs, read(t, file))
	}
	return docs
}

func read(t testing.TB, file string) *export.Rollout {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := export.Read(f)
	if err != nil {
		t.Fatal(file, err)
	}
	return doc
}

func newUI(t testing.TB, o Options) *UI {
	t.Helper()
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t)
	}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// get asks for a page as a browser of this machine does.
func get(t testing.TB, h http.Handler, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:8100"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func page(t testing.TB, h http.Handler, path string, header ...string) string {
	t.Helper()
	resp := get(t, h, path, header...)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s\n%.2000s", path, resp.Status, body)
	}
	return string(body)
}

func wantAll(t testing.TB, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s does not say %q", what, w)
		}
	}
}
