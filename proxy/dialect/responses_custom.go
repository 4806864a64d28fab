package dialect

import (
	"bytes"

	"captureproxy/internal/jsonscan"
)

// customArguments are the arguments of the function that stands for a custom tool, for a call of the history. They are
// spelled as engines' tool parsers spell JSON.
func customArguments(input []byte) []byte {
	return append(append([]byte(`{"input": `), orEmpty(input)...), '}')
}

// customInput takes the input of a custom tool's call out of the function's arguments while they grow. Arguments that are
// not of the expected form are given whole, at the end.
type customInput struct {
	text []byte // the input so far
	at   int    // how much of the arguments has been read
	form inputForm
}

type inputForm int

const (
	formUnknown inputForm = iota
	formText              // inside the string of `input`
	formDone
	formOther
)

// grow reads what is new in the arguments.
func (c *customInput) grow(arguments []byte) {
	if c.form == formUnknown {
		c.at, c.form = inputStart(arguments)
	}
	if c.form != formText {
		return
	}
	rest := arguments[c.at:]
	n := 0
	for n < len(rest) {
		b := rest[n]
		if b == '"' {
			c.form = formDone
			break
		}
		if b != '\\' {
			n++
			continue
		}
		size := escapeLength(rest[n:])
		if size == 0 {
			break // the rest of it is to come
		}
		n += size
	}
	c.text = jsonscan.Unescape(c.text, rest[:n])
	c.at += n
}

// end reads the arguments to their end.
func (c *customInput) end(arguments []byte) {
	c.grow(arguments)
	if c.form != formUnknown && c.form != formOther {
		return
	}
	c.form = formOther
	c.text = append(c.text[:0], arguments...)
	doc, err := jsonscan.ParseDoc(arguments)
	if err != nil {
		return
	}
	if input := doc.Get("input"); inside(input) != nil {
		cur := jsonscan.New(input)
		c.text, _ = cur.AppendString(nil)
	}
}

// inputStart returns where the text begins in arguments that begin with `{"input": "`.
func inputStart(arguments []byte) (int, inputForm) {
	at := 0
	for _, token := range []string{"{", `"input"`, ":", `"`} {
		for at < len(arguments) && bytes.IndexByte([]byte(" \t\r\n"), arguments[at]) >= 0 {
			at++
		}
		rest := arguments[at:]
		if len(rest) < len(token) {
			if bytes.HasPrefix([]byte(token), rest) {
				return 0, formUnknown
			}
			return 0, formOther
		}
		if string(rest[:len(token)]) != token {
			return 0, formOther
		}
		at += len(token)
	}
	return at, formText
}

// escapeLength returns the length of the escape that b begins with, a surrogate pair counted as one; 0 while it is not
// complete.
func escapeLength(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case b[1] != 'u':
		return 2
	case len(b) < 6:
		return 0
	}
	high := (b[2] == 'd' || b[2] == 'D') && bytes.IndexByte([]byte("89abAB"), b[3]) >= 0
	switch {
	case !high:
		return 6
	case len(b) == 6 || b[6] == '\\' && (len(b) == 7 || b[7] == 'u' && len(b) < 12):
		return 0
	case b[6] == '\\' && b[7] == 'u' && (b[8] == 'd' || b[8] == 'D') && bytes.IndexByte([]byte("cdefCDEF"), b[9]) >= 0:
		return 12
	}
	return 6
}
