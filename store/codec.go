package store

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// errPayload is a payload that passed its checksum and yet does not parse: written by a program with a fault.
var errPayload = errors.New("the payload does not parse")

// reader takes a payload apart. After the first fault everything it returns is zero and err is set, so that callers
// check once at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.b, r.err = nil, errPayload
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of things of which each takes at least one of the bytes that remain.
func (r *reader) count() int {
	v := r.uvarint()
	if v > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(v)
}

// number reads a number that fits an int32.
func (r *reader) number() int {
	v := r.uvarint()
	if v > math.MaxInt32 {
		r.fail()
		return 0
	}
	return int(v)
}

// bytes returns the next n bytes; they alias the payload.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func appendBytes(b, data []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

func (r *reader) lengthAndBytes() []byte { return r.bytes(r.count()) }

// appendIDs writes ids without their number. A valid id takes three bytes or fewer in the vocabularies of today; a
// negative one, which an engine may send and a finding names later, takes five.
func appendIDs(b []byte, ids []int32) []byte {
	b = slices.Grow(b, binary.MaxVarintLen32*len(ids))
	n := len(b)
	b = b[:cap(b)]
	for _, id := range ids {
		v := uint32(id)
		for ; v >= 0x80; v >>= 7 {
			b[n] = byte(v) | 0x80
			n++
		}
		b[n] = byte(v)
		n++
	}
	return b[:n]
}

func (r *reader) ids(n int) []int32 {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	ids := make([]int32, n)
	for i := range ids {
		v := r.uvarint()
		if v > math.MaxUint32 {
			r.fail()
			return nil
		}
		ids[i] = int32(uint32(v))
	}
	return ids
}

// appendNullableIDs keeps nil apart from empty.
func appendNullableIDs(b []byte, ids []int32) []byte {
	if ids == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(ids))+1)
	return appendIDs(b, ids)
}

func (r *reader) nullableIDs() []int32 {
	n := r.number()
	if n == 0 {
		return nil
	}
	return r.ids(n - 1)
}

// appendLogprobs keeps every bit, those of a NaN too. Engines compute in float32 and print it widened, which then takes
// half of the space.
func appendLogprobs(b []byte, values []float64) []byte {
	if values == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(values))+1)
	if !narrow(values) {
		b = append(b, 8)
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	b = append(b, 4)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

func narrow(values []float64) bool {
	for _, v := range values {
		if math.Float64bits(float64(float32(v))) != math.Float64bits(v) {
			return false
		}
	}
	return true
}

func (r *reader) logprobs() []float64 {
	n := r.number()
	if n == 0 {
		return nil
	}
	n--
	width := r.bytes(1)
	if r.err != nil || (width[0] != 4 && width[0] != 8) {
		r.fail()
		return nil
	}
	raw := r.bytes(n * int(width[0]))
	if r.err != nil {
		return nil
	}
	values := make([]float64, n)
	for i := range values {
		if width[0] == 4 {
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		} else {
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
	return values
}
