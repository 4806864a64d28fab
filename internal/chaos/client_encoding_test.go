package chaos

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"captureproxy/internal/record"
)

func squeezed(t *testing.T, open func(io.Writer) (io.WriteCloser, error), text []byte) string {
	t.Helper()
	var out bytes.Buffer
	w, err := open(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What a compressed body is when undone counts, and undoing it takes no more memory than the limit allows for.
func TestCompressedBodies(t *testing.T) {
	gz := func(text string) string {
		return squeezed(t, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }, []byte(text))
	}
	zl := func(text string) string {
		return squeezed(t, func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }, []byte(text))
	}
	raw := func(text string) string {
		return squeezed(t, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, 9) }, []byte(text))
	}
	zs := func(text string) string {
		return squeezed(t, func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }, []byte(text))
	}
	zeros := strings.Repeat("\x00", 8<<20)
	good := fmt.Sprintf(dialects[0].body, false, "mark-1-end")
	spaces := good + strings.Repeat(" ", 3<<19)
	w := newWorld(t, worldOptions{engine: http.HandlerFunc(echo)}) // takes 1 MiB
	n := 0
	for _, c := range []struct {
		name, encoding, body string
		status               int
	}{
		{"gzip", "gzip", gz(good), 200}, {"in capitals", "GZIP", gz(good), 200}, {"by its old name", "x-gzip", gz(good), 200}, {"deflate", "deflate", zl(good), 200}, {"deflate without its frame", "deflate", raw(good), 200},
		{"zstd", "zstd", zs(good), 200}, {"none", "identity", good, 200}, {"none among some", "identity, gzip, ", gz(good), 200}, {"two, in their order", "deflate, gzip", gz(zl(good)), 200},
		{"two, in the wrong order", "gzip, deflate", gz(zl(good)), 400}, {"four", "gzip,zstd,deflate,gzip", gz(zl(zs(gz(good)))), 200}, {"five", "gzip,gzip,gzip,gzip,gzip", gz(gz(gz(gz(gz(good))))), 400},
		{"a hundred", strings.Repeat("gzip,", 100), gz(good), 400}, {"unknown", "br", good, 415}, {"with a weight", "gzip;q=1", gz(good), 415}, {"nonsense", "\"gzip\"", gz(good), 415},
		{"none that says gzip", "gzip", good, 400}, {"gzip that says zstd", "zstd", gz(good), 400}, {"gzip that says nothing", "", gz(good), 400}, {"nothing in gzip", "gzip", "", 400}, {"an empty text in gzip", "gzip", gz(""), 400},
		{"cut gzip", "gzip", gz(good)[:40], 400}, {"cut deflate", "deflate", zl(good)[:40], 400}, {"cut zstd", "zstd", zs(good)[:40], 400}, {"a wrong checksum", "gzip", flip(gz(good), -6), 400},
		{"more behind gzip", "gzip", gz(good) + "X-Smuggled: 1", 400}, {"gzip in two members", "gzip", gz(good[:20]) + gz(good[20:]), 200},
		{"a gzip bomb", "gzip", gz(zeros), 413}, {"a deflate bomb", "deflate", zl(zeros), 413}, {"a bare deflate bomb", "deflate", raw(zeros), 413}, {"a zstd bomb", "zstd", zs(zeros), 413}, {"a bomb in a bomb", "gzip, gzip, zstd", zs(gz(gz(zeros))), 413},
		{"a little too much", "gzip", gz(spaces), 413}, {"a zstd window of 2 GiB", "zstd", "\x28\xb5\x2f\xfd\x00\xa8" + strings.Repeat("\x01\x00\x00", 30), 413}, {"a zstd size of 2^63", "zstd", "\x28\xb5\x2f\xfd\xe0\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x00\x00", 413},
		{"a zstd dictionary", "zstd", "\x28\xb5\x2f\xfd\x21\x07\x05\x01\x00\x00", 400}, {"zstd frames to skip", "zstd", strings.Repeat("\x50\x2a\x4d\x18\x00\x00\x00\x00", 10000) + zs(good), 200}, {"noise", "zstd", "\x28\xb5\x2f\xfd" + strings.Repeat("\xff", 1000), 0},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := w.ask(post("/v1/chat/completions", c.body, "Content-Encoding: "+c.encoding+"\r\n"))
		runtime.ReadMemStats(&after)
		n++
		if a.status != c.status && (c.status != 0 || a.status < 400) {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
		if a.status != 200 {
			refusal(t, c.name, "/v1/chat/completions", a)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 48 {
			t.Errorf("%s: %d MiB were allocated for a body of at most 1 MiB", c.name, used)
		}
	}
	for i, r := range w.tap.requests(t) {
		if r.head.Header.Get("Content-Encoding") != "" || r.body != strings.Replace(good, `"m"`, `"fake-model"`, 1) {
			t.Errorf("request %d: the engine got %.200q", i, r.body)
		}
	}
	for _, call := range w.calls(n) {
		if call.Outcome != record.Complete && (call.Outcome != record.Rejected || call.Forwarded) {
			t.Errorf("recorded as %s: %s", call.Outcome, call.Detail)
		}
	}
}

// flip changes one byte, counted from the end where at is negative.
func flip(s string, at int) string {
	b := []byte(s)
	b[(at+len(b))%len(b)] ^= 0xff
	return string(b)
}
