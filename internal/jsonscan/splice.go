package jsonscan

import "bytes"

// Splice replaces the bytes [Start, End) of a document with With.
type Splice struct {
	Start, End int
	With       []byte
}

// Apply appends src to dst with the splices done. They must be ascending and must not overlap.
func Apply(dst, src []byte, splices []Splice) []byte {
	at := 0
	for _, s := range splices {
		dst = append(dst, src[at:s.Start]...)
		dst = append(dst, s.With...)
		at = s.End
	}
	return append(dst, src[at:]...)
}

// Eraser collects the splices that take members out of one object, commas included. Every member is reported in order,
// as kept or as dropped; Close ends the object.
type Eraser struct {
	kept    bool
	pending int // start of dropped members that no kept one precedes, -1 for none
	end     int
}

// NewEraser returns an eraser for one object.
func NewEraser() Eraser { return Eraser{pending: -1} }

// Keep reports a member that stays and whose key starts at keyStart.
func (e *Eraser) Keep(out []Splice, keyStart int) []Splice {
	if e.pending >= 0 {
		out = append(out, Splice{Start: e.pending, End: keyStart})
		e.pending = -1
	}
	e.kept = true
	return out
}

// Drop reports a member to take out: the offsets of the comma before it (-1 for none), of its key and of its value's end.
func (e *Eraser) Drop(out []Splice, comma, keyStart, end int) []Splice {
	e.end = end
	if e.kept {
		return append(out, Splice{Start: comma, End: end})
	}
	if e.pending < 0 {
		e.pending = keyStart
	}
	return out
}

// Close reports the end of the object.
func (e *Eraser) Close(out []Splice) []Splice {
	if e.pending >= 0 {
		out = append(out, Splice{Start: e.pending, End: e.end})
		e.pending = -1
	}
	return out
}

// Member is one member of an object, as offsets into the document.
type Member struct {
	Key             string
	KeyStart, Comma int // Comma is the offset of the comma before the key, -1 for the first member
	Value, End      int
}

// Raw returns the member's value, a part of doc.
func (m *Member) Raw(doc []byte) []byte { return doc[m.Value:m.End] }

// Doc is a JSON object whose top-level members are known, for editing. Repeated keys are all kept in Members: the last
// one counts, as in every JSON parser that engines use.
type Doc struct {
	Bytes   []byte
	Members []Member
	open    int // offset of '{'
	close   int // offset of '}'
	// last is where each key stands last, for documents with so many members that looking for one costs.
	last map[string]int
}

// manyMembers is how many members a document has that nobody writes by hand: looking for each key among all of them would
// take a second for a megabyte.
const manyMembers = 256

// ParseDoc scans a whole document, which must be one object.
func ParseDoc(b []byte) (*Doc, error) {
	c := New(b)
	d := &Doc{Bytes: b, Members: make([]Member, 0, 16)}
	if c.Peek() != '{' {
		c.fail("an object")
		return nil, c.err
	}
	d.open = c.pos
	for o := c.Object(); o.Next(); {
		m := Member{Key: string(o.Key), KeyStart: o.KeyStart, Comma: o.Comma, Value: o.Value}
		c.skip()
		m.End = c.pos
		d.Members = append(d.Members, m)
	}
	d.close = c.pos - 1
	if err := c.End(); err != nil {
		return nil, err
	}
	if len(d.Members) > manyMembers {
		d.last = make(map[string]int)
		for i := range d.Members {
			d.last[d.Members[i].Key] = i
		}
	}
	return d, nil
}

// Counts says whether a member is the last one with its key.
func (d *Doc) Counts(member int) bool {
	return d.find(d.Members[member].Key, member) == member
}

// find returns where a key stands last, from a member on; -1 when it does not.
func (d *Doc) find(key string, from int) int {
	if d.last != nil {
		if i, ok := d.last[key]; ok {
			return i
		}
		return -1
	}
	for i := len(d.Members) - 1; i >= from; i-- {
		if d.Members[i].Key == key {
			return i
		}
	}
	return -1
}

// Get returns the value of a key, nil when it is absent. Of repeated keys the last one counts.
func (d *Doc) Get(key string) []byte {
	if i := d.find(key, 0); i >= 0 {
		return d.Members[i].Raw(d.Bytes)
	}
	return nil
}

// Change is an edit of one top-level member: To replaces its value or is added at the end; a nil To removes it.
type Change struct {
	Key string
	To  []byte
}

// Edit appends the document with the changes done to dst. Everything else keeps its bytes.
func (d *Doc) Edit(dst []byte, changes []Change) []byte {
	splices := make([]Splice, 0, len(changes)+1)
	eraser := NewEraser()
	done := make([]bool, len(changes))
	for i := range d.Members {
		m := &d.Members[i]
		change := find(changes, m.Key)
		switch {
		case change < 0:
			splices = eraser.Keep(splices, m.KeyStart)
		case changes[change].To == nil:
			done[change] = true
			splices = eraser.Drop(splices, m.Comma, m.KeyStart, m.End)
		default:
			// Every occurrence of a repeated key is replaced, so that no parser can see the old value.
			done[change] = true
			splices = eraser.Keep(splices, m.KeyStart)
			splices = append(splices, Splice{Start: m.Value, End: m.End, With: changes[change].To})
		}
	}
	kept := eraser.kept
	splices = eraser.Close(splices)
	room := 0
	for i, ch := range changes {
		if !done[i] && ch.To != nil {
			room += len(ch.Key) + len(ch.To) + len(`,"":`)
		}
	}
	added := make([]byte, 0, room)
	for i, ch := range changes {
		if done[i] || ch.To == nil {
			continue
		}
		if kept || len(added) > 0 {
			added = append(added, ',')
		}
		added = AppendQuote(added, ch.Key)
		added = append(added, ':')
		added = append(added, ch.To...)
	}
	if len(added) > 0 {
		at := d.close
		if kept {
			// Right behind the last kept value, so that a body's own indentation stays where it is.
			at = len(bytes.TrimRight(d.Bytes[:d.close], " \t\r\n"))
		}
		if n := len(splices); n > 0 && splices[n-1].End > at {
			at = splices[n-1].End
		}
		splices = append(splices, Splice{Start: at, End: at, With: added})
	}
	return Apply(dst, d.Bytes, splices)
}

func find(changes []Change, key string) int {
	for i := range changes {
		if changes[i].Key == key {
			return i
		}
	}
	return -1
}
