package dialect

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"strings"
)

// A signature of ours carries the reasoning itself, because some harnesses send back only the signature: sealPrefix, then
// base64url of four bytes of the text's SHA-256 and the deflated text. Providers' signatures never begin like that, and a
// checksum that does not match makes a foreign one of it.
const sealPrefix = "cprx1."

// maxSealed bounds the reasoning that is taken out of a signature, in bytes.
const maxSealed = 16 << 20

// Seal returns the signature for a piece of reasoning.
func Seal(reasoning []byte) string {
	var b bytes.Buffer
	sum := sha256.Sum256(reasoning)
	b.Write(sum[:4])
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil { // only an unknown level fails
		panic(err)
	}
	w.Write(reasoning) //nolint:errcheck // a bytes.Buffer takes everything
	w.Close()          //nolint:errcheck // likewise
	return sealPrefix + base64.RawURLEncoding.EncodeToString(b.Bytes())
}

// Unseal returns the reasoning in a signature of ours; ok is false for a foreign one.
func Unseal(signature string) (reasoning []byte, ok bool) {
	rest, ok := strings.CutPrefix(signature, sealPrefix)
	if !ok {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) < 4 {
		return nil, false
	}
	packed := bytes.NewReader(raw[4:])
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(packed), maxSealed))
	if err != nil || packed.Len() > 0 {
		return nil, false
	}
	sum := sha256.Sum256(text)
	return text, bytes.Equal(sum[:4], raw[:4])
}
