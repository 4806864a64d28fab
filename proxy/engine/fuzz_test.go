package engine

import (
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// Google's array is split the same way however it arrives, and no byte is lost.
func FuzzArray(f *testing.F) {
	f.Add(`[{"a": [1, {"b": "]}\\\"["}]},{}]`, uint8(1))
	f.Add(`[{"a":1} x,, {"b`, uint8(3))
	f.Fuzz(func(t *testing.T, stream string, step uint8) {
		read := func(r io.Reader) (raw string, events []string) {
			a := NewArrayReader(r, nil)
			for range 2*len(stream) + 8 {
				ev, err := a.Next()
				if errors.Is(err, io.EOF) {
					return raw, events
				}
				if err != nil {
					t.Fatal(err)
				}
				raw += string(ev.Raw)
				if len(ev.Data) > 0 {
					events = append(events, string(ev.Data))
				}
			}
			t.Fatalf("%q does not end", stream)
			return raw, events
		}
		whole, want := read(&stepReader{stream, len(stream) + 1})
		raw, got := read(&stepReader{stream, int(step%16) + 1})
		if raw != stream || whole != stream {
			t.Fatalf("%q came out as %q and %q", stream, whole, raw)
		}
		if !equalText(got, want) {
			t.Fatalf("%q in steps of %d: %q, want %q", stream, step%16+1, got, want)
		}
	})
}

func equalText(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// What is taken out of an answer leaves an answer, and ids and logprobs are what stood there, in their order.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"id":"c","prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"token_id:5","logprob":-0.5}]},"token_ids":[5]}]}`), true)
	f.Add([]byte(`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop","token_ids":[1,2147483648,-1,1.5],"logprobs":{"content":[{"logprob":null},{"logprob":1e999}]}}],"usage":{"prompt_tokens":1e30}}`), false)
	f.Add([]byte(`{"choices":[{"index":-1},{"index":9999999999},7,null],"error":{"message":1},"usage":null}`), true)
	f.Fuzz(func(t *testing.T, data []byte, stream bool) {
		var a Answer
		strip := Strip{TokenIDs: true, Logprobs: true, Usage: true}
		var edited []byte
		if stream {
			edited, _ = a.Chunk(data, &strip)
		} else {
			edited, _ = a.Whole(data, &strip)
		}
		if edited != nil && json.Valid(data) && !json.Valid(edited) {
			t.Fatalf("%q became %q", data, edited)
		}
		for _, c := range a.Choices {
			if m := c.Message(); m != nil && !json.Valid(m) {
				t.Fatalf("message %q", m)
			}
		}
	})
}
