package store

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
)

// slowCallRecord is appendCallRecord by encoding/json.
func slowCallRecord(c *record.Call) ([]byte, error) {
	bare := *c
	bare.Session, bare.Instance = "", ""
	bare.Edits, bare.Choices = slices.Clone(c.Edits), slices.Clone(c.Choices)
	var raws []json.RawMessage
	eachCallRaw(&bare, take(&raws))
	return appendRecord(nil, &bare, raws)
}

func checkCallRecord(t rapid.TB, c *record.Call) {
	t.Helper()
	want, err := slowCallRecord(c)
	got, failure := appendCallRecord(nil, c)
	if (err == nil) != (failure == nil) {
		t.Fatalf("fails with %v, encoding/json with %v", failure, err)
	}
	if string(got) != string(want) {
		t.Fatalf("encoded\n%q, encoding/json says\n%q", got, want)
	}
}

// fill gives every field of a record a value that shows, whatever fields there are.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(1_700_000_000+*n), int64(*n)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.String:
		v.SetString("text " + string(rune('a'+*n%26)))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(-float64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"raw": 1.50}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			if v.Index(i).Kind() != reflect.Uint8 {
				fill(v.Index(i), n)
			}
		}
	default:
		panic("a kind of field that the test does not know: " + v.Kind().String())
	}
}

// A field that is added to a record and forgotten here fails this test.
func TestCallJSONHasEveryField(t *testing.T) {
	var full record.Call
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	checkCallRecord(t, &full)
	checkCallRecord(t, &record.Call{})
}

func TestCallJSONIsThatOfTheStandardLibrary(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,20}`), rapid.SampledFrom([]string{"", "\x00", "\x7f", "<a&b>", "\u2028", "a\"b\\c", "\xff\xfe", "é\n\t\r\b"}))
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMicro(rapid.Int64Range(-1e15, 4e15).Draw(t, "µs")).In(time.FixedZone("", 60*rapid.IntRange(-600, 600).Draw(t, "zone")))
	})
	rapid.Check(t, func(t *rapid.T) {
		var c record.Call
		c.Number, c.RequestID, c.Model, c.Detail = rapid.Int().Draw(t, "number"), text.Draw(t, "request id"), text.Draw(t, "model"), text.Draw(t, "detail")
		c.Conflicts = rapid.SliceOf(text).Draw(t, "conflicts")
		c.Stream, c.Forwarded = rapid.Bool().Draw(t, "stream"), rapid.Bool().Draw(t, "forwarded")
		c.Timing.Received, c.Timing.Recorded = moment.Draw(t, "received"), moment.Draw(t, "recorded")
		c.Usage.Prompt = rapid.Ptr(rapid.Int64(), true).Draw(t, "prompt")
		for range rapid.IntRange(0, 3).Draw(t, "edits") {
			c.Edits = append(c.Edits, record.Edit{Param: text.Draw(t, "param"), Why: text.Draw(t, "why"), To: json.RawMessage(`1.0`)})
		}
		for range rapid.IntRange(0, 3).Draw(t, "choices") {
			c.Choices = append(c.Choices, record.Choice{Index: rapid.Int().Draw(t, "index"), FinishReason: text.Draw(t, "finish"),
				Remarks: []record.Remark{{Code: text.Draw(t, "code"), Detail: text.Draw(t, "detail")}}})
		}
		checkCallRecord(t, &c)
	})
}

func TestCallJSONFails(t *testing.T) {
	c := record.Call{Timing: record.Timing{Received: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}}
	checkCallRecord(t, &c)
	if _, err := appendCallRecord(nil, &c); err == nil || !strings.Contains(err.Error(), "cannot encode") {
		t.Errorf("a year that JSON has no word for: %v", err)
	}
}

func BenchmarkCallRecord(b *testing.B) {
	var full record.Call
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	for _, way := range []struct {
		name   string
		encode func(*record.Call) ([]byte, error)
	}{{"ours", func(c *record.Call) ([]byte, error) { return appendCallRecord(nil, c) }}, {"encoding-json", slowCallRecord}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := way.encode(&full); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
