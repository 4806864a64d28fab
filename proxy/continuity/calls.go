package continuity

// calls knows which of a session's calls the index has seen, so that it notices when some are recorded that never passed
// here: by an earlier process, or by another proxy.
type calls struct {
	begun map[int]bool
	added map[int]bool
	// upTo is the number up to which all calls began here or were looked for in vain.
	upTo   int
	looked map[int]int // how often a missing call was looked for
}

// maxLooks is how often a call is looked for that left no record: one under way elsewhere turns up, one that was lost with
// its process does not.
const maxLooks = 4

func newCalls() calls {
	return calls{begun: map[int]bool{}, added: map[int]bool{}, looked: map[int]int{}}
}

func (c *calls) add(number int) bool {
	if c.added[number] {
		return false
	}
	c.added[number] = true
	return true
}

// Begin notes that a call passes here.
func (x *Index) Begin(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls.begun[number] = true
}

// Missing reports whether calls before a number are not known here, so that the record should be asked for them.
func (x *Index) Missing(number int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := &x.calls
	missing, whole := false, true
	for n := c.upTo + 1; n < number; n++ {
		switch {
		case c.begun[n] || c.added[n]:
		case c.looked[n] < maxLooks:
			c.looked[n]++
			missing, whole = true, false
		}
		if whole {
			c.upTo = n
			delete(c.begun, n)
			delete(c.looked, n)
		}
	}
	return missing
}
