package jsonscan

import (
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Unescape appends the text of a JSON string's inside (without its quotes) to dst. A lone surrogate becomes U+FFFD, as in
// encoding/json.
func Unescape(dst, inner []byte) []byte {
	for i := 0; i < len(inner); {
		if inner[i] != '\\' || i+1 >= len(inner) {
			dst = append(dst, inner[i])
			i++
			continue
		}
		switch e := inner[i+1]; e {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(inner[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := hex4(inner[i:])
				if joined := utf16.DecodeRune(r, low); joined != utf8.RuneError {
					r = joined
					i += 6
				} else {
					r = utf8.RuneError
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		default:
			dst = append(dst, e)
		}
		i += 2
	}
	return dst
}

// hex4 reads the \uXXXX that b begins with, or returns -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, h := range b[2:6] {
		r <<= 4
		switch {
		case '0' <= h && h <= '9':
			r |= rune(h - '0')
		case 'a' <= h && h <= 'f':
			r |= rune(h-'a') + 10
		default:
			r |= rune(h&^0x20-'A') + 10
		}
	}
	return r
}

// AppendQuote appends s as a JSON string. Bytes that are no valid UTF-8 become U+FFFD; nothing is escaped for HTML.
func AppendQuote[T ~string | ~[]byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(slices.Grow(dst, len(s)+2), '"')
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && s[i] >= 0x20 && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
			i++
		}
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			break
		}
		b := s[i]
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\n':
			dst = append(dst, '\\', 'n')
		case b == '\t':
			dst = append(dst, '\\', 't')
		case b == '\r':
			dst = append(dst, '\\', 'r')
		case b < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			end := min(i+utf8.UTFMax, len(s))
			r, n := utf8.DecodeRuneInString(string(s[i:end]))
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}
