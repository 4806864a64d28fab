package store

import (
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"slices"

	"captureproxy/internal/record"
)

const (
	// blockSize is the number of ids in a block. A smaller one means shorter tails, which each call stores anew, and
	// larger dictionaries.
	blockSize = 128
	// minPiece is the length from which a piece of bytes is worth a number of its own.
	minPiece = 32
)

// key stands for a content in a dictionary: 128 bits, keyed with secrets that no one outside this process can know or
// observe, so that nobody can make two contents meet.
type key struct{ a, b uint64 }

// hasher makes keys. Keys of different hashers have nothing in common.
type hasher struct{ a, b maphash.Seed }

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) bytes(b []byte) key {
	return key{maphash.Bytes(h.a, b), maphash.Bytes(h.b, b)}
}

// join is the key of a path's node from its parent's key and its own content's.
func (h hasher) join(parent, content key) key {
	var b [32]byte
	parent.put(b[:])
	content.put(b[16:])
	return h.bytes(b[:])
}

func (k key) put(b []byte) {
	binary.LittleEndian.PutUint64(b, k.a)
	binary.LittleEndian.PutUint64(b[8:], k.b)
}

// pendingCall is a call on its way to the writer: encoded and hashed as far as that needs no dictionary. It refers to
// the call's slices, which nobody writes to.
type pendingCall struct {
	number                int
	record                []byte
	body, messages, tools pendingList
	choices               []pendingChoice
}

// pendingList is a list of byte strings: what each is, and the path that they make.
type pendingList struct {
	isNil  bool
	turn   int // how many of the first items stand last in the path
	items  [][]byte
	pieces []key
	nodes  []key // of the path, in its order
}

// place is the index in items of what stands at i in the path.
func (l *pendingList) place(i int) int { return (i + l.turn) % len(l.items) }

type pendingChoice struct {
	prompt    pendingPrompt
	sampled   []int32
	logprobs  []float64
	message   []byte
	messageID key
}

// pendingPrompt is a prompt and the keys of its whole blocks.
type pendingPrompt struct {
	same   bool // as the choice before
	ids    []int32
	blocks []key
}

// size is about what the call holds in memory while it waits.
func (p *pendingCall) size() int64 {
	n := len(p.record)
	for _, list := range []pendingList{p.body, p.messages, p.tools} {
		for _, item := range list.items {
			n += len(item) + 32
		}
	}
	for _, c := range p.choices {
		n += 4*len(c.prompt.ids) + 4*len(c.sampled) + 8*len(c.logprobs) + len(c.message)
	}
	return int64(n)
}

func (h hasher) prepare(c *record.Call) (*pendingCall, error) {
	encoded, err := appendCallRecord(nil, c)
	if err != nil {
		return nil, err
	}
	p := &pendingCall{number: c.Number, record: encoded}
	p.body = h.list(cut(c.Body, c.Cuts), nil, turnBody)
	p.messages = h.list(items(c.Messages), &p.body, turnMessages)
	p.messages.isNil = c.Messages == nil
	p.tools = h.list(items(c.Tools), &p.body, 0)
	p.tools.isNil = c.Tools == nil
	p.choices = make([]pendingChoice, len(c.Choices))
	for i := range c.Choices {
		choice := &c.Choices[i]
		p.choices[i] = pendingChoice{sampled: choice.SampledIDs, logprobs: choice.Logprobs, message: choice.Message}
		if len(choice.Message) >= minPiece {
			p.choices[i].messageID = h.bytes(choice.Message)
		}
		if i > 0 && samePrompt(choice.PromptIDs, c.Choices[i-1].PromptIDs) {
			p.choices[i].prompt.same = true
			continue
		}
		p.choices[i].prompt = h.prompt(choice.PromptIDs)
	}
	return p, nil
}

func samePrompt(a, b []int32) bool {
	return (a == nil) == (b == nil) && slices.Equal(a, b)
}

func (h hasher) prompt(ids []int32) pendingPrompt {
	p := pendingPrompt{ids: ids, blocks: make([]key, 0, len(ids)/blockSize)}
	var b [16 + 4*blockSize]byte
	var parent key
	for block := range slices.Chunk(ids, blockSize) {
		if len(block) < blockSize {
			break
		}
		parent.put(b[:])
		for i, id := range block {
			binary.LittleEndian.PutUint32(b[16+4*i:], uint32(id))
		}
		parent = h.bytes(b[:])
		p.blocks = append(p.blocks, parent)
	}
	return p
}

// list hashes a list. Items that are parts of the body's memory, as a chat request's messages are, were hashed there.
func (h hasher) list(items [][]byte, body *pendingList, turn int) pendingList {
	l := pendingList{turn: turn, items: items, pieces: make([]key, len(items)), nodes: make([]key, len(items))}
	at := 0
	for i, item := range items {
		if body != nil {
			at = body.find(item, at)
		}
		if body != nil && at < len(body.items) {
			l.pieces[i] = body.pieces[at]
		} else {
			l.pieces[i] = h.bytes(item)
		}
	}
	var parent key
	for i := range items {
		parent = h.join(parent, l.pieces[l.place(i)])
		l.nodes[i] = parent
	}
	return l
}

// find returns the index, from at on, of the item that is the very memory of b; len(l.items) when none is.
func (l *pendingList) find(b []byte, at int) int {
	for ; at < len(l.items); at++ {
		if item := l.items[at]; len(b) > 0 && len(item) == len(b) && &item[0] == &b[0] {
			break
		}
	}
	return at
}

func items(raws []json.RawMessage) [][]byte {
	out := make([][]byte, len(raws))
	for i, raw := range raws {
		out[i] = raw
	}
	return out
}

// cut splits a body at cuts. Cuts only save space: what does not ascend within the body is passed over.
func cut(body []byte, cuts []int) [][]byte {
	if len(body) == 0 {
		return nil
	}
	pieces := make([][]byte, 0, len(cuts)+1)
	start := 0
	for _, c := range cuts {
		if c <= start || c >= len(body) {
			continue
		}
		pieces = append(pieces, body[start:c:c])
		start = c
	}
	return append(pieces, body[start:])
}
