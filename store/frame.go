package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The format is drawn in the package documentation.
const (
	magic         = "CAPLOG"
	formatVersion = 2

	segmentHeaderSize = 40
	frameHeaderSize   = 28
	maxPayload        = 1 << 30
)

type frameType uint8

const (
	frameSession frameType = 1 + iota
	frameCall
	frameDelete
	frameProbe
)

var errFrame = errors.New("not a frame")

// castagnoli is the polynomial that CPUs compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segmentHeader is the start of every segment.
type segmentHeader struct {
	version uint8 // as read; what is written is formatVersion
	number  uint64
	salt    uint64
	prev    uint64 // number of the segment before, 0 for none
	prevEnd uint32 // where that one ends
}

func (h segmentHeader) append(b []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, formatVersion, 0)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, h.salt)
	b = binary.LittleEndian.AppendUint64(b, h.prev)
	b = binary.LittleEndian.AppendUint32(b, h.prevEnd)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// errVersion is a segment of a newer program.
type errVersion int

func (v errVersion) Error() string {
	return fmt.Sprintf("written in format %d, this program knows formats up to %d; use a newer capture-proxy", int(v), formatVersion)
}

func parseSegmentHeader(b []byte) (segmentHeader, error) {
	var h segmentHeader
	if len(b) < segmentHeaderSize {
		return h, errors.New("the segment header is cut short")
	}
	b = b[:segmentHeaderSize]
	if string(b[:len(magic)]) != magic {
		return h, errors.New("the file does not begin with a segment header")
	}
	// The version is read before the checksum: a newer format may keep its checksum elsewhere.
	if v := b[len(magic)]; v > formatVersion {
		return h, errVersion(v)
	}
	if crc32.Checksum(b[:36], castagnoli) != binary.LittleEndian.Uint32(b[36:]) {
		return h, errors.New("the segment header fails its checksum")
	}
	h.version = b[len(magic)]
	h.number = binary.LittleEndian.Uint64(b[8:])
	h.salt = binary.LittleEndian.Uint64(b[16:])
	h.prev = binary.LittleEndian.Uint64(b[24:])
	h.prevEnd = binary.LittleEndian.Uint32(b[32:])
	return h, nil
}

// frameHeader stands before every payload.
type frameHeader struct {
	length  uint32 // of the payload
	typ     frameType
	session uint32
	seq     uint32
	durable uint32
	payload uint32 // checksum
}

// put writes the header of the frame at the given offset of the segment with the given salt.
func (h frameHeader) put(b []byte, salt uint64, offset int64) {
	_ = b[frameHeaderSize-1]
	binary.LittleEndian.PutUint32(b[0:], h.length)
	b[4], b[5], b[6], b[7] = byte(h.typ), 0, 0, 0
	binary.LittleEndian.PutUint32(b[8:], h.session)
	binary.LittleEndian.PutUint32(b[12:], h.seq)
	binary.LittleEndian.PutUint32(b[16:], h.durable)
	binary.LittleEndian.PutUint32(b[20:], h.payload)
	binary.LittleEndian.PutUint32(b[24:], headerChecksum(b, salt, offset))
}

func headerChecksum(b []byte, salt uint64, offset int64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[0:], salt)
	binary.LittleEndian.PutUint64(place[8:], uint64(offset))
	sum := crc32.Update(0, castagnoli, place[:])
	return crc32.Update(sum, castagnoli, b[:24])
}

// parseFrameHeader returns the header of the frame at offset; errFrame when there is none.
func parseFrameHeader(b []byte, salt uint64, offset int64) (frameHeader, error) {
	var h frameHeader
	if len(b) < frameHeaderSize ||
		binary.LittleEndian.Uint32(b[24:]) != headerChecksum(b, salt, offset) {
		return h, errFrame
	}
	h.length = binary.LittleEndian.Uint32(b[0:])
	h.typ = frameType(b[4])
	h.session = binary.LittleEndian.Uint32(b[8:])
	h.seq = binary.LittleEndian.Uint32(b[12:])
	h.durable = binary.LittleEndian.Uint32(b[16:])
	h.payload = binary.LittleEndian.Uint32(b[20:])
	return h, nil
}

// parseFrame returns the header and payload of the whole frame in b, which stood at offset.
func parseFrame(b []byte, salt uint64, offset int64) (frameHeader, []byte, error) {
	h, err := parseFrameHeader(b, salt, offset)
	if err != nil {
		return h, nil, errors.New("the frame header fails its checksum")
	}
	if int64(len(b)-frameHeaderSize) < int64(h.length) {
		return h, nil, errors.New("the frame is cut short")
	}
	payload := b[frameHeaderSize : frameHeaderSize+int(h.length)]
	if crc32.Checksum(payload, castagnoli) != h.payload {
		return h, nil, errors.New("the payload fails its checksum")
	}
	return h, payload, nil
}

// zeros reports whether b holds nothing but zeros.
func zeros(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeroPage))
		if !bytes.Equal(b[:n], zeroPage[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

var zeroPage [4096]byte
