package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSkipAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range []string{
		`{}`, `[]`, ` { "a" : [ 1 , -2.5e+3 , true,false,null,"x\u00e9\n" ] } `, `{"a":1,}`, `{,"a":1}`, `[1 2]`, `[1,]`, `01`, `-`, `1.`, `1e`, `tru`,
		`"a`, `"\x"`, `"\u12g4"`, "\"\x01\"", `{"a" 1}`, `{"a":}`, `{1:2}`, `[`, `]`, ``, ` `, `nullx`, `"a"b`, "\"\xff\"", `{"a":1}{}`, `[1]]`,
		`"01234567\`, `"0123456"`, `"01234567"`, "\"0123456\x1f\"", `1E5`, `0.0`, `-0`, `00`,
	} {
		agree(t, []byte(s))
	}
}

func agree(t *testing.T, b []byte) {
	t.Helper()
	c := New(b)
	c.Skip()
	err := c.End()
	if errors.Is(err, ErrDepth) {
		return
	}
	if want := json.Valid(b); want != (err == nil) {
		t.Fatalf("%q: valid is %v, got %v", b, want, err)
	}
}

func FuzzSkip(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"c\\\"d"}],"e":-1.5e-7}`))
	f.Add([]byte(`{"key":"` + strings.Repeat("x", 20) + `\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, b []byte) { agree(t, b) })
}

func FuzzString(f *testing.F) {
	f.Add([]byte(`"plain"`))
	f.Add([]byte(`"\ud83d\ude00 \ud83d x \ude00 \/ \b\f"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(b)
		got, ok := c.String()
		if !ok || c.End() != nil {
			return
		}
		var want string
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q: encoding/json refuses it: %v", b, err)
		}
		if strings.ToValidUTF8(got, "\ufffd") != strings.ToValidUTF8(want, "\ufffd") && !bytes.ContainsRune(b, '\ufffd') && json.Valid(b) {
			if bytes.Equal(bytes.ToValidUTF8(b, nil), b) {
				t.Fatalf("%q: %q, want %q", b, got, want)
			}
		}
		var back string
		if err := json.Unmarshal(AppendQuote(nil, got), &back); err != nil || back != want && bytes.Equal(bytes.ToValidUTF8(b, nil), b) {
			t.Fatalf("%q: quoted and read back: %q, want %q (%v)", b, back, want, err)
		}
	})
}

func TestDepth(t *testing.T) {
	deep := []byte(strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1))
	c := New(deep)
	c.Skip()
	if err := c.End(); !errors.Is(err, ErrDepth) {
		t.Fatalf("got %v", err)
	}
	c = New(deep[1 : len(deep)-1])
	c.Skip()
	if err := c.End(); err != nil {
		t.Fatal(err)
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]struct {
		v  int64
		ok bool
	}{
		"0": {0, true}, "-7": {-7, true}, "9007199254740993": {9007199254740993, true}, "9223372036854775807": {9223372036854775807, true},
		"9223372036854775808": {0, false}, "5.0": {0, false}, "1e3": {0, false}, `"5"`: {0, false}, "null": {0, false}, "true": {0, false},
	} {
		c := New([]byte(in))
		v, ok := c.Int()
		if ok != want.ok || ok && v != want.v || c.End() != nil {
			t.Errorf("%s: %d %v, err %v", in, v, ok, c.Err())
		}
	}
	c := New([]byte("-0.04353007674217224"))
	if v, ok := c.Float(); !ok || v != -0.04353007674217224 {
		t.Error(v, ok)
	}
	c = New([]byte("1e999"))
	if v, ok := c.Float(); ok {
		t.Error("1e999 is no float64, got", v)
	}
}

func TestLoose(t *testing.T) {
	doc := []byte(`[NaN,Infinity,-Infinity,null,-1.5,{"a":NaN}]`)
	c := NewLoose(doc)
	var finite int
	for a := c.Array(); a.Next(); {
		if v, ok := c.Float(); ok {
			finite++
			if v != -1.5 {
				t.Error(v)
			}
		} else if v == v {
			t.Errorf("no number, but %v", v)
		}
	}
	if err := c.End(); err != nil || finite != 1 {
		t.Error(err, finite)
	}
	if c = New(doc); true {
		c.Skip()
	}
	if c.End() == nil {
		t.Error("NaN is no JSON")
	}
}

