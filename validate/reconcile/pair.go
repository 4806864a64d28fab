package reconcile

import "slices"

// paired is a step and the turn that it is.
type paired struct {
	step *Step
	turn *turn
}

// pairing is what belongs together, in the record's order, and what was left on either side.
type pairing struct {
	pairs []paired
	steps []Step
	turns []turn
}

// pair finds the turn of each step. Calls may run side by side, so that the record's order need not be the document's:
// order decides only where nothing else does.
func pair(steps []Step, turns []turn) pairing {
	m := matcher{steps: steps, turns: turns, turnOf: filled(len(steps)), stepOf: filled(len(turns))}
	for _, same := range []func(*Step, *turn) bool{sameTools, sameIDs, sameText, sameCounts} {
		m.pass(same)
	}
	m.fillGaps()
	return m.result()
}

const none = -1

func filled(n int) []int { return slices.Repeat([]int{none}, n) }

type matcher struct {
	steps  []Step
	turns  []turn
	turnOf []int // of each step
	stepOf []int // of each turn
}

// pass pairs what is the same by one measure, first come first served. Of several steps that are the same, copies of
// another trajectory's come last.
func (m *matcher) pass(same func(*Step, *turn) bool) {
	for _, copied := range []bool{false, true} {
		for s := range m.steps {
			if m.turnOf[s] != none || m.steps[s].Copied != copied {
				continue
			}
			for t := range m.turns {
				if m.stepOf[t] == none && possible(&m.steps[s], &m.turns[t]) && same(&m.steps[s], &m.turns[t]) {
					m.turnOf[s], m.stepOf[t] = t, s
					break
				}
			}
		}
	}
}

// fillGaps pairs steps and turns that stand between the same neighbours, where there are as many of the one as of the
// other.
func (m *matcher) fillGaps() {
	for s := 0; s < len(m.steps); s++ {
		if m.turnOf[s] != none {
			continue
		}
		end := s
		for end < len(m.steps) && m.turnOf[end] == none {
			end++
		}
		from, to := 0, len(m.turns)
		if s > 0 {
			from = m.turnOf[s-1] + 1
		}
		if end < len(m.steps) {
			to = m.turnOf[end]
		}
		m.fill(s, end, from, to)
		s = end
	}
}

func (m *matcher) fill(s, end, from, to int) {
	var free []int
	for t := from; t < to; t++ {
		if m.stepOf[t] == none && !m.turns[t].auxiliary {
			free = append(free, t)
		}
	}
	if len(free) != end-s {
		return
	}
	for i, t := range free {
		if possible(&m.steps[s+i], &m.turns[t]) {
			m.turnOf[s+i], m.stepOf[t] = t, s+i
		}
	}
}

func (m *matcher) result() pairing {
	var p pairing
	for s, t := range m.turnOf {
		if t == none {
			p.steps = append(p.steps, m.steps[s])
		} else {
			p.pairs = append(p.pairs, paired{&m.steps[s], &m.turns[t]})
		}
	}
	for t, s := range m.stepOf {
		if s == none {
			p.turns = append(p.turns, m.turns[t])
		}
	}
	return p
}

// possible says that nothing contradicts that the step is the turn.
func possible(s *Step, n *turn) bool {
	if !n.hasMessage {
		return true
	}
	if len(s.ToolCalls) > 0 || len(n.toolCalls) > 0 {
		return len(s.ToolCalls) == 0 && s.Text == "" || shareTool(s, n)
	}
	return s.Text == "" || n.text == "" || s.Text == n.text
}

// shareTool says that the two have a tool call in common: harnesses leave out calls that they could not read.
func shareTool(s *Step, n *turn) bool {
	return slices.ContainsFunc(s.ToolCalls, func(id string) bool { return slices.Contains(n.toolCalls, id) })
}

func sameTools(s *Step, n *turn) bool { return shareTool(s, n) }

func sameIDs(s *Step, n *turn) bool {
	return len(s.CompletionIDs) > 0 && slices.Equal(s.CompletionIDs, n.ids)
}

func sameText(s *Step, n *turn) bool { return s.Text != "" && s.Text == n.text }

func sameCounts(s *Step, n *turn) bool {
	return s.Prompt != nil && s.Completion != nil && n.prompt != nil && n.completion != nil && *s.Prompt == *n.prompt && *s.Completion == *n.completion
}
