// Package jsonscan walks JSON bytes once, in place, without building values, and edits them by splices, so that what is
// not edited keeps its spelling: key order, escapes, `0.70`, 9007199254740993.
//
// A [Cursor] moves over one document. Objects and arrays are visited by iterators that stand on the cursor:
//
//	c := jsonscan.New(body)
//	for o := c.Object(); o.Next(); {
//		switch string(o.Key) {
//		case "model":
//			model, _ = c.String()
//		case "choices":
//			for a := c.Array(); a.Next(); { … }
//		}   // a value that nobody consumed is skipped by the next Next
//	}
//	if err := c.End(); err != nil { … }
//
// The grammar is RFC 8259's, checked strictly for every byte that is passed, except that strings may hold invalid UTF-8
// (as encoding/json's Valid allows). Nesting deeper than [MaxDepth] is an error. The first error sticks; after it, all
// iterators end.
package jsonscan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
)

// MaxDepth is the deepest nesting that a cursor follows.
const MaxDepth = 1000

// ErrDepth says that a document nests deeper than MaxDepth.
var ErrDepth = errors.New("nested too deeply")

// SyntaxError says at which byte a document stops being JSON.
type SyntaxError struct {
	Offset int
	Want   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: expected %s", e.Offset, e.Want)
}

// Cursor is a position in a JSON document. The zero value is not usable; see New.
type Cursor struct {
	buf   []byte
	pos   int
	depth int
	err   error
	// loose also admits the number spellings NaN, Infinity and -Infinity.
	loose bool
}

// New returns a cursor before the first value of b. The cursor keeps b and never writes to it.
func New(b []byte) Cursor {
	return Cursor{buf: b}
}

// NewLoose is New for the answers of engines written in Python, whose encoder spells what JSON has no number for as NaN,
// Infinity and -Infinity: they are passed over, and [Cursor.Float] gives NaN and false for them.
func NewLoose(b []byte) Cursor {
	return Cursor{buf: b, loose: true}
}

// Pos is the offset of the next unread byte.
func (c *Cursor) Pos() int { return c.pos }

// Err is the first error met.
func (c *Cursor) Err() error { return c.err }

// End reports an error if one was met or if anything but white space follows.
func (c *Cursor) End() error {
	c.space()
	if c.err == nil && c.pos != len(c.buf) {
		c.fail("end of input")
	}
	return c.err
}

func (c *Cursor) fail(want string) {
	if c.err == nil {
		c.err = &SyntaxError{Offset: c.pos, Want: want}
	}
	c.pos = len(c.buf)
}

func (c *Cursor) space() {
	for c.pos < len(c.buf) {
		switch c.buf[c.pos] {
		case ' ', '\n', '\t', '\r':
			c.pos++
		default:
			return
		}
	}
}

// Peek returns the first byte of the next value, 0 at the end: '{', '[', '"', 't', 'f', 'n', '-' or a digit.
func (c *Cursor) Peek() byte {
	c.space()
	if c.pos >= len(c.buf) {
		return 0
	}
	return c.buf[c.pos]
}

// Null consumes the next value if it is null and says whether it was.
func (c *Cursor) Null() bool {
	if c.Peek() != 'n' {
		return false
	}
	c.literal("null")
	return true
}

// Raw consumes the next value and returns its bytes, a part of the document.
func (c *Cursor) Raw() []byte {
	c.space()
	start := c.pos
	c.skip()
	if c.err != nil {
		return nil
	}
	return c.buf[start:c.pos]
}

// Skip consumes the next value.
func (c *Cursor) Skip() {
	c.space()
	c.skip()
}

func (c *Cursor) skip() {
	if c.pos >= len(c.buf) {
		c.fail("a value")
		return
	}
	switch b := c.buf[c.pos]; {
	case b == '"':
		c.quoted()
	case b == '{':
		for o := c.Object(); o.Next(); {
			c.Skip()
		}
	case b == '[':
		if c.skipInts() {
			return
		}
		for a := c.Array(); a.Next(); {
			c.Skip()
		}
	case b == 't':
		c.literal("true")
	case b == 'f':
		c.literal("false")
	case b == 'n':
		c.literal("null")
	case c.loose && c.notFinite():
	case b == '-' || '0' <= b && b <= '9':
		c.number()
	default:
		c.fail("a value")
	}
}

// notFinite consumes NaN, Infinity or -Infinity.
func (c *Cursor) notFinite() bool {
	for _, word := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if len(c.buf)-c.pos >= len(word) && string(c.buf[c.pos:c.pos+len(word)]) == word {
			c.pos += len(word)
			return true
		}
	}
	return false
}

func (c *Cursor) literal(word string) {
	if len(c.buf)-c.pos < len(word) || string(c.buf[c.pos:c.pos+len(word)]) != word {
		c.fail(word)
		return
	}
	c.pos += len(word)
}

