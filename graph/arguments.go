package graph

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// canonicalArguments writes tool-call arguments so that two spellings of one JSON value come out equal: key order,
// spacing, escapes and number spelling aside. Numbers stay exact. Text that is no JSON stays as it is, trimmed.
func canonicalArguments(text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return "text " + strings.TrimSpace(text)
	}
	if _, err := dec.Token(); err != io.EOF {
		return "text " + strings.TrimSpace(text)
	}
	var b bytes.Buffer
	b.WriteString("json ")
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		b.WriteString(strconv.Quote(v))
	case json.Number:
		b.WriteString(canonicalNumber(string(v)))
	case []any:
		b.WriteByte('[')
		for _, e := range v {
			writeCanonical(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(k))
			b.WriteByte(':')
			writeCanonical(b, v[k])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	}
}

// canonicalNumber writes a JSON number as its digits and a power of ten, without loss: 1, 1.0 and 10e-1 are "1e0".
func canonicalNumber(s string) string {
	mantissa, power, scaled := cutExponent(s)
	exp := 0
	if scaled {
		n, err := strconv.Atoi(power)
		if err != nil || n > 1<<40 || n < -1<<40 {
			return s // an exponent of this size is no number anybody meant: compare as spelled
		}
		exp = n
	}
	negative := strings.HasPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	exp -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	trimmed := strings.TrimRight(digits, "0")
	exp += len(digits) - len(trimmed)
	sign := ""
	if negative {
		sign = "-"
	}
	return sign + trimmed + "e" + strconv.Itoa(exp)
}

func cutExponent(s string) (mantissa, power string, ok bool) {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i], strings.TrimPrefix(s[i+1:], "+"), true
	}
	return s, "", false
}
