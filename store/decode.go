package store

import (
	"bytes"
	"encoding/json"
	"slices"

	"captureproxy/internal/record"
)

// none is the parent of a path's first block or node, and the path of an empty prompt or list.
const none = -1

// maxLost bounds how many blocks, nodes or pieces lost frames are believed to have held.
const maxLost = 1 << 18

// library is a dictionary as a reader rebuilds it: numbers to contents.
type library struct {
	blocks []block
	nodes  []node
	pieces [][]byte                  // aliases payloads; nil: lost with its frame
	owned  map[*byte]json.RawMessage // items by their place in a payload, in memory of their own
}

// block is blockSize ids of a prompt and where they follow.
type block struct {
	ids    []int32 // nil: lost with its frame
	parent int
	depth  int // blocks from the root, this one included; 0 when an ancestor is lost
	within []int32
}

// node is an item of a list and where it follows.
type node struct {
	item   []byte // aliases a payload; nil: lost with its frame
	parent int
	depth  int
	within []json.RawMessage // a list in memory that has this path at its beginning
	turned []json.RawMessage // one that has it behind its first element
}

// decoder reads a session's calls in the order of their seq. The call frames of a session make sense only together:
// each refers to what earlier ones brought.
type decoder struct {
	libraries map[uint32]*library
}

// storedCall is a call whose prompts and lists are still paths.
type storedCall struct {
	call                  *record.Call
	library               *library
	body, messages, tools storedList
	prompts               []storedPrompt
}

type storedList struct {
	isNil bool
	turn  int // how many of the list's first items stand last in the path
	last  int
}

type storedPrompt struct {
	isNil, same bool
	last        int
	tail        []int32
}

func (d *decoder) decode(payload []byte) (*storedCall, error) {
	r := reader{b: payload}
	number := r.number()
	id := r.uvarint()
	firstBlock, firstNode, firstPiece := r.number(), r.number(), r.number()
	turn := id >= turned
	if turn {
		id -= turned
	}
	if r.err != nil || id > 1<<32-1 {
		return nil, errPayload
	}
	lib := d.libraries[uint32(id)]
	if lib == nil {
		lib = new(library)
		if d.libraries == nil {
			d.libraries = map[uint32]*library{}
		}
		d.libraries[uint32(id)] = lib
	}
	if err := lib.skipTo(firstBlock, firstNode, firstPiece); err != nil {
		return nil, err
	}
	s := &storedCall{library: lib, call: r.callRecord()}
	if r.err == nil {
		s.call.Number = number
		s.body, s.messages, s.tools = r.list(lib), r.list(lib), r.list(lib)
		if turn {
			s.body.turn, s.messages.turn = turnBody, turnMessages
		}
		s.prompts = make([]storedPrompt, len(s.call.Choices))
		for i := range s.call.Choices {
			s.prompts[i] = r.prompt(lib, i > 0)
			s.call.Choices[i].SampledIDs = r.nullableIDs()
			s.call.Choices[i].Logprobs = r.logprobs()
			s.call.Choices[i].Message = r.message(lib)
		}
	}
	if r.err == nil && len(r.b) != 0 {
		r.fail()
	}
	if r.err != nil {
		// What the call brought counts as lost, so that the numbers of later calls stay right.
		lib.blocks, lib.nodes, lib.pieces = lib.blocks[:firstBlock], lib.nodes[:firstNode], lib.pieces[:firstPiece]
		return nil, r.err
	}
	return s, nil
}

// skipTo leaves holes for what lost frames held, so that numbers keep their meaning.
func (l *library) skipTo(blocks, nodes, pieces int) error {
	b, n, p := blocks-len(l.blocks), nodes-len(l.nodes), pieces-len(l.pieces)
	if min(b, n, p) < 0 || max(b, n, p) > maxLost {
		return errPayload
	}
	l.blocks = append(l.blocks, make([]block, b)...)
	l.nodes = append(l.nodes, make([]node, n)...)
	l.pieces = append(l.pieces, make([][]byte, p)...)
	return nil
}

func (r *reader) list(l *library) storedList {
	head := r.number()
	if r.err != nil || head == 0 {
		return storedList{isNil: true, last: none}
	}
	last, depth := none, 0
	if head >= 2 {
		last = head - 2
		if last >= len(l.nodes) {
			r.fail()
			return storedList{}
		}
		if depth = l.nodes[last].depth; depth == 0 {
			r.lost()
			return storedList{}
		}
	}
	for range r.count() {
		item := r.item(l)
		if r.err != nil {
			return storedList{}
		}
		depth++
		l.nodes = append(l.nodes, node{item: item, parent: last, depth: depth})
		last = len(l.nodes) - 1
	}
	return storedList{last: last}
}

// lost fails because the payload refers to what a frame held that cannot be read any more.
func (r *reader) lost() {
	r.b, r.err = nil, ErrDamaged
}

func (r *reader) item(l *library) []byte {
	ref := r.number()
	if ref == 0 {
		return r.newPiece(l)
	}
	return r.piece(l, ref-1)
}

func (r *reader) newPiece(l *library) []byte {
	item := r.lengthAndBytes()
	if r.err == nil && len(item) >= minPiece {
		l.pieces = append(l.pieces, item)
	}
	return item
}

func (r *reader) piece(l *library, number int) []byte {
	switch {
	case r.err != nil:
		return nil
	case number >= len(l.pieces):
		r.fail()
		return nil
	case l.pieces[number] == nil:
		r.lost()
		return nil
	}
	return l.pieces[number]
}

// message returns a copy: a call outlives the payloads.
func (r *reader) message(l *library) json.RawMessage {
	head := r.number()
	switch {
	case r.err != nil || head == 0:
		return nil
	case head == 1:
		return append(json.RawMessage{}, r.newPiece(l)...)
	}
	return append(json.RawMessage{}, r.piece(l, head-2)...)
}

