package fakeengine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// canonicalArguments returns the one spelling of a tool call's arguments that the engine samples and that its template
// writes, so that a harness may respell them (spacing, key order, escapes, 1.50 for 1.5) and the ids stay. What is no
// JSON object becomes {}, as in vLLM.
func canonicalArguments(raw string) string {
	if !gjson.Valid(raw) {
		return "{}"
	}
	v := gjson.Parse(raw)
	if !v.IsObject() {
		return "{}"
	}
	return string(appendCanonical(nil, v, true))
}

// appendCanonical appends v as Python's json.dumps would space it, with the keys of objects sorted if sorted is set. Of
// equal keys the last counts.
func appendCanonical(dst []byte, v gjson.Result, sorted bool) []byte {
	switch {
	case v.IsObject():
		type member struct {
			key   string
			value gjson.Result
		}
		var members []member
		v.ForEach(func(key, value gjson.Result) bool {
			i := slices.IndexFunc(members, func(m member) bool { return m.key == key.String() })
			if i >= 0 {
				members[i].value = value
			} else {
				members = append(members, member{key.String(), value})
			}
			return true
		})
		if sorted {
			slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
		}
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendString(dst, m.key)
			dst = append(dst, ": "...)
			dst = appendCanonical(dst, m.value, sorted)
		}
		return append(dst, '}')
	case v.IsArray():
		dst = append(dst, '[')
		for i, e := range v.Array() {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendCanonical(dst, e, sorted)
		}
		return append(dst, ']')
	case v.Type == gjson.String:
		return appendString(dst, v.String())
	case v.Type == gjson.Number:
		return appendCanonicalNumber(dst, v.Raw)
	default:
		return append(dst, v.Raw...) // true, false, null
	}
}

// appendCanonicalNumber keeps whole numbers digit by digit, however large, and writes others as the shortest decimal
// that reads back equal; 1.0 becomes 1, as JavaScript harnesses respell it.
func appendCanonicalNumber(dst []byte, raw string) []byte {
	if !strings.ContainsAny(raw, ".eE") {
		if raw == "-0" {
			raw = "0"
		}
		return append(dst, raw...)
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil { // out of range: nothing equal to keep
		return append(dst, raw...)
	}
	if f == 0 {
		return append(dst, '0')
	}
	if whole := int64(f); float64(whole) == f && whole > -1<<53 && whole < 1<<53 {
		return strconv.AppendInt(dst, whole, 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
