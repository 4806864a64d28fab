//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"captureproxy/export"
)

// fakeEngine starts the built-in engine as a program of its own and returns its URL.
func fakeEngine(t *testing.T, flags ...string) string {
	t.Helper()
	return start(t, nil, binary, append([]string{"fake-engine", "--listen", "127.0.0.1:0"}, flags...)...).line(t, `^(http://\S+)$`)
}

// proxy is a running capture-proxy serve.
type proxy struct {
	*process
	url string
}

// serve starts the proxy and waits until it listens.
func serve(t *testing.T, flags ...string) *proxy {
	t.Helper()
	p := &proxy{process: start(t, nil, binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)}
	p.url = p.line(t, `listening at\s+(http://\S+)`)
	return p
}

// control calls the control API and returns the body of a 200.
func (p *proxy) control(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it is read to its end
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %v\n%s", method, path, res.StatusCode, err, text)
	}
	return text
}

// session opens a session and returns its id, which is the API key of whoever plays it.
func (p *proxy) session(t *testing.T) string {
	t.Helper()
	var created struct {
		ID string `json:"session_id"`
	}
	text := p.control(t, http.MethodPost, "/sessions", "{}")
	if err := json.Unmarshal(text, &created); err != nil || created.ID == "" {
		t.Fatalf("no session: %v\n%s", err, text)
	}
	return created.ID
}

// rollout returns the document so far.
func (p *proxy) rollout(t *testing.T, session string) *export.Rollout {
	t.Helper()
	return document(t, p.control(t, http.MethodGet, "/sessions/"+session+"/rollout", ""))
}

// close ends a session and returns its document.
func (p *proxy) close(t *testing.T, session string) *export.Rollout {
	t.Helper()
	return document(t, p.control(t, http.MethodPost, "/sessions/"+session+"/close", "{}"))
}

// document reads a rollout document as a consumer would, and checks that its parts agree.
func document(t *testing.T, text []byte) *export.Rollout {
	t.Helper()
	doc, err := export.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, text)
	}
	for _, f := range export.Check(doc) {
		t.Errorf("checked again: %s", f)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the document of %s: %+v\nvalidation: %v\nfailed calls: %+v", doc.SessionID, doc.Stats, doc.Validation, doc.FailedCalls)
			for _, turn := range doc.Turns {
				t.Logf("turn %s: parent %q, link %q, %s, %d + %d tokens, %d tools, continues %q %+v, %v", turn.NodeID, turn.ParentID, turn.Link,
					turn.Outcome, turn.NPrompt, turn.NSampled, turn.NTools, turn.Continues, turn.Break, turn.Validation)
			}
		}
	})
	return doc
}

func documentFile(t *testing.T, path string) *export.Rollout {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return document(t, text)
}

// rows returns the rows of one role.
func rows(doc *export.Rollout, role export.Role) []export.Row {
	var out []export.Row
	for _, r := range doc.Sequences {
		if r.Role == role {
			out = append(out, r)
		}
	}
	return out
}
