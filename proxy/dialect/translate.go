package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// translation collects what a translation to chat leaves out or says otherwise. The same thing found again, in another
// block or message, is counted and not listed again: a long history would repeat itself in every turn's record.
type translation struct {
	edits []record.Edit
	found []int // how often, for each edit
	at    map[string]int
}

// maxFrom bounds the value that an edit quotes; the harness's own body is in the record anyway.
const maxFrom = 256

// note adds an edit for something that is left out; from is its JSON, nil for none. Where many things are alike, param is
// a pattern (`messages[].content[].citations`) and from the first of them.
func (t *translation) note(param string, from []byte, why string) {
	t.put(record.Edit{Param: param, From: short(from), Why: why})
}

// noteBehaviour is note for what changes what the model does.
func (t *translation) noteBehaviour(param string, from []byte, why string) {
	t.put(record.Edit{Param: param, From: short(from), Why: why, Behaviour: true})
}

// put adds an edit of a translation.
func (t *translation) put(edit record.Edit) {
	key := edit.Param + "\x00" + edit.Why
	if i, known := t.at[key]; known {
		t.found[i]++
		return
	}
	if t.at == nil {
		t.at = map[string]int{}
	}
	t.at[key] = len(t.edits)
	edit.Kind = record.EditTranslate
	if edit.To == nil {
		edit.To = json.RawMessage("null")
	}
	t.edits = append(t.edits, edit)
	t.found = append(t.found, 1)
}

// list returns the edits, with how many things each stands for. It is called once, at the end.
func (t *translation) list() []record.Edit {
	for i, n := range t.found {
		if n > 1 {
			t.edits[i].Why += fmt.Sprintf(" (%d of them)", n)
		}
	}
	return t.edits
}

// short is a value as an edit quotes it: whole, or, when it is long, its type and its beginning.
func short(raw []byte) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	if len(raw) <= maxFrom {
		return raw
	}
	head := string(raw[:wholeChars(raw[:maxFrom])])
	if kind := typeOf(raw); kind != "" {
		head = "type " + kind + ": " + head
	}
	return jsonscan.AppendQuote(nil, head+"…")
}

// parseBody parses a request body.
func parseBody(body []byte) (*jsonscan.Doc, error) {
	doc, err := jsonscan.ParseDoc(body)
	if errors.Is(err, jsonscan.ErrDepth) {
		return nil, &Error{Status: http.StatusBadRequest, Text: "the request body nests too deeply"}
	}
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("the request body is no JSON object: %v", err)}
	}
	return doc, nil
}

// isNull says whether a member is absent or null, which means the same everywhere.
func isNull(raw []byte) bool { return raw == nil || string(raw) == "null" }

// member is a member of an object that a translation has no use for.
type member struct {
	key string
	raw []byte
}

// sampling is the object of the parameters that a harness sent, in its own spelling.
type sampling struct{ buf []byte }

func (s *sampling) add(key string, raw []byte) {
	sep := byte(',')
	if s.buf == nil {
		sep = '{'
	}
	s.buf = jsonscan.AppendQuote(append(s.buf, sep), key)
	s.buf = append(append(s.buf, ':'), raw...)
}

func (s *sampling) object() json.RawMessage {
	if s.buf == nil {
		return json.RawMessage("{}")
	}
	return append(s.buf, '}')
}

// wholeChars returns the length of b without a character at its end of which bytes are still to come: an event must not
// hold half a character.
func wholeChars(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if c < utf8.RuneSelf {
			break
		}
		if utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

// validJSON says whether a text is one JSON value. What an engine wrote as arguments may be cut.
func validJSON(text []byte) bool {
	cur := jsonscan.New(text)
	cur.Skip()
	return cur.End() == nil
}

// stringOf returns the text of a JSON string, "" when raw is none.
func stringOf(raw []byte) string {
	cur := jsonscan.New(raw)
	s, _ := cur.String()
	return s
}

// orEmpty is a JSON string, or the empty one in place of anything else.
func orEmpty(raw []byte) []byte {
	if inside(raw) == nil {
		return []byte(`""`)
	}
	return raw
}
