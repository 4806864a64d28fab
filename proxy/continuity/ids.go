package continuity

// Turn is an answer that can be carried on.
type Turn struct {
	Call, Choice int
	// Prompt and Sampled count its ids.
	Prompt, Sampled int
	// Last is the last sampled id. Cut says that the answer was ended from outside, by the output cap or a stop string,
	// and so perhaps before the template's end marker.
	Last int32
	Cut  bool

	// Its ids are the first shared ones of base, then own.
	base   *Turn
	shared int
	own    []int32
	users  int // turns whose base it is
}

// Len is the number of the turn's ids, prompt and sampled.
func (t *Turn) Len() int { return t.Prompt + t.Sampled }

// AppendIDs appends the turn's prompt and sampled ids.
func (t *Turn) AppendIDs(dst []int32) []int32 {
	start := len(dst)
	dst = append(dst, make([]int32, t.Len())...)
	out := dst[start:]
	for need := len(out); need > 0; t = t.base {
		if need > t.shared {
			copy(out[t.shared:need], t.own)
			need = t.shared
		}
	}
	return dst
}

// common counts the leading ids that the turn shares with two sequences, one after the other.
func (t *Turn) common(a, b []int32) int {
	type piece struct {
		from int
		ids  []int32
	}
	var pieces []piece // from the end to the start
	for need := t.Len(); need > 0; t = t.base {
		if need > t.shared {
			pieces = append(pieces, piece{t.shared, t.own[:need-t.shared]})
			need = t.shared
		}
	}
	for i := len(pieces) - 1; i >= 0; i-- {
		p := pieces[i]
		for k, id := range p.ids {
			at := p.from + k
			switch {
			case at < len(a):
				if a[at] != id {
					return at
				}
			case at-len(a) < len(b):
				if b[at-len(a)] != id {
					return at
				}
			default:
				return at
			}
		}
	}
	if len(pieces) == 0 {
		return 0
	}
	return pieces[0].from + len(pieces[0].ids)
}

// newTurn keeps a turn's ids as what they have beyond base, which may be nil.
func newTurn(base *Turn, prompt, sampled []int32) *Turn {
	t := &Turn{Prompt: len(prompt), Sampled: len(sampled)}
	if len(sampled) > 0 {
		t.Last = sampled[len(sampled)-1]
	}
	if base != nil {
		t.shared = base.common(prompt, sampled)
	}
	if t.shared > 0 {
		t.base = base
		base.users++
	}
	t.own = make([]int32, 0, t.Len()-t.shared)
	if t.shared < len(prompt) {
		t.own = append(append(t.own, prompt[t.shared:]...), sampled...)
	} else {
		t.own = append(t.own, sampled[t.shared-len(prompt):]...)
	}
	return t
}
