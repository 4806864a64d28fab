package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"captureproxy/export"
)

// lines writes one JSON value a line.
type lines struct {
	out *bufio.Writer
	enc *json.Encoder
}

func newLines(w io.Writer) *lines {
	out := bufio.NewWriterSize(w, 64<<10)
	return &lines{out: out, enc: newEncoder(out)}
}

// newEncoder leaves text as it is: nobody shows it in a web page.
func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func (l *lines) put(v any) error { return l.enc.Encode(v) }
func (l *lines) close() error    { return l.out.Flush() }

// number is a float that JSON shows as one: readers that guess a column's type see 1.0, never 1.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	b, err := export.Logprobs{float64(n)}.MarshalJSON()
	return bytes.Trim(b, "[]"), err
}

// optional is a number, or null.
func optional(v *float64) *number {
	if v == nil {
		return nil
	}
	n := number(*v)
	return &n
}

// orNull is a string, null when empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// seconds is a moment as Unix time; 0 where it is not known, which the trainers' own types have there too.
func seconds(t export.Time) number {
	if t.IsZero() {
		return 0
	}
	return number(float64(t.UnixMicro()) / float64(time.Second/time.Microsecond))
}

// member is a key and its value, of an object whose order counts.
type member struct {
	key   string
	value any
}

type object []member

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := newEncoder(&b)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
