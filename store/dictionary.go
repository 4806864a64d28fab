package store

import "encoding/binary"

// What changes from call to call stands at the beginning: parameters before the messages, a system prompt with the time in
// it. It would make every node of a path behind it a new one, so it stands last there.
const (
	turnBody     = 3 // what stands before the messages, the first of them, and the comma behind it
	turnMessages = 1
	// turned is added to the dictionary's number in payloads in which lists are turned so. Programs that know format 1 only do
	// not take such a number.
	turned = 1 << 32
)

// dictionary holds what a session's log contains already, by content: numbers of blocks, nodes and pieces, each counted
// from 0 in the order in which they were written. It belongs to the writer goroutine.
type dictionary struct {
	id                    uint32 // seq of the call that started it
	blocks, nodes, pieces map[key]uint32
}

func newDictionary(id uint32) *dictionary {
	return &dictionary{id: id, blocks: map[key]uint32{}, nodes: map[key]uint32{}, pieces: map[key]uint32{}}
}

// appendCall writes a call frame's payload and learns what it brings.
func (d *dictionary) appendCall(b []byte, p *pendingCall) []byte {
	b = binary.AppendUvarint(b, uint64(p.number))
	b = binary.AppendUvarint(b, uint64(d.id)+turned)
	b = binary.AppendUvarint(b, uint64(len(d.blocks)))
	b = binary.AppendUvarint(b, uint64(len(d.nodes)))
	b = binary.AppendUvarint(b, uint64(len(d.pieces)))
	b = append(b, p.record...)
	b = d.appendList(b, &p.body)
	b = d.appendList(b, &p.messages)
	b = d.appendList(b, &p.tools)
	for i := range p.choices {
		c := &p.choices[i]
		b = d.appendPrompt(b, &c.prompt)
		b = appendNullableIDs(b, c.sampled)
		b = appendLogprobs(b, c.logprobs)
		b = d.appendMessage(b, c)
	}
	return b
}

// known returns how many nodes of a path are in the table already, and the number of the last of them. A node is never
// there without its ancestors.
func known(table map[key]uint32, path []key) (n int, last uint32) {
	for n = len(path); n > 0; n-- {
		if number, ok := table[path[n-1]]; ok {
			return n, number
		}
	}
	return 0, 0
}

func (d *dictionary) appendList(b []byte, l *pendingList) []byte {
	if l.isNil {
		return append(b, 0)
	}
	n, last := known(d.nodes, l.nodes)
	if n == 0 {
		b = append(b, 1)
	} else {
		b = binary.AppendUvarint(b, uint64(last)+2)
	}
	b = binary.AppendUvarint(b, uint64(len(l.items)-n))
	for i := n; i < len(l.items); i++ {
		at := l.place(i)
		b = d.appendItem(b, l.items[at], l.pieces[at])
		d.nodes[l.nodes[i]] = uint32(len(d.nodes))
	}
	return b
}

func (d *dictionary) appendItem(b, item []byte, k key) []byte {
	if len(item) >= minPiece {
		if number, ok := d.pieces[k]; ok {
			return binary.AppendUvarint(b, uint64(number)+1)
		}
		d.pieces[k] = uint32(len(d.pieces))
	}
	b = append(b, 0)
	return appendBytes(b, item)
}

func (d *dictionary) appendMessage(b []byte, c *pendingChoice) []byte {
	if c.message == nil {
		return append(b, 0)
	}
	if len(c.message) >= minPiece {
		if number, ok := d.pieces[c.messageID]; ok {
			return binary.AppendUvarint(b, uint64(number)+2)
		}
		d.pieces[c.messageID] = uint32(len(d.pieces))
	}
	b = append(b, 1)
	return appendBytes(b, c.message)
}

func (d *dictionary) appendPrompt(b []byte, p *pendingPrompt) []byte {
	if p.same {
		return append(b, 1)
	}
	if p.ids == nil {
		return append(b, 0)
	}
	n, last := known(d.blocks, p.blocks)
	if n == 0 {
		b = append(b, 2)
	} else {
		b = binary.AppendUvarint(b, uint64(last)+3)
	}
	for _, k := range p.blocks[n:] {
		d.blocks[k] = uint32(len(d.blocks))
	}
	rest := p.ids[n*blockSize:]
	b = binary.AppendUvarint(b, uint64(len(rest)))
	return appendIDs(b, rest)
}
