package engine

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

type seen struct{ name, data string }

// readAll returns the events and checks that their bytes are the stream's.
func readAll(t interface{ Fatalf(string, ...any) }, stream string, r io.Reader, max int) []seen {
	counted := &countedReader{Reader: r}
	er := NewEventReader(counted, nil)
	if max > 0 {
		er.max = max
	}
	var out []seen
	var raw bytes.Buffer
	for {
		there, before := er.Buffered(), counted.reads
		ev, err := er.Next()
		if there && counted.reads > before {
			t.Fatalf("%q: the reader waits for an event that it says it has", stream)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%v", err)
			}
			break
		}
		raw.Write(ev.Raw)
		if len(ev.Data) > 0 || len(ev.Name) > 0 {
			out = append(out, seen{string(ev.Name), string(ev.Data)})
		}
	}
	if raw.String() != stream {
		t.Fatalf("bytes changed:\n%q\n%q", stream, raw.String())
	}
	return out
}

type countedReader struct {
	io.Reader
	reads int
}

func (r *countedReader) Read(p []byte) (int, error) {
	r.reads++
	return r.Reader.Read(p)
}

func TestEvents(t *testing.T) {
	for stream, want := range map[string][]seen{
		"data: a\n\ndata: b\n\n":                    {{"", "a"}, {"", "b"}},
		"event: x\ndata:a\ndata: b\ndata: c\n\n":    {{"x", "a\nb\nc"}},
		"data: a\r\n\r\ndata: b\r\n\r\n":            {{"", "a"}, {"", "b"}},
		"data: a\r\rdata: b\r\r":                    {{"", "a"}, {"", "b"}},
		": ping\n\ndata: a\n\n\n\ndata: b\n\n":      {{"", "a"}, {"", "b"}},
		"data: {\"a\":\n\ndata: [DONE]":             {{"", `{"a":`}, {"", "[DONE]"}},
		"\ufeffdata: a\n\n":                         {{"", "a"}},
		"id: 7\nretry: 10\ndata\nfoo: bar\n\n":      nil,
		"data: a\n":                                 {{"", "a"}},
		"event: keepalive\n\ndata: : keepalive\n\n": {{"keepalive", ""}, {"", ": keepalive"}},
		"": nil,
	} {
		for split := 0; split <= len(stream); split++ {
			got := readAll(t, stream, io.MultiReader(strings.NewReader(stream[:split]), strings.NewReader(stream[split:])), 0)
			if !equal(got, want) {
				t.Errorf("%q split at %d: %q, want %q", stream, split, got, want)
			}
		}
		if got := readAll(t, stream, iotest.OneByteReader(strings.NewReader(stream)), 0); !equal(got, want) {
			t.Errorf("%q byte by byte: %q, want %q", stream, got, want)
		}
	}
}

func equal(a, b []seen) bool {
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

// An event beyond the cap is passed on in pieces, byte for byte, and the events after it are read as ever (BC26).
func TestOversizedEvent(t *testing.T) {
	huge := strings.Repeat("x", 50_000)
	for _, stream := range []string{
		"data: a\n\ndata: " + huge + "\n\ndata: b\n\n",
		"data: a\n\ndata: " + huge + "\r\ndata: y\r\n\r\ndata: b\n\n",
		"data: a\n\n" + strings.Repeat("data: line\n", 5_000) + "\ndata: b\n\n",
	} {
		if got := readAll(t, stream, strings.NewReader(stream), 10_000); !equal(got, []seen{{"", "a"}, {"", "b"}}) {
			t.Errorf("%q", got)
		}
		if got := readAll(t, stream, iotest.HalfReader(strings.NewReader(stream)), 10_000); !equal(got, []seen{{"", "a"}, {"", "b"}}) {
			t.Errorf("%q", got)
		}
	}
}

// However the stream is cut into reads, its events are the same and its bytes are kept.
func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\ndata: b\n\n: c\n\n", uint8(3))
	f.Add("event: x\rdata: y\r\r", uint8(1))
	f.Fuzz(func(t *testing.T, stream string, step uint8) {
		want := readAll(t, stream, strings.NewReader(stream), 0)
		got := readAll(t, stream, &stepReader{stream, int(step%16) + 1}, 0)
		if !equal(got, want) {
			t.Fatalf("%q in steps of %d: %q, want %q", stream, step%16+1, got, want)
		}
		readAll(t, stream, &stepReader{stream, int(step%16) + 1}, 8)
	})
}

type stepReader struct {
	rest string
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestEventsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nl := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "newline")
		var stream strings.Builder
		var want []seen
		for _, d := range rapid.SliceOf(rapid.StringMatching(`[ -~]{1,40}`)).Draw(t, "data") {
			stream.WriteString("data: " + d + nl + nl)
			want = append(want, seen{"", d})
		}
		got := readAll(t, stream.String(), &stepReader{stream.String(), rapid.IntRange(1, 9).Draw(t, "step")}, 0)
		if !equal(got, want) {
			t.Fatalf("%q: %q", stream.String(), got)
		}
	})
}

func BenchmarkEvents(b *testing.B) {
	stream := strings.Repeat("data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n", 200)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		er := NewEventReader(strings.NewReader(stream), nil)
		for {
			if _, err := er.Next(); err != nil {
				break
			}
		}
	}
}
