package jsonscan

import (
	"bytes"
	"slices"
)

// AppendInts consumes the next value, an array of whole numbers of 32 bits, and appends them to dst. array is false, and
// the value skipped, when it is no array; whole is false when an element is something else, which is then left out.
//
// Prompts are arrays of a hundred thousand ids, so plain digits and commas have a loop of their own.
func (c *Cursor) AppendInts(dst []int32) (out []int32, array, whole bool) {
	if c.Peek() != '[' {
		c.Skip()
		return dst, false, true
	}
	if end, ok := c.plainInts(&dst); ok {
		c.pos = end
		return dst, true, true
	}
	whole = true
	for a := c.Array(); a.Next(); {
		n, ok := c.Int()
		if !ok || n != int64(int32(n)) {
			whole = false
			continue
		}
		dst = append(dst, int32(n))
	}
	return dst, true, whole
}

// plainInts reads an array of nothing but digits and single commas, the cursor being on its bracket. ok is false, and
// nothing is consumed or kept, when it meets anything else; the careful way then decides what that is.
func (c *Cursor) plainInts(dst *[]int32) (end int, ok bool) {
	b, out, kept := c.buf, *dst, len(*dst)
	if stop := bytes.IndexByte(b[c.pos:], ']'); stop > 1 { // one allocation rather than twelve
		out = slices.Grow(out, bytes.Count(b[c.pos:c.pos+stop], []byte{','})+1)
	}
	for i := c.pos + 1; i < len(b); {
		start, n := i, int64(0)
		for i < len(b) && b[i]-'0' <= 9 {
			n = n*10 + int64(b[i]-'0')
			i++
		}
		if digits := i - start; digits == 0 || digits > 9 || b[start] == '0' && digits > 1 || i == len(b) {
			break
		}
		out = append(out, int32(n))
		switch b[i] {
		case ']':
			*dst = out
			return i + 1, true
		case ',':
			i++
			if i < len(b) && b[i] == ' ' { // Python's own spelling
				i++
			}
		default:
			*dst = out[:kept]
			return 0, false
		}
	}
	*dst = out[:kept]
	return 0, false
}

// skipInts consumes an array of nothing but short numbers of plain digits (every logprob row has one, the token's bytes),
// the cursor being on its bracket. It says false, and consumes nothing, when it meets anything else.
func (c *Cursor) skipInts() bool {
	b := c.buf
	for i := c.pos + 1; i < len(b); i++ {
		start := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == start || i == len(b) || b[start] == '0' && i > start+1 {
			return false
		}
		if b[i] == ']' {
			c.pos = i + 1
			return true
		}
		if b[i] != ',' {
			return false
		}
	}
	return false
}
