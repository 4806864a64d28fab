package jsonscan

// Object visits the members of an object; see [Cursor.Object].
type Object struct {
	// Key is the current member's key, escapes resolved.
	Key []byte
	// KeyStart is the offset of the key's opening quote, Value the offset of the value's first byte. Comma is the offset
	// of the comma before the key, -1 for the first member.
	KeyStart, Value, Comma int

	c    *Cursor
	more bool
}

// Object enters the next value. When that is no object it is skipped and the iterator is empty.
func (c *Cursor) Object() Object {
	if !c.enter('{') {
		return Object{}
	}
	return Object{c: c, more: true, Comma: -1, Value: -1}
}

func (c *Cursor) enter(open byte) bool {
	if c.Peek() != open {
		c.Skip()
		return false
	}
	if c.depth == MaxDepth {
		if c.err == nil {
			c.err = ErrDepth
		}
		c.pos = len(c.buf)
		return false
	}
	c.depth++
	c.pos++
	return true
}

// Next moves to the next member and stands on its value. A value not consumed since the last Next is skipped.
func (o *Object) Next() bool {
	if !o.more {
		return false
	}
	c := o.c
	first := o.Value < 0
	if !first && c.pos == o.Value {
		c.skip()
	}
	if c.Peek() == '}' {
		c.pos++
		c.depth--
		o.more = false
		return false
	}
	if !first {
		o.Comma = c.pos
		if c.Peek() != ',' {
			return o.fail("',' or '}'")
		}
		c.pos++
	}
	if c.Peek() != '"' {
		return o.fail("a key")
	}
	o.KeyStart = c.pos
	escaped := c.quoted()
	if c.err != nil {
		return o.fail("")
	}
	o.Key = c.buf[o.KeyStart+1 : c.pos-1]
	if escaped {
		o.Key = Unescape(nil, o.Key)
	}
	if c.Peek() != ':' {
		return o.fail("':'")
	}
	c.pos++
	if c.Peek() == 0 {
		return o.fail("a value")
	}
	o.Value = c.pos
	return true
}

func (o *Object) fail(want string) bool {
	o.c.fail(want)
	o.more = false
	return false
}

// Array visits the elements of an array; see [Cursor.Array].
type Array struct {
	// Value is the offset of the current element's first byte.
	Value int

	c    *Cursor
	more bool
}

// Array enters the next value. When that is no array it is skipped and the iterator is empty.
func (c *Cursor) Array() Array {
	if !c.enter('[') {
		return Array{}
	}
	return Array{c: c, more: true, Value: -1}
}

// Next moves to the next element and stands on it. An element not consumed since the last Next is skipped.
func (a *Array) Next() bool {
	if !a.more {
		return false
	}
	c := a.c
	first := a.Value < 0
	if !first && c.pos == a.Value {
		c.skip()
	}
	if c.Peek() == ']' {
		c.pos++
		c.depth--
		a.more = false
		return false
	}
	if !first {
		if c.Peek() != ',' {
			return a.fail("',' or ']'")
		}
		c.pos++
		c.space()
	}
	if c.Peek() == 0 {
		return a.fail("a value")
	}
	a.Value = c.pos
	return true
}

func (a *Array) fail(want string) bool {
	a.c.fail(want)
	a.more = false
	return false
}
