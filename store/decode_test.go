package store

import (
	"os"
	"path/filepath"
	"testing"
)

// formats are the stored logs, one per format.
var formats = []string{"format1.log", "format2.log"}

// fixtureFrames returns the call payloads of a stored log.
func fixtureFrames(t testing.TB, name string) (payloads [][]byte) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	h, err := parseSegmentHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range scan(data, h.salt, true).frames {
		if f.typ == frameCall {
			payloads = append(payloads, f.payload)
		}
	}
	if len(payloads) < 2 {
		t.Fatalf("%d calls in the fixture, want 2", len(payloads))
	}
	return payloads
}

// FuzzDecode decodes two arbitrary payloads as the calls of one session: an error or two calls, never a panic.
func FuzzDecode(f *testing.F) {
	for _, name := range formats {
		payloads := fixtureFrames(f, name)
		f.Add(payloads[0], payloads[1])
		f.Add(payloads[1], payloads[0])
	}
	f.Add([]byte{1, 0, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var d decoder
		var stored []*storedCall
		for _, payload := range [][]byte{first, second} {
			if s, err := d.decode(payload); err == nil {
				stored = append(stored, s)
			}
		}
		calls := expandAll(stored)
		for i, s := range stored {
			s.library.join(s.body)
			for j := range calls[i].Choices {
				if n := len(calls[i].Choices[j].PromptIDs); n > (len(first)+len(second))*2 {
					t.Fatalf("%d prompt ids out of %d bytes", n, len(first)+len(second))
				}
			}
		}
	})
}

// TestDecodeCut cuts a call short at every byte: an error each time.
func TestDecodeCut(t *testing.T) {
	for _, name := range formats {
		payload := fixtureFrames(t, name)[0]
		for n := range payload {
			var d decoder
			if _, err := d.decode(payload[:n:n]); err == nil {
				t.Fatalf("%s: %d of %d bytes decode", name, n, len(payload))
			}
		}
	}
}
