package jsonscan

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// sizes are those of the bodies that benchmarks work on: what holds for one holds for the other when the rate is the same.
var sizes = []int{64 << 10, 1 << 20}

// chatBody is a request of about n bytes.
func chatBody(n int) []byte {
	const message = `{"role":"user","content":"output of a tool that was run, \"quoted\" and with\nlines. `
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[`)
	for i := 0; b.Len() < n-200; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(message + strings.Repeat("some words of a longer text ", 60) + `"}`)
	}
	return []byte(b.String() + `],"temperature":0.5,"stream":true}`)
}

// idArray is an array of token ids of about n bytes.
func idArray(n int) []byte {
	b := []byte{'['}
	for i := 0; len(b) < n; i++ {
		b = append(strconv.AppendInt(b, int64(i*7919%150000), 10), ',')
	}
	b[len(b)-1] = ']'
	return b
}

func each(b *testing.B, make func(n int) []byte, run func(doc []byte)) {
	for _, n := range sizes {
		doc := make(n)
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				run(doc)
			}
		})
	}
}

// BenchmarkSplice edits a request as the proxy does: parameters replaced, added and left out, the messages as they are.
func BenchmarkSplice(b *testing.B) {
	var dst []byte
	each(b, chatBody, func(doc []byte) {
		d, err := ParseDoc(doc)
		if err != nil {
			b.Fatal(err)
		}
		dst = d.Edit(dst[:0], []Change{{"model", []byte(`"served"`)}, {"temperature", nil}, {"return_token_ids", []byte("true")}})
	})
}

// BenchmarkIDs reads an array of token ids.
func BenchmarkIDs(b *testing.B) {
	var ids []int32
	each(b, idArray, func(doc []byte) {
		c := New(doc)
		ids, _, _ = c.AppendInts(ids[:0])
	})
}

// BenchmarkPass skips a whole request.
func BenchmarkPass(b *testing.B) {
	each(b, chatBody, func(doc []byte) {
		c := New(doc)
		c.Skip()
		if c.Err() != nil {
			b.Fatal(c.Err())
		}
	})
}
