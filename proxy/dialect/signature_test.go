package dialect

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestSealProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "reasoning")
		sealed := Seal(text)
		got, ok := Unseal(sealed)
		if !ok || !bytes.Equal(got, text) {
			t.Fatalf("%q came back as %q, %v", text, got, ok)
		}
	})
}

// A provider's signature, or a damaged one of ours, is foreign: it is never mistaken for ours.
func TestForeignSignatures(t *testing.T) {
	ours := Seal([]byte("I should list the files."))
	for _, s := range []string{"", "c2ln", "EqQBCgIYAhIM", sealPrefix, sealPrefix + "AAAA", sealPrefix + "AAAAAAAAAA", ours[:len(ours)-3], ours + "A", "x" + ours} {
		if text, ok := Unseal(s); ok {
			t.Errorf("%q was taken for ours: %q", s, text)
		}
	}
}
