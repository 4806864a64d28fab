package dialect

import (
	"fmt"
	"strings"
	"testing"
)

// list is a JSON list of about n bytes.
func list(n int, element string) string {
	return strings.Repeat(element+",", max(1, n/(len(element)+1))-1) + element
}

// BenchmarkDecode reads requests of every dialect, translating those that are not chat.
func BenchmarkDecode(b *testing.B) {
	text := strings.Repeat("some words of a longer text, ", 70)
	for _, n := range []int{64 << 10, 1 << 20} {
		for name, d := range map[string]struct {
			body   string
			decode func([]byte) (*Request, error)
		}{
			"chat":      {`{"model":"m","messages":[` + list(n, `{"role":"user","content":"`+text+`"}`) + `]}`, DecodeChat},
			"anthropic": {`{"model":"m","max_tokens":9,"messages":[` + list(n, `{"role":"user","content":"`+text+`"}`) + `]}`, DecodeAnthropic},
			"responses": {`{"model":"m","input":[` + list(n, `{"role":"user","content":"`+text+`"}`) + `]}`,
				func(body []byte) (*Request, error) { return DecodeResponses(body, nil) }},
			"google": {`{"contents":[` + list(n, `{"role":"user","parts":[{"text":"`+text+`"}]}`) + `]}`,
				func(body []byte) (*Request, error) { return DecodeGoogle(body, "m", false) }},
		} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				body := []byte(d.body)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := d.decode(body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
