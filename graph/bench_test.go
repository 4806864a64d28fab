package graph

import (
	"encoding/json"
	"fmt"
	"testing"
)

// growing makes one conversation of n turns that grows to the given number of tokens; step says whether every turn
// extends the one before, or all are roots.
func growing(n, tokens int, extend bool) []Turn {
	all := make([]int32, tokens+64)
	for i := range all {
		all[i] = int32(i*7919%150000 + 1)
	}
	turns := make([]Turn, n)
	for i := range turns {
		end := 1 + (i+1)*tokens/n
		prompt := append([]int32(nil), all[:end-64]...)
		if !extend {
			prompt[0] = int32(i)
		}
		turns[i] = sampled(fmt.Sprint("t", i), i, prompt, all[end-64:end])
		turns[i].Request = []json.RawMessage{say("user", "q")}
	}
	return turns
}

// BenchmarkLinkBodies links conversations whose last request has a body of so many bytes, of about four to a token; the rate is
// that of all prompts, four bytes an id.
func BenchmarkLinkBodies(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		turns := talking(growing(100, size/4, true))
		ids := 0
		for _, t := range turns {
			ids += len(t.Prompt)
		}
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(4 * int64(ids))
			b.ReportAllocs()
			for b.Loop() {
				Link(turns)
			}
		})
	}
}

func BenchmarkLink(b *testing.B) {
	for _, n := range []int{200, 2000} {
		for _, extend := range []bool{true, false} {
			turns := growing(n, 128_000, extend)
			b.Run(fmt.Sprintf("turns=%d/extend=%v", n, extend), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Link(turns)
				}
			})
		}
	}
}

// talking gives the turns the messages of one growing conversation: two more with each turn.
func talking(turns []Turn) []Turn {
	var said []json.RawMessage
	for i := range turns {
		said = append(said, say("user", fmt.Sprintf("%0300d", i)))
		turns[i].Request = append([]json.RawMessage(nil), said...)
		turns[i].Reply = say("assistant", fmt.Sprintf("%0100d", i))
		said = append(said, turns[i].Reply)
	}
	return turns
}

func BenchmarkLinkMessages(b *testing.B) {
	for _, n := range []int{200, 2000} {
		turns := talking(make([]Turn, n))
		for i := range turns {
			turns[i].Arrival = i
		}
		b.Run(fmt.Sprint("turns=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Link(turns)
			}
		})
	}
}

// BenchmarkExplain links turns that are all roots although their messages go on.
func BenchmarkExplain(b *testing.B) {
	for _, n := range []int{200, 2000} {
		turns := talking(growing(n, 128_000, false))
		b.Run(fmt.Sprint("turns=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Link(turns)
			}
		})
	}
}

func BenchmarkSequences(b *testing.B) {
	g := Link(growing(200, 128_000, true))
	b.ReportAllocs()
	for b.Loop() {
		rows := g.Sequences()
		Share(rows, func(int) bool { return true }, true)
	}
}