func (r *reader) prompt(l *library, follows bool) storedPrompt {
	head := r.number()
	switch {
	case r.err != nil || head == 0:
		return storedPrompt{isNil: true, last: none}
	case head == 1:
		if !follows {
			r.fail()
		}
		return storedPrompt{same: true, last: none}
	}
	last, depth := none, 0
	if head >= 3 {
		last = head - 3
		if last >= len(l.blocks) {
			r.fail()
			return storedPrompt{}
		}
		if depth = l.blocks[last].depth; depth == 0 {
			r.lost()
			return storedPrompt{}
		}
	}
	ids := r.ids(r.count())
	if r.err != nil {
		return storedPrompt{}
	}
	for len(ids) >= blockSize {
		depth++
		l.blocks = append(l.blocks, block{ids: ids[:blockSize], parent: last, depth: depth})
		last = len(l.blocks) - 1
		ids = ids[blockSize:]
	}
	return storedPrompt{last: last, tail: ids}
}

// expandAll gives calls their prompts, messages and tools. Prompts and lists that are the beginning of longer ones share
// the memory of those, so that a conversation takes the memory of its last call, not the sum over its calls.
func expandAll(stored []*storedCall) []*record.Call {
	longestFirst := slices.Clone(stored)
	slices.SortStableFunc(longestFirst, func(a, b *storedCall) int { return b.depth() - a.depth() })
	for _, s := range longestFirst {
		s.call.Messages = s.library.raws(s.messages)
		s.call.Tools = s.library.raws(s.tools)
		for i, p := range s.prompts {
			if p.same {
				s.call.Choices[i].PromptIDs = s.call.Choices[i-1].PromptIDs
				continue
			}
			s.call.Choices[i].PromptIDs = s.library.ids(p)
		}
	}
	calls := make([]*record.Call, len(stored))
	for i, s := range stored {
		calls[i] = s.call
	}
	return calls
}

// depth is how many blocks and nodes the longest paths of a call hold.
func (s *storedCall) depth() int {
	n := 0
	if s.messages.last != none {
		n += s.library.nodes[s.messages.last].depth
	}
	for _, p := range s.prompts {
		if p.last != none {
			n += s.library.blocks[p.last].depth
		}
	}
	return n
}

// ids returns a prompt's ids.
func (l *library) ids(p storedPrompt) []int32 {
	if p.isNil {
		return nil
	}
	if p.last == none {
		return slices.Clip(p.tail)
	}
	whole := l.blocks[p.last].depth * blockSize
	n := whole + len(p.tail)
	if w := l.blocks[p.last].within; len(w) >= n && slices.Equal(w[whole:n], p.tail) {
		return w[:n:n]
	}
	ids := make([]int32, n)
	copy(ids[whole:], p.tail)
	for at := p.last; at != none; at = l.blocks[at].parent {
		b := &l.blocks[at]
		copy(ids[(b.depth-1)*blockSize:], b.ids)
		if b.within == nil {
			b.within = ids
		}
	}
	return ids
}

// raws returns the elements of a list, in memory of their own.
func (l *library) raws(s storedList) []json.RawMessage {
	if s.isNil {
		return nil
	}
	if s.last == none {
		return []json.RawMessage{}
	}
	if s.turn == turnMessages {
		return l.turnedRaws(s.last)
	}
	n := l.nodes[s.last].depth
	if w := l.nodes[s.last].within; w != nil {
		return w[:n:n]
	}
	raws := make([]json.RawMessage, n)
	for at := s.last; at != none; at = l.nodes[at].parent {
		if w := l.nodes[at].within; w != nil {
			copy(raws, w[:l.nodes[at].depth])
			break
		}
		raws[l.nodes[at].depth-1] = l.own(l.nodes[at].item)
		l.nodes[at].within = raws
	}
	return raws
}

// turnedRaws is raws for a list whose first element stands last in its path. Lists that differ in their first element
// only share the memory of the others.
func (l *library) turnedRaws(last int) []json.RawMessage {
	n, first, rest := l.nodes[last].depth, l.nodes[last].item, l.nodes[last].parent
	if rest != none {
		if w := l.nodes[rest].turned; w != nil && bytes.Equal(w[0], first) {
			return w[:n:n]
		}
	}
	raws := make([]json.RawMessage, n)
	raws[0] = l.own(first)
	for at := rest; at != none; at = l.nodes[at].parent {
		if w := l.nodes[at].turned; w != nil {
			copy(raws[1:], w[1:l.nodes[at].depth+1])
			break
		}
		raws[l.nodes[at].depth] = l.own(l.nodes[at].item)
		l.nodes[at].turned = raws
	}
	return raws
}

// own returns an item in memory of its own, which is the same wherever the item stands.
func (l *library) own(item []byte) json.RawMessage {
	if len(item) == 0 {
		return json.RawMessage{}
	}
	at := &item[0]
	if own, ok := l.owned[at]; ok && len(own) == len(item) {
		return own
	}
	if l.owned == nil {
		l.owned = map[*byte]json.RawMessage{}
	}
	own := json.RawMessage(slices.Clip(bytes.Clone(item)))
	l.owned[at] = own
	return own
}

// join returns the items of a list in one piece.
func (l *library) join(s storedList) []byte {
	var items [][]byte
	for at := s.last; at != none; at = l.nodes[at].parent {
		items = append(items, l.nodes[at].item)
	}
	slices.Reverse(items)
	if n := len(items); n > 0 {
		first := n - s.turn%n
		items = slices.Concat(items[first:], items[:first])
	}
	return bytes.Join(items, nil)
}
