package engine

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// promptIDs spells token ids of about n bytes, with commas.
func promptIDs(n int) string {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = append(strconv.AppendInt(b, int64(10000+i*7919%90000), 10), ',')
	}
	return string(b[:len(b)-1])
}

// wholeAnswer is an answer of about n bytes, nearly all of them prompt ids.
func wholeAnswer(n int) []byte {
	return []byte(`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},` +
		`"logprobs":{"content":[{"token":"hello","logprob":-0.5,"bytes":[104],"top_logprobs":[]}]},"finish_reason":"stop","token_ids":[7]}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"prompt_token_ids":[` + promptIDs(n-400) + `]}`)
}

// eventStream is a stream of about n bytes: one event with the prompt ids, or many with a token each.
func eventStream(n int, one bool) []byte {
	if one {
		return []byte(`data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[` + promptIDs(n) + "]}\n\n")
	}
	event := `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":{"content":[{"token":" word","logprob":-0.012975780293345451,"bytes":[32],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[371]}]}` + "\n\n"
	return []byte(strings.Repeat(event, n/len(event)))
}

// pieces gives its bytes as a socket does.
type pieces struct{ rest []byte }

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), 16<<10)], p.rest)
	if p.rest = p.rest[n:]; n == 0 {
		return 0, errEnd
	}
	return n, nil
}

var errEnd = fmt.Errorf("the end")

// BenchmarkRead reads a stream's events, as they come from a socket, and the token data in them.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20} {
		for _, one := range []bool{true, false} {
			stream := eventStream(n, one)
			b.Run(fmt.Sprintf("%dKiB/one=%t", n>>10, one), func(b *testing.B) {
				b.SetBytes(int64(len(stream)))
				b.ReportAllocs()
				for b.Loop() {
					a, r := &Answer{}, NewEventReader(&pieces{stream}, nil)
					for {
						ev, err := r.Next()
						if err != nil {
							break
						}
						a.Chunk(ev.Data, &everything)
					}
					if len(a.Choices) != 1 {
						b.Fatal("no choice")
					}
				}
			})
		}
	}
}

// BenchmarkWhole reads a whole answer and takes out of it what the client did not ask for.
func BenchmarkWhole(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20} {
		body := wholeAnswer(n)
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				edited, ok := (&Answer{}).Whole(body, &everything)
				if !ok || bytes.Contains(edited, []byte("token_ids")) {
					b.Fatal("not read")
				}
			}
		})
	}
}
