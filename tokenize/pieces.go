package tokenize

import (
	"iter"
	"unicode"
)

// The patterns by which tiktoken splits text before merging bytes, from OpenAI's tiktoken_ext/openai_public.py.
const (
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	cl100kPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// maxRun is the longest run of bytes without a change between space and other characters that is encoded in one go.
// tiktoken-go merges in quadratic time: 100 kB of spaces take it 14 s.
const maxRun = 1024

// pieces cuts text inside runs longer than maxRun, and nowhere else. Each cut can cost a token more than tiktoken would
// use, which is what bounding the time is worth.
func pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, run := 0, 0
		space := false
		for i, r := range text {
			if s := unicode.IsSpace(r); s != space {
				space, run = s, i
			}
			if i-run >= maxRun {
				if !yield(text[start:i]) {
					return
				}
				start, run = i, i
			}
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}
