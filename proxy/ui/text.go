package ui

import (
	"bytes"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What stands in documents was written by engines, harnesses, models and whatever those have read. html/template sees to it
// that it stays text; here, characters that do something to text without being seen become visible.

// hidden reports whether a character is shown as its code: controls, and what turns, joins or hides other characters. Joiners
// between letters of other scripts belong to words and emoji.
func hidden(before, r, after rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\u200c' || r == '\u200d':
		return before < utf8.RuneSelf || after < utf8.RuneSelf
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// eachVisible calls plain for stretches that are shown as they are, and code for a character that is shown as its code.
func eachVisible(s string, plain, code func(string)) {
	start, before := 0, rune(0)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		after, _ := utf8.DecodeRuneInString(s[i+size:])
		shown := ""
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Sprintf(`\x%02x`, s[i])
		case r == '\r' && after == '\n': // the line break shows
			shown = " "
		case hidden(before, r, after) && r > 0xffff:
			shown = fmt.Sprintf(`\U%08x`, r)
		case hidden(before, r, after):
			shown = fmt.Sprintf(`\u%04x`, r)
		}
		if shown != "" {
			plain(s[start:i])
			if shown != " " {
				code(shown)
			}
			start = i + size
		}
		i, before = i+size, r
	}
	plain(s[start:])
}

// plain is foreign text for attributes, titles and names: one string without hidden characters.
func plain(s string) string {
	var b strings.Builder
	add := func(p string) { b.WriteString(p) }
	eachVisible(s, add, add)
	return b.String()
}

// text is foreign text for a page, its hidden characters set off.
func text(s string) template.HTML {
	var b strings.Builder
	eachVisible(s, func(p string) { template.HTMLEscape(&b, []byte(p)) }, func(code string) {
		b.WriteString(`<span class="esc">`)
		b.WriteString(code)
		b.WriteString(`</span>`)
	})
	return template.HTML(b.String()) //nolint:gosec // escaped piece by piece
}

// window cuts a stretch of at most size bytes out of s, at characters. rest is what follows it.
func window(s string, from, size int) (part string, next, rest int) {
	from = min(max(from, 0), len(s))
	for from > 0 && from < len(s) && !utf8.RuneStart(s[from]) {
		from--
	}
	end := min(from+size, len(s))
	for back := 0; end < len(s) && end > from && !utf8.RuneStart(s[end]) && back < utf8.UTFMax; back++ {
		end--
	}
	if end == from && from < len(s) { // bytes that are no characters
		end = min(from+size, len(s))
	}
	return s[from:end], end, len(s) - end
}

// short is the beginning of a foreign text for one line.
func short(s string, characters int) string {
	part, _, rest := window(s, 0, 4*characters)
	line := plain(strings.Join(strings.Fields(part), " "))
	if r := []rune(line); len(r) > characters {
		return string(r[:characters-1]) + "…"
	}
	if rest > 0 {
		line += "…"
	}
	return line
}

// number groups digits by thousands.
func number(n int) string {
	s := strconv.Itoa(n)
	if n < 0 {
		return "-" + number(-n)
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}

// decimal writes a number as people read it.
func decimal(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// keepSurrogates makes halves of surrogate pairs in JSON strings visible: decoding would turn each into the same
// replacement character.
func keepSurrogates(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw
	}
	out := make([]byte, 0, len(raw)+16)
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			i++
			continue
		}
		unit, ok := escapedUnit(raw[i:])
		switch next, paired := escapedUnit(raw[min(i+6, len(raw)):]); {
		case !ok:
			out = append(out, raw[i], raw[i+1])
			i += 2
		case unit >= 0xd800 && unit < 0xdc00 && paired && next >= 0xdc00 && next < 0xe000:
			out = append(out, raw[i:i+12]...)
			i += 12
		case unit >= 0xd800 && unit < 0xe000:
			out = append(append(out, '\\'), raw[i:i+6]...)
			i += 6
		default:
			out = append(out, raw[i:i+6]...)
			i += 6
		}
	}
	return out
}

// escapedUnit reads \uXXXX.
func escapedUnit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return unit, err == nil
}
