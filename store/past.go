package store

import (
	"cmp"
	"slices"

	"captureproxy/internal/record"
)

// Past is what a session's log held at one moment: the answers of its calls, and their bodies when they are asked for. It takes
// the memory of what is stored, however often calls repeat it.
type Past struct {
	// Calls are ordered by number. Their prompts, messages and tools are left out: nothing is put together that may not be
	// asked for.
	Calls  []*record.Call
	stored map[*record.Call]*storedCall
}

// DecodePast reads payloads of one session, those of each dictionary in order; see [DecodeCalls].
func DecodePast(payloads [][]byte) (*Past, error) {
	stored, err := decodeAll(payloads)
	return newPast(stored), err
}

func newPast(stored []*storedCall) *Past {
	p := &Past{stored: make(map[*record.Call]*storedCall, len(stored))}
	for _, s := range stored {
		p.Calls = append(p.Calls, s.call)
		p.stored[s.call] = s
	}
	slices.SortFunc(p.Calls, func(a, b *record.Call) int { return cmp.Compare(a.Number, b.Number) })
	return p
}

// Body returns the body of one of the calls, in memory of its own.
func (p *Past) Body(c *record.Call) []byte {
	s := p.stored[c]
	if s == nil {
		return nil
	}
	return s.library.join(s.body)
}
