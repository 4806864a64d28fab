package ui

import (
	"fmt"
	"net/url"
	"strings"
)

// links says where things are: on pages of their own, or on the one page that is all there is.
type links struct {
	inline bool
	only   bool // the document is the only one: there is no list to go back to
}

func (l links) index() string { return "/ui/" }

func (l links) session(key string) string {
	if l.inline {
		return "#top"
	}
	return "/ui/sessions/" + url.PathEscape(key)
}

func (l links) turn(key string, i int) string {
	if l.inline {
		return fmt.Sprintf("#turn-%d", i)
	}
	return fmt.Sprintf("%s/turns/%d", l.session(key), i)
}

// row is the page of a row's tokens, at the part that shows token at.
func (l links) row(key string, k, at int) string {
	if l.inline {
		return fmt.Sprintf("#row-%d", k)
	}
	link := fmt.Sprintf("%s/rows/%d", l.session(key), k)
	if at > 0 {
		link += fmt.Sprintf("?at=%d#at", at)
	}
	return link
}

func (l links) tokens(key string, k, from int) string {
	return fmt.Sprintf("%s/rows/%d/tokens?from=%d", l.session(key), k, from)
}

func (l links) broke(key string, i int) string {
	if l.inline {
		return fmt.Sprintf("#break-%d", i)
	}
	return fmt.Sprintf("%s/turns/%d/break", l.session(key), i)
}

func (l links) group(id string) string {
	if l.inline {
		return ""
	}
	return "/ui/group?id=" + url.QueryEscape(id) // in a path, dots alone would lead elsewhere
}

// command is a line for a shell, "" where the foreign text in it cannot be written there as it is.
func command(words ...string) string {
	for i, w := range words {
		if plain(w) != w || strings.ContainsAny(w, "\n\t") {
			return ""
		}
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
		}) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
