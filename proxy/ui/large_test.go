package ui

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
)

// TestLongSessionWithoutScripts turns the pages of a long session by its links alone: each is a whole page, and every turn is on one.
func TestLongSessionWithoutScripts(t *testing.T) {
	const turns = 3*stepsAtOnce + 20
	p := newProxyUI(t)
	p.long(t, "s-long", turns)
	seen := map[string]bool{}
	more := regexp.MustCompile(`<a href="([^"]*)">more turns</a>`)
	toTurn := regexp.MustCompile(`href="(/ui/sessions/s-long/turns/\d+)"`)
	pages := 0
	for path := "/ui/sessions/s-long"; path != ""; pages++ {
		got := page(t, p, path)
		wantAll(t, path, got, "<!doctype html>", "</html>", `rel="stylesheet"`)
		for _, m := range toTurn.FindAllStringSubmatch(got, -1) {
			seen[m[1]] = true
		}
		path = ""
		if m := more.FindStringSubmatch(got); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if want := (turns + stepsAtOnce - 1) / stepsAtOnce; pages != want || len(seen) != turns {
		t.Errorf("%d turns stand on %d pages, want %d on %d", len(seen), pages, turns, want)
	}
	part := page(t, p, "/ui/sessions/s-long/turns?from=100", "HX-Request", "true")
	if strings.Contains(part, "<html") || !strings.Contains(part, "/turns/100") {
		t.Errorf("what a page asks for is a page itself: %.300s", part)
	}
	wantAll(t, "a session of many turns", page(t, p, "/ui/sessions/s-long/graph"), "<!doctype html>", `class="m agent`)
}

// TestWideGroup lists a group that is larger than a page: a page holds so many sessions, and the next ones have the rest.
func TestWideGroup(t *testing.T) {
	const sessions = 2*pageSize + 30
	p := newProxyUI(t)
	for i := range sessions {
		p.create(t, fmt.Sprintf("s-%03d", i), "wide")
	}
	folded := page(t, p, "/ui/")
	wantAll(t, "the list", folded, fmt.Sprintf("%d sessions", sessions), fmt.Sprintf("%d here", pageSize))
	if n := strings.Count(folded, "data-entry"); n != 1 {
		t.Errorf("a folded group has %d lines", n)
	}
	seen := map[string]bool{}
	entry := regexp.MustCompile(`<a id="to-([^"]*)"`)
	older := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	pages := 0
	for path := "/ui/?open=wide"; path != ""; pages++ {
		got := page(t, p, path)
		entries := entry.FindAllStringSubmatch(got, -1)
		if len(entries) > pageSize {
			t.Errorf("%s has %d sessions", path, len(entries))
		}
		for _, m := range entries {
			if seen[m[1]] {
				t.Errorf("%s stands on two pages", m[1])
			}
			seen[m[1]] = true
		}
		path = ""
		if m := older.FindStringSubmatch(got); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if pages != 3 || len(seen) != sessions {
		t.Errorf("%d sessions on %d pages, want %d on 3", len(seen), pages, sessions)
	}
	if n := strings.Count(page(t, p, "/ui/group?id=wide"), "<tr data-entry>"); n != sessions {
		t.Errorf("the group's page has %d sessions, want %d", n, sessions)
	}
}
