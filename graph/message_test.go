package graph

import (
	"encoding/json"
	"testing"
)

func TestCanonicalArguments(t *testing.T) {
	equal := [][]string{
		{`{"a":1,"b":2}`, `{ "b": 2.0, "a": 10e-1 }`, `{"b":2,"a":1E0}`, `{"a":0.1e+1,"b":200e-2}`},
		{`{"s":"é"}`, `{"s":"\u00e9"}`},
		{`0`, `-0`, `0.000`, `0e7`},
		{`100`, `1e2`, `1.00E+2`},
		{``, `  `},
		{`not json`, ` not json `},
	}
	for i, group := range equal {
		for _, s := range group {
			if a, b := canonicalArguments(group[0]), canonicalArguments(s); a != b {
				t.Errorf("%q and %q differ: %s, %s", group[0], s, a, b)
			}
			for j, other := range equal {
				if i != j && canonicalArguments(s) == canonicalArguments(other[0]) {
					t.Errorf("%q and %q are the same", s, other[0])
				}
			}
		}
	}
	for _, pair := range [][2]string{
		{`9007199254740993`, `9007199254740992`},
		{`{"a":1}`, `{"a":"1"}`},
		{`{"a":1}`, `{"a":1} x`},
		{`1e99999999999999999999`, `1e99999999999999999998`},
		{`["a,b"]`, `["a","b"]`},
		{`-1`, `1`},
		{`{}`, ``},
		{`null`, `"null"`},
	} {
		if canonicalArguments(pair[0]) == canonicalArguments(pair[1]) {
			t.Errorf("%q and %q are the same", pair[0], pair[1])
		}
	}
}

func TestSameMessage(t *testing.T) {
	base := `{"role":"assistant","content":"hi","tool_calls":[{"id":"c1","type":"function","function":{"name":"sh","arguments":"{\"a\": 1}"}}]}`
	for _, tc := range []struct {
		name, other string
		same        bool
	}{
		{"noise of a provider", `{"content":" hi\n","role":"assistant","refusal":null,"audio":null,"reasoning_content":"hm","tool_calls":[{"index":0,"id":"z","function":{"arguments":"{\"a\":1.0}","name":"sh"}}]}`, true},
		{"parts", `{"role":"assistant","content":[{"type":"text","text":"h"},{"type":"image_url"},{"type":"output_text","text":"i"}],"tool_calls":[{"function":{"name":"sh","arguments":{"a":1}}}]}`, true},
		{"another role", `{"role":"user","content":"hi","tool_calls":[{"function":{"name":"sh","arguments":"{\"a\":1}"}}]}`, false},
		{"another call", `{"role":"assistant","content":"hi","tool_calls":[{"function":{"name":"ls","arguments":"{\"a\":1}"}}]}`, false},
		{"no call", `{"role":"assistant","content":"hi"}`, false},
		{"a call more", `{"role":"assistant","content":"hi","tool_calls":[{"function":{"name":"sh","arguments":"{\"a\":1}"}},{"function":{"name":"sh","arguments":"{\"a\":1}"}}]}`, false},
	} {
		a, b := parseMessage(json.RawMessage(base), ""), parseMessage(json.RawMessage(tc.other), "")
		if got := a.identity() == b.identity(); got != tc.same {
			t.Errorf("%s: same=%v, want %v", tc.name, got, tc.same)
		}
	}
	one := parseMessage(json.RawMessage(`{"role":"a","content":"bc"}`), "")
	two := parseMessage(json.RawMessage(`{"role":"ab","content":"c"}`), "")
	if one.identity() == two.identity() {
		t.Error("parts run into each other")
	}
}

func TestMessageLinkNeedsAShorterRequest(t *testing.T) {
	// Two calls that were answered with nothing repeat each other; neither is the other's parent.
	q := []json.RawMessage{say("user", "q")}
	g := Link([]Turn{{ID: "a", Request: q}, {ID: "b", Arrival: 1, Request: q}})
	if got := parentsOf(g); len(got) != 0 {
		t.Errorf("parents %v", got)
	}
	if len(g.Ambiguous) != 1 {
		t.Errorf("ambiguous %v, want the two", g.Ambiguous)
	}
}
