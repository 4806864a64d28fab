package engine

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readArray(t *testing.T, r io.Reader) (raw string, elements []string) {
	t.Helper()
	counted := &countedReader{Reader: r}
	a := NewArrayReader(counted, nil)
	for {
		there, before := a.Buffered(), counted.reads
		ev, err := a.Next()
		if there && counted.reads > before {
			t.Fatal("the reader waits for an element that it says it has")
		}
		if err == io.EOF {
			return raw, elements
		}
		if err != nil {
			t.Fatal(err)
		}
		raw += string(ev.Raw)
		if len(ev.Data) > 0 {
			elements = append(elements, string(ev.Data))
		}
	}
}

func TestArrayReaderAtEverySplit(t *testing.T) {
	const stream = "[{\"a\": [1, {\"b\": \"]}\\\\\\\"[\"}]}\n,\r\n{\"c\": \"\\\\\"}, {}\n]\n"
	want := []string{`{"a": [1, {"b": "]}\\\"["}]}`, `{"c": "\\"}`, `{}`}
	for split := range len(stream) {
		raw, elements := readArray(t, io.MultiReader(strings.NewReader(stream[:split]), strings.NewReader(stream[split:])))
		if raw != stream || strings.Join(elements, "|") != strings.Join(want, "|") {
			t.Fatalf("split at %d: %q, %q", split, raw, elements)
		}
	}
	if raw, elements := readArray(t, iotest.OneByteReader(strings.NewReader(stream))); raw != stream || len(elements) != 3 {
		t.Fatalf("byte by byte: %q, %q", raw, elements)
	}
}

func TestArrayReaderCut(t *testing.T) {
	raw, elements := readArray(t, strings.NewReader(`[{"a":1},{"b`))
	if raw != `[{"a":1},{"b` || len(elements) != 1 {
		t.Fatalf("%q, %q", raw, elements)
	}
}
