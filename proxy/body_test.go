package proxy

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// Whatever is said to be compressed, what comes of it fits the limit or is refused as the client's fault.
func FuzzDecompress(f *testing.F) {
	text := bytes.Repeat([]byte(simple), 3)
	var zipped, deflated bytes.Buffer
	z, d := gzip.NewWriter(&zipped), zlib.NewWriter(&deflated)
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{z, d} {
		if _, err := w.Write(text); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	encodings := []string{"gzip", "deflate", "zstd", "identity", "br", ""}
	f.Add(uint8(0), zipped.Bytes())
	f.Add(uint8(1), deflated.Bytes())
	f.Add(uint8(1), deflated.Bytes()[2:])
	f.Add(uint8(2), enc.EncodeAll(text, nil))
	f.Add(uint8(2), enc.EncodeAll(make([]byte, 1<<20), nil))
	const limit = 1 << 12
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		encoding := encodings[int(kind)%len(encodings)]
		out, bad := decompress(encoding, body, limit)
		switch {
		case bad == nil && len(out) > limit:
			t.Fatalf("%s: %d bytes", encoding, len(out))
		case bad != nil && (bad.Status != 400 && bad.Status != 413 && bad.Status != 415 || bad.Text == "" || out != nil):
			t.Fatalf("%s: %d %s", encoding, bad.Status, bad.Text)
		}
	})
}