// number consumes a number and says whether it is whole (no fraction, no exponent).
func (c *Cursor) number() (whole bool) {
	b, i := c.buf, c.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		c.pos = i
		c.fail("a digit")
		return false
	}
	whole = true
	if i < len(b) && b[i] == '.' {
		whole = false
		j := digits(b, i+1)
		if j == i+1 {
			c.pos = j
			c.fail("a digit")
			return false
		}
		i = j
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		whole = false
		j := i + 1
		if j < len(b) && (b[j] == '+' || b[j] == '-') {
			j++
		}
		k := digits(b, j)
		if k == j {
			c.pos = j
			c.fail("a digit")
			return false
		}
		i = k
	}
	c.pos = i
	return whole
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// quoted consumes a string, the cursor being on its opening quote, and says whether it holds a backslash.
func (c *Cursor) quoted() (escaped bool) {
	b, i := c.buf, c.pos+1
	for {
		i = plain(b, i)
		if i >= len(b) {
			c.pos = len(b)
			c.fail("a closing quote")
			return escaped
		}
		switch b[i] {
		case '"':
			c.pos = i + 1
			return escaped
		case '\\':
			escaped = true
			n := escape(b[i:])
			if n == 0 {
				c.pos = i
				c.fail("a valid escape")
				return escaped
			}
			i += n
		default:
			c.pos = i
			c.fail("an escaped control character")
			return escaped
		}
	}
}

// plain returns the index of the first quote, backslash or control character of b from i on, or len(b). Long texts are
// most of what passes, so it looks at eight bytes at a time.
func plain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		hit := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if hit &= highs; hit != 0 {
			// A borrow may mark a byte above a true hit, never below one: the lowest mark is right.
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if b[i] < 0x20 || b[i] == '"' || b[i] == '\\' {
			break
		}
	}
	return i
}

// escape returns the length of the escape sequence that b begins with, 0 when it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, h := range b[2:6] {
			if !('0' <= h && h <= '9' || 'a' <= h && h <= 'f' || 'A' <= h && h <= 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// String consumes the next value; ok is false, and the value skipped, when it is not a string. Without escapes it
// copies once.
func (c *Cursor) String() (s string, ok bool) {
	if c.Peek() != '"' {
		c.Skip()
		return "", false
	}
	start := c.pos
	escaped := c.quoted()
	if c.err != nil {
		return "", false
	}
	inner := c.buf[start+1 : c.pos-1]
	if !escaped {
		return string(inner), true
	}
	return string(Unescape(nil, inner)), true
}

// AppendString is String, appending to dst.
func (c *Cursor) AppendString(dst []byte) (_ []byte, ok bool) {
	if c.Peek() != '"' {
		c.Skip()
		return dst, false
	}
	start := c.pos
	escaped := c.quoted()
	if c.err != nil {
		return dst, false
	}
	inner := c.buf[start+1 : c.pos-1]
	if !escaped {
		return append(dst, inner...), true
	}
	return Unescape(dst, inner), true
}

// Bool consumes the next value; ok is false, and the value skipped, when it is neither true nor false.
func (c *Cursor) Bool() (v, ok bool) {
	switch c.Peek() {
	case 't':
		c.literal("true")
		return true, c.err == nil
	case 'f':
		c.literal("false")
		return false, c.err == nil
	}
	c.Skip()
	return false, false
}

// Int consumes the next value; ok is false, and the value skipped, when it is not a whole number of 64 bits. A number
// spelled with a fraction or an exponent (5.0) is not whole: an engine that sends it as an id is not to be trusted.
func (c *Cursor) Int() (v int64, ok bool) {
	b := c.Peek()
	if b != '-' && (b < '0' || b > '9') {
		c.Skip()
		return 0, false
	}
	start := c.pos
	if !c.number() || c.err != nil {
		return 0, false
	}
	text := c.buf[start:c.pos]
	if len(text) < 18 { // the common case, without a string
		neg := text[0] == '-'
		if neg {
			text = text[1:]
		}
		for _, d := range text {
			v = v*10 + int64(d-'0')
		}
		if neg {
			v = -v
		}
		return v, true
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	return v, err == nil
}

// Float consumes the next value; v is NaN and ok false, and the value skipped, when it is not a number or beyond float64.
func (c *Cursor) Float() (v float64, ok bool) {
	b := c.Peek()
	if b != '-' && (b < '0' || b > '9') {
		c.Skip()
		return math.NaN(), false
	}
	if c.loose && c.notFinite() { // -Infinity begins like a number
		return math.NaN(), false
	}
	start := c.pos
	c.number()
	if c.err != nil {
		return math.NaN(), false
	}
	v, err := strconv.ParseFloat(string(c.buf[start:c.pos]), 64)
	if err != nil {
		return math.NaN(), false
	}
	return v, true
}
