package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`(?:href|hx-get|src)="([^"]*)"`)

// TestEveryPage follows every link of every page of documents on disk, as a reader could.
func TestEveryPage(t *testing.T) {
	u := newUI(t, Options{Source: NewDocuments(documents(t)), Loopback: true})
	seen, todo := map[string]bool{}, []string{"/ui/"}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		resp := get(t, u, path)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(page(t, u, path), -1) {
			next := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.HasPrefix(next, "?") {
				next = strings.SplitN(path, "?", 2)[0] + next
			}
			next, _, _ = strings.Cut(next, "#")
			if next == "" || seen[next] {
				continue
			}
			if !strings.HasPrefix(next, "/ui/") {
				t.Errorf("%s leads out of the pages: %s", path, next)
				continue
			}
			if strings.Contains(next, "open=") && strings.Count(next, "open=") > 2 {
				continue // every set of unfolded groups is an address
			}
			seen[next] = true
			todo = append(todo, next)
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d addresses were found", len(seen))
	}
	for _, kind := range []string{"/turns/", "/rows/", "/break", "/group?id="} {
		if !slices.ContainsFunc(sorted(seen), func(s string) bool { return strings.Contains(s, kind) }) {
			t.Errorf("no page leads to %s", kind)
		}
	}
}

func sorted(m map[string]bool) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

func key(id string) string { return "/ui/sessions/" + url.PathEscape(id) }

func TestSessionPage(t *testing.T) {
	docs := documents(t)
	u := newUI(t, Options{Source: NewDocuments(docs), Loopback: true})
	for _, doc := range docs {
		got := page(t, u, key(doc.SessionID))
		wantAll(t, doc.SessionID, got, doc.SessionID, string(doc.Status), fmt.Sprintf("<dd>%d</dd>", doc.Stats.Turns), "The same from a shell")
		for i := range doc.Turns {
			wantAll(t, doc.SessionID, got, fmt.Sprintf("%s/turns/%d", key(doc.SessionID), i))
			for _, f := range doc.Turns[i].Validation {
				wantAll(t, doc.SessionID, got, "<code>"+string(f.Code)+"</code>")
			}
		}
		for _, f := range doc.FailedCalls {
			wantAll(t, doc.SessionID, got, fmt.Sprintf(`id="call-%d"`, f.Call), string(f.Outcome))
		}
		for _, f := range doc.Validation {
			wantAll(t, doc.SessionID, got, "<code>"+string(f.Code)+"</code>")
		}
	}
}
