package format

import (
	"errors"
	"fmt"
	"slices"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// ErrSharedOnce is returned where a document that was made with shared=once is to be exported with every: what is
// masked in it cannot be told any more from what may not be trained.
var ErrSharedOnce = errors.New("the document was made with shared=once and cannot be exported with shared=every: export from the log (--data or --url), or make the document again with shared=every")

// session is a document as the writers see it.
type session struct {
	doc        *export.Rollout
	group      string
	groupIndex int // of the groups in this export
	inGroup    int // of the sessions of its group in this export
	// reward is 0 in forms that do without one when nobody scored the session; they look at doc.Reward.
	reward float64
	// advantage and centred are the reward with AdvantageNone; else it less the group's mean, advantage in standard
	// deviations.
	advantage, centred float64
	grouped            bool  // the advantages are within a group
	rows               []row // that are trained; all live rows where the form is made of those
}

// row is a path with its final mask.
type row struct {
	*export.Row
	mask     export.Mask
	logprobs export.Logprobs
	steps    []step
	trained  int // tokens with mask 1
}

// step is a turn on a row.
type step struct {
	turn       *export.Turn
	prompt     []int32
	sampled    []int32
	start, end int  // of sampled in the row
	trained    bool // here
	copied     bool // it stands here as context, an earlier row trains it
}

func (e *Exporter) session(r *export.Rollout) (*session, error) {
	s := &session{doc: r, group: groupID(r)}
	at := e.groups[s.group]
	if at == nil {
		at = &place{index: len(e.groups)}
		e.groups[s.group] = at
	}
	s.groupIndex, s.inGroup = at.index, at.sessions
	at.sessions++
	if err := e.value(s); err != nil {
		return nil, err
	}
	return s, e.addRows(s)
}

// value sets the reward and the advantages.
func (e *Exporter) value(s *session) error {
	if s.doc.Reward == nil {
		return nil
	}
	s.reward = *s.doc.Reward
	s.advantage, s.centred = s.reward, s.reward
	if e.options.Advantage != AdvantageGroup {
		return nil
	}
	mean, std, err := e.options.Groups.baseline(s.doc)
	if err != nil {
		return err
	}
	s.grouped = true
	s.centred = s.reward - mean
	s.advantage = s.centred / (std + 1e-8)
	return nil
}

// addRows gives the session its rows, and each turn to the first row that trains it unless shared is every.
func (e *Exporter) addRows(s *session) error {
	every := e.options.Shared == record.SharedEvery
	if every && s.doc.Shared == record.SharedOnce && slices.ContainsFunc(s.doc.Sequences, func(r export.Row) bool { return len(r.SharedSpans) > 0 }) {
		return ErrSharedOnce
	}
	turns := map[string]*export.Turn{}
	for i := range s.doc.Turns {
		turns[s.doc.Turns[i].NodeID] = &s.doc.Turns[i]
	}
	taken := map[string]bool{}
	for i := range s.doc.Sequences {
		r := &s.doc.Sequences[i]
		if r.Role == export.Discarded || e.form.eval && r.Role != export.Agent || !(r.Trainable || e.form.live || e.form.eval) {
			continue
		}
		out, err := newRow(r, turns)
		if err != nil {
			return err
		}
		out.mark(taken, every)
		if out.trained > 0 || e.form.live || e.form.eval {
			s.rows = append(s.rows, out)
		}
	}
	return nil
}

// newRow takes a row apart into its turns. The place of each in the row follows from its counts, which turn_spans
// repeat.
func newRow(r *export.Row, turns map[string]*export.Turn) (row, error) {
	out := row{Row: r, mask: r.LossMask, logprobs: r.Logprobs}
	if r.PromptLen > len(r.InputIDs) {
		return row{}, damaged(r, "prompt_len %d of %d ids", r.PromptLen, len(r.InputIDs))
	}
	if len(r.NodeIDs) == 0 {
		return row{}, damaged(r, "it has no turns")
	}
	marked := 0
	for _, id := range r.NodeIDs {
		t := turns[id]
		st := step{turn: t, prompt: []int32{}, sampled: []int32{}}
		if len(r.InputIDs) > 0 {
			st.start, st.end = t.NPrompt, t.NPrompt+t.NSampled
			if st.end > len(r.InputIDs) {
				return row{}, damaged(r, "%s ends at %d of %d ids", id, st.end, len(r.InputIDs))
			}
			st.prompt, st.sampled = r.InputIDs[:st.start:st.start], r.InputIDs[st.start:st.end:st.end]
			n := ones(r.LossMask[st.start:st.end])
			if n > 0 && n < t.NSampled {
				return row{}, damaged(r, "%d of the %d sampled tokens of %s have mask 1", n, t.NSampled, id)
			}
			st.trained = n > 0
			if st.trained && !t.Usable() {
				return row{}, damaged(r, "it trains %s, which is context", id)
			}
			marked += n
		}
		out.steps = append(out.steps, st)
	}
	if n := ones(r.LossMask); n != marked {
		return row{}, damaged(r, "%d tokens with mask 1 lie outside of what was sampled", n-marked)
	}
	return out, nil
}

func damaged(r *export.Row, form string, args ...any) error {
	return fmt.Errorf("row %s is damaged: %s", r.RowID, fmt.Sprintf(form, args...))
}

// mark decides what the row trains. A row that is no training row trains nothing; a turn that an earlier row trains is
// context here, unless every row trains it.
func (r *row) mark(taken map[string]bool, every bool) {
	owned := false
	for i := range r.steps {
		st := &r.steps[i]
		seen := taken[st.turn.NodeID]
		st.copied = seen && !(every && st.trained)
		if st.trained && (st.copied || !r.Trainable) {
			if !owned { // the document keeps its own
				r.mask, r.logprobs, owned = slices.Clone(r.mask), slices.Clone(r.logprobs), true
			}
			clear(r.mask[st.start:st.end])
			clear(r.logprobs[st.start:st.end])
			st.trained = false
		}
		if st.trained {
			taken[st.turn.NodeID] = true
			r.trained += len(st.sampled)
		}
	}
}

func ones(m export.Mask) int {
	n := 0
	for _, v := range m {
		n += int(v)
	}
	return n
}

// has reports whether a row is among those that are written.
func (s *session) has(rowID string) bool {
	return slices.ContainsFunc(s.rows, func(r row) bool { return r.RowID == rowID })
}

// trained lists the turns that some row trains.
func (s *session) trained() map[string]bool {
	ids := map[string]bool{}
	for i := range s.rows {
		for _, st := range s.rows[i].steps {
			if st.trained {
				ids[st.turn.NodeID] = true
			}
		}
	}
	return ids
}

// last is the row's leaf.
func (r *row) last() *step { return &r.steps[len(r.steps)-1] }

// prompt and response are the row's two parts: the first request, and all that came after it.
func (r *row) prompt() []int32               { return r.InputIDs[:r.PromptLen] }
func (r *row) response() []int32             { return r.InputIDs[r.PromptLen:] }
func (r *row) responseMask() export.Mask     { return r.mask[r.PromptLen:] }
func (r *row) responseLogs() export.Logprobs { return r.logprobs[r.PromptLen:] }