func TestEditKeepsSpelling(t *testing.T) {
	body := "{ \"temperature\" : 0.70,\n \"seed\":9007199254740993, \"x\\u0041\":\"\\u00e9\\/\" ,\"model\":\"a\"\n}"
	doc, err := ParseDoc([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	got := string(doc.Edit(nil, []Change{{"model", []byte(`"b"`)}, {"logprobs", []byte("true")}, {"absent", nil}}))
	want := "{ \"temperature\" : 0.70,\n \"seed\":9007199254740993, \"x\\u0041\":\"\\u00e9\\/\" ,\"model\":\"b\",\"logprobs\":true\n}"
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if string(doc.Get("xA")) != "\"\\u00e9\\/\"" {
		t.Errorf("escaped key not found: %q", doc.Get("xA"))
	}
}

func TestEditRepeatedKey(t *testing.T) {
	doc, err := ParseDoc([]byte(`{"model":"a","n":1,"mod\u0065l":"b"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(doc.Edit(nil, []Change{{"model", []byte(`"c"`)}})); got != `{"model":"c","n":1,"mod\u0065l":"c"}` {
		t.Error(got)
	}
	if got := string(doc.Edit(nil, []Change{{"model", nil}})); got != `{"n":1}` {
		t.Error(got)
	}
}

// Editing and decoding is the same as decoding and editing, for any object and any set of changes.
func TestEditProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 5, rapid.ID[string]).Draw(t, "keys")
		ws := func() string { return rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space") }
		var sb strings.Builder
		want := map[string]string{}
		sb.WriteString(ws() + "{" + ws())
		for i, k := range keys {
			if i > 0 {
				sb.WriteString("," + ws())
			}
			v := rapid.SampledFrom([]string{`1`, `"x,}"`, `{"a":[1, 2]}`, `null`, `[]`}).Draw(t, "value")
			sb.WriteString(`"` + k + `"` + ws() + ":" + ws() + v + ws())
			want[k] = v
		}
		sb.WriteString("}" + ws())
		var changes []Change
		for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "x", "y"}), 0, 5, rapid.ID[string]).Draw(t, "changed") {
			if rapid.Bool().Draw(t, "remove") {
				changes = append(changes, Change{k, nil})
				delete(want, k)
			} else {
				changes = append(changes, Change{k, []byte(`"new"`)})
				want[k] = `"new"`
			}
		}
		doc, err := ParseDoc([]byte(sb.String()))
		if err != nil {
			t.Fatalf("%q: %v", sb.String(), err)
		}
		edited := doc.Edit(nil, changes)
		var got map[string]json.RawMessage
		if err := json.Unmarshal(edited, &got); err != nil {
			t.Fatalf("%q -> %q: %v", sb.String(), edited, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q -> %q", sb.String(), edited)
		}
		for k, v := range want {
			if string(got[k]) != v {
				t.Fatalf("%q -> %q: %s is %s", sb.String(), edited, k, got[k])
			}
		}
	})
}

func TestAppendInts(t *testing.T) {
	for in, want := range map[string]struct {
		ids          []int32
		array, whole bool
	}{
		"[]": {nil, true, true}, "[1]": {[]int32{1}, true, true}, "[1,22,333]": {[]int32{1, 22, 333}, true, true}, "[1, 2]": {[]int32{1, 2}, true, true},
		" [ 1 ,\n2 ] ": {[]int32{1, 2}, true, true}, "[-1,2147483647]": {[]int32{-1, 2147483647}, true, true}, "[0,10]": {[]int32{0, 10}, true, true},
		"[2147483648,5]": {[]int32{5}, true, false}, "[1.0,2]": {[]int32{2}, true, false}, "[1,null]": {[]int32{1}, true, false}, `["1"]`: {nil, true, false},
		"null": {nil, false, true}, "{}": {nil, false, true}, "12": {nil, false, true},
	} {
		c := New([]byte(in))
		ids, array, whole := c.AppendInts(nil)
		if c.End() != nil || array != want.array || whole != want.whole || !slices.Equal(ids, want.ids) {
			t.Errorf("%s: %v %v %v, %v", in, ids, array, whole, c.Err())
		}
	}
	for _, in := range []string{"[1,]", "[01]", "[1", "[1,", "[,1]", "[1 2]", "["} {
		c := New([]byte(in))
		c.AppendInts(nil)
		if c.End() == nil {
			t.Errorf("%s passed", in)
		}
	}
}

func FuzzAppendInts(f *testing.F) {
	f.Add([]byte("[1,22, 333]"))
	f.Add([]byte("[0,-1,2147483648,1.5,[2]]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(b)
		ids, array, whole := c.AppendInts([]int32{7})
		err := c.End()
		if errors.Is(err, ErrDepth) {
			return
		}
		if want := json.Valid(b); want != (err == nil) {
			t.Fatalf("%q: valid is %v, got %v", b, want, err)
		}
		if err != nil || !array {
			return
		}
		var want []json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		got, all := []int32{7}, true
		for _, w := range want {
			n, err := strconv.ParseInt(string(w), 10, 32)
			if err != nil {
				all = false
				continue
			}
			got = append(got, int32(n))
		}
		if all != whole || !slices.Equal(got, ids) {
			t.Fatalf("%q: %v %v, want %v %v", b, ids, whole, got, all)
		}
	})
}
