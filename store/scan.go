package store

import "hash/crc32"

// frameAt is a frame that a scan found.
type frameAt struct {
	frameHeader
	offset  int64
	payload []byte // aliases the scanned bytes
}

func (f frameAt) end() int64 { return f.offset + frameHeaderSize + int64(f.length) }

// span is a stretch of a segment that holds no valid frame though it once did.
type span struct {
	from, to int64
	header   *frameHeader // when at least the header is valid
}

// scanned is what a segment holds.
type scanned struct {
	frames []frameAt
	bad    []span
	end    int64 // where the next frame would stand
}

// scan finds the frames of a segment, given its bytes and salt. sealed says that everything in data was acknowledged
// once; otherwise the end may be torn.
func scan(data []byte, salt uint64, sealed bool) scanned {
	var s scanned
	// From the first bad span on, frames and spans are in doubt until a later frame vouches for what stands before it.
	var doubtful scanned
	pos := int64(segmentHeaderSize)
	size := int64(len(data))
	for pos < size {
		if f, ok := frameIn(data, salt, pos); ok {
			doubtful.frames = append(doubtful.frames, f)
			pos = f.end()
			if len(doubtful.bad) == 0 || int64(f.durable) > doubtful.bad[0].from {
				s.trust(doubtful, pos)
				doubtful = scanned{}
			}
			continue
		}
		if !sealed && zeros(data[pos:]) {
			break
		}
		bad := badSpan(data, salt, pos)
		doubtful.bad = append(doubtful.bad, bad)
		pos = bad.to
	}
	if sealed {
		s.trust(doubtful, size)
	}
	s.end = max(s.end, segmentHeaderSize)
	return s
}

// trust takes over what was in doubt.
func (s *scanned) trust(d scanned, end int64) {
	s.frames = append(s.frames, d.frames...)
	s.bad = append(s.bad, d.bad...)
	s.end = end
}

// frameIn returns the valid frame at pos.
func frameIn(data []byte, salt uint64, pos int64) (frameAt, bool) {
	h, err := parseFrameHeader(data[pos:], salt, pos)
	if err != nil {
		return frameAt{}, false
	}
	f := frameAt{frameHeader: h, offset: pos}
	if f.end() > int64(len(data)) {
		return f, false
	}
	f.payload = data[pos+frameHeaderSize : f.end()]
	return f, crc32.Checksum(f.payload, castagnoli) == h.payload
}

// badSpan measures the bad stretch that begins at pos: to the end of the frame whose header is still valid, else to the
// next frame, else to the end.
func badSpan(data []byte, salt uint64, pos int64) span {
	size := int64(len(data))
	if h, err := parseFrameHeader(data[pos:], salt, pos); err == nil {
		if end := pos + frameHeaderSize + int64(h.length); end <= size {
			return span{from: pos, to: end, header: &h}
		}
	}
	for next := pos + 1; next+frameHeaderSize <= size; next++ {
		// Checksums are computed only where the fixed bytes fit.
		if b := data[next+4 : next+8]; b[0] == 0 || b[0] > byte(frameProbe) || b[1]|b[2]|b[3] != 0 {
			continue
		}
		if _, ok := frameIn(data, salt, next); ok {
			return span{from: pos, to: next}
		}
	}
	return span{from: pos, to: size}
}
