package continuity

import "testing"

// A call without arguments comes back with the empty object from the dialects that have objects there.
func TestNoArgumentsAreTheEmptyObject(t *testing.T) {
	call := func(arguments string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"ls","arguments":` + arguments + `}}]}`
	}
	given, echo, other := newSaid([]byte(call(`""`)), ""), newSaid([]byte(call(`"{}"`)), ""), newSaid([]byte(call(`"{\"p\":1}"`)), "")
	if given.key != echo.key || !given.comesBackAs(echo, nil) {
		t.Error("no arguments and {} are taken for different answers")
	}
	if given.key == other.key {
		t.Error("no arguments and some are taken for one answer")
	}
	text := newSaid([]byte(`{"role":"assistant","content":"\"arguments\":\"\""}`), "")
	if same := newSaid([]byte(`{"role":"assistant","content":"\"arguments\":\"{}\""}`), ""); text.key == same.key {
		t.Error("text was read as arguments")
	}
}
