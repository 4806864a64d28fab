package jsonscan

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// An edited document is JSON, has the new values and not the old ones, and keeps every other member byte for byte.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":1, "b" : [2], "a":3}`), "a", `"x"`, "c")
	f.Add([]byte("{\n  \"k\": {}\n}\n"), "k", "", "k2")
	f.Add([]byte(`{}`), "", "0", "")
	f.Fuzz(func(t *testing.T, body []byte, key, value, other string) {
		d, err := ParseDoc(body)
		if err != nil || !json.Valid(body) {
			return
		}
		to := []byte(value)
		if value == "" {
			to = nil
		} else if !json.Valid(to) {
			return
		}
		change := []Change{{Key: key, To: to}}
		if other != key {
			change = append(change, Change{Key: other, To: []byte("[7]")})
		}
		out := d.Edit(nil, change)
		if !json.Valid(out) {
			t.Fatalf("%q became %q", body, out)
		}
		again, err := ParseDoc(out)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.Get(key); !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(to)) && utf8.ValidString(key) {
			t.Fatalf("%q: %q is %q, want %q", out, key, got, to)
		}
		for i := range d.Members {
			m := &d.Members[i]
			if m.Key != key && m.Key != other && !bytes.Contains(out, body[m.KeyStart:m.End]) {
				t.Fatalf("%q lost %q", out, body[m.KeyStart:m.End])
			}
		}
	})
}
