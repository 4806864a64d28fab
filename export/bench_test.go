package export

import (
	"fmt"
	"io"
	"testing"

	"captureproxy/internal/record"
)

// long is one conversation of 200 turns that grows to 128k tokens, of which each turn samples a tenth.
func long() (*record.Session, []*record.Call) {
	const turns, tokens = 200, 128_000
	all := make([]int32, tokens)
	for i := range all {
		all[i] = int32(i*7919%150000 + 1)
	}
	var calls []*record.Call
	for i := range turns {
		end := (i + 1) * tokens / turns
		sampled := all[end-64 : end]
		lps := make([]float64, len(sampled))
		for k := range lps {
			lps[k] = -float64(k%997+1) / 1009.3
		}
		calls = append(calls, call(i+1, append([]int32(nil), all[:end-64]...), sampled, lps...))
	}
	return session(), calls
}

func BenchmarkBuild(b *testing.B) {
	sess, calls := long()
	b.ReportAllocs()
	for b.Loop() {
		Build(sess, calls, Options{})
	}
}

func BenchmarkEncode(b *testing.B) {
	sess, calls := long()
	r := Build(sess, calls, Options{})
	n, err := r.WriteTo(io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExport makes documents of about 64 KiB and 1 MiB: linked, checked and written.
func BenchmarkExport(b *testing.B) {
	sess, calls := long()
	for _, turns := range []int{8, 80} {
		n, err := Build(sess, calls[:turns], Options{}).WriteTo(io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(sess, calls[:turns], Options{}).WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoots is the worst case: no prompt extends another, so that every row repeats its context.
func BenchmarkRoots(b *testing.B) {
	sess, calls := long()
	for i, c := range calls {
		c.Choices[0].PromptIDs[0] = int32(i)
	}
	b.Run(fmt.Sprint(len(calls)), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Build(sess, calls, Options{}).WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}
