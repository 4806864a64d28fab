package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeForm is RFC 3339 in UTC with microseconds.
const timeForm = "2006-01-02T15:04:05.000000Z"

// Time is a moment in the document; the zero time is null.
type Time struct{ time.Time }

// MarshalJSON writes the moment in UTC with microseconds.
func (t Time) MarshalJSON() ([]byte, error) { return appendTime(nil, t), nil }

// UnmarshalJSON reads RFC 3339 or null.
func (t *Time) UnmarshalJSON(b []byte) error {
	*t = Time{}
	if string(b) == "null" {
		return nil
	}
	return t.Time.UnmarshalJSON(b)
}

func appendTime(b []byte, t Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeForm)
	return append(b, '"')
}

// Logprobs are log-probabilities in nats; NaN stands for one that was null or not finite, and is null in the
// document. A nil list is null: the engine gave none.
type Logprobs []float64

// MarshalJSON writes numbers as the engine spelled them.
func (l Logprobs) MarshalJSON() ([]byte, error) { return appendLogprobs(nil, l), nil }

// UnmarshalJSON reads a list of numbers and nulls.
func (l *Logprobs) UnmarshalJSON(b []byte) error {
	*l = nil
	return eachElement(b, func(i int, text []byte) error {
		if *l == nil {
			*l = make(Logprobs, 0, bytes.Count(b, []byte{','})+1)
		}
		if i < 0 {
			return nil
		}
		if string(text) == "null" {
			*l = append(*l, math.NaN())
			return nil
		}
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return fmt.Errorf("logprob %d is %q, want a number or null", i, text)
		}
		*l = append(*l, v)
		return nil
	})
}

func appendLogprobs(b []byte, l Logprobs) []byte {
	if l == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFloat(b, v)
	}
	return append(b, ']')
}

// appendFloat writes the shortest spelling that reads back as v, and a float for readers that tell 0 from 0.0.
// Whatever is no finite number is null.
func appendFloat(b []byte, v float64) []byte {
	if v == 0 && !math.Signbit(v) {
		return append(b, "0.0"...) // most of a row
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	form := byte('f')
	if size := math.Abs(v); size != 0 && (size < 1e-4 || size >= 1e16) {
		form = 'e'
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, form, -1, 64)
	if form == 'f' && !bytes.Contains(b[start:], []byte{'.'}) {
		b = append(b, ".0"...)
	}
	return b
}

// Mask holds a 1 for each token that is trained on and a 0 for context.
type Mask []uint8

// MarshalJSON writes a list of numbers, which Go would otherwise take for bytes.
func (m Mask) MarshalJSON() ([]byte, error) { return appendMask(nil, m), nil }

// UnmarshalJSON reads a list of 0 and 1.
func (m *Mask) UnmarshalJSON(b []byte) error {
	*m = nil
	return eachElement(b, func(i int, text []byte) error {
		if *m == nil {
			*m = make(Mask, 0, len(b)/2)
		}
		switch {
		case i < 0:
			return nil
		case string(text) == "0" || string(text) == "1":
			*m = append(*m, text[0]-'0')
			return nil
		}
		return fmt.Errorf("loss_mask %d is %s, want 0 or 1", i, text)
	})
}

func appendMask(b []byte, m Mask) []byte {
	b = append(b, '[')
	for i, v := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '0'+v)
	}
	return append(b, ']')
}

// eachElement calls f for each element of a flat JSON list, and once with -1 for a list without any; never for null.
func eachElement(b []byte, f func(i int, text []byte) error) error {
	b = bytes.TrimSpace(b)
	if string(b) == "null" {
		return nil
	}
	if len(b) < 2 || b[0] != '[' {
		return &json.UnmarshalTypeError{Value: string(b[:min(len(b), 20)]), Offset: 0}
	}
	inner := bytes.TrimSpace(b[1 : len(b)-1])
	if len(inner) == 0 {
		return f(-1, nil)
	}
	for i := 0; ; i++ {
		text, rest, more := bytes.Cut(inner, []byte{','})
		if err := f(i, bytes.TrimSpace(text)); err != nil {
			return err
		}
		if !more {
			return nil
		}
		inner = rest
	}
}
