package export

import (
	"captureproxy/graph"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// rows are the flattened paths of a session with their roles. Roles and the gate follow from structure alone: no
// names of harnesses, no words of prompts.
type rows struct {
	sess    *record.Session
	answers []answer
	graph   *graph.Graph
	seqs    []graph.Sequence
	roles   []Role
	found   [][]validate.Finding // per path
	mode    record.Shared
}

func newRows(sess *record.Session, answers []answer, g *graph.Graph, mode record.Shared) *rows {
	rs := &rows{sess: sess, answers: answers, graph: g, seqs: g.Sequences(), mode: mode}
	rs.assignRoles()
	graph.Share(rs.seqs, rs.wouldTrain, mode == record.SharedOnce)
	for i := range rs.seqs {
		rs.limit(&rs.seqs[i])
		rs.found = append(rs.found, rs.check(i))
	}
	return rs
}

// assignRoles labels the paths. Tools tell the agent from side calls only where some live path has them.
func (rs *rows) assignRoles() {
	rs.roles = make([]Role, len(rs.seqs))
	tools := false
	for i := range rs.seqs {
		if !rs.discarded(i) && rs.hasTools(i) {
			tools = true
		}
	}
	for i := range rs.seqs {
		switch {
		case rs.discarded(i):
			rs.roles[i] = Discarded
		case tools && rs.hasTools(i), !tools && (rs.sess.CaptureLevel != record.LevelTokens || len(rs.seqs[i].TurnLengths) > 0):
			rs.roles[i] = Agent
		default:
			rs.roles[i] = Auxiliary
		}
	}
}

func (rs *rows) leaf(i int) int { return rs.seqs[i].Nodes[len(rs.seqs[i].Nodes)-1] }

func (rs *rows) discarded(i int) bool { return rs.graph.Nodes[rs.leaf(i)].Discarded }

func (rs *rows) hasTools(i int) bool {
	for _, n := range rs.seqs[i].Nodes {
		if len(rs.answers[n].call.Tools) > 0 {
			return true
		}
	}
	return false
}

// wouldTrain reports whether the row trains something, were no turn shared.
func (rs *rows) wouldTrain(i int) bool {
	return rs.sess.Trains() && rs.roles[i] == Agent && len(rs.seqs[i].TurnLengths) > 0
}

// limit takes from a row what its session does not give: every mask in eval, and the tokens below level tokens.
func (rs *rows) limit(s *graph.Sequence) {
	if rs.sess.CaptureLevel != record.LevelTokens {
		*s = graph.Sequence{Nodes: s.Nodes}
	}
	if !rs.sess.Trains() {
		clear(s.LossMask)
	}
}

// export gives the rows of the document.
func (rs *rows) export(discarded bool) []Row {
	list := []Row{}
	for i := range rs.seqs {
		if rs.roles[i] != Discarded || discarded {
			list = append(list, rs.row(i))
		}
	}
	return list
}

func (rs *rows) row(i int) Row {
	s := &rs.seqs[i]
	row := Row{
		RowID: rowID(rs.sess, rs.answers[rs.leaf(i)]), Role: rs.roles[i], RootID: rs.answers[s.Nodes[0]].id,
		NTurns: len(s.Nodes), PromptLen: s.PromptLen, NTrainable: s.Trainable(),
		TurnLengths: append([]int{}, s.TurnLengths...), TurnSpans: spans(s.Spans), SharedSpans: [][2]int{},
		InputIDs: s.InputIDs, LossMask: s.LossMask, Logprobs: s.Logprobs,
		Validation: rs.found[i],
	}
	if row.Logprobs == nil {
		row.Logprobs = Logprobs{}
	}
	if row.Role == Agent {
		row.SharedSpans = spans(s.Shared)
	}
	for _, n := range s.Nodes {
		row.NodeIDs = append(row.NodeIDs, rs.answers[n].id)
	}
	row.Trainable = rs.trains(i)
	return row
}

// trains is the gate of a row.
func (rs *rows) trains(i int) bool {
	return rs.wouldTrain(i) && rs.seqs[i].Trainable() > 0 && !validate.AnyFatal(rs.found[i])
}

func (rs *rows) check(i int) []validate.Finding {
	if !rs.sess.Trains() {
		return nil
	}
	s := &rs.seqs[i]
	f := validate.RowFacts{
		InputIDs: s.InputIDs, LossMask: s.LossMask, Logprobs: s.Logprobs, PromptLen: s.PromptLen,
		TakenByShare: rs.mode == record.SharedOnce && len(s.TurnLengths) > 0,
	}
	for _, n := range s.Nodes {
		a := &rs.answers[n]
		f.Sampled += len(a.choice.SampledIDs)
		f.Turns = append(f.Turns, validate.TurnFindings{NodeID: a.id, Findings: a.findings})
	}
	return validate.Row(f)
}

// trained marks the answers that some trainable row trains.
func (rs *rows) trained() []bool {
	marked := make([]bool, len(rs.answers))
	for i := range rs.seqs {
		if !rs.trains(i) {
			continue
		}
		for _, span := range rs.seqs[i].Spans {
			if span.Usable && rs.seqs[i].LossMask[span.Start] == 1 {
				marked[span.Node] = true
			}
		}
	}
	return marked
}

// agentRoots counts the roots of the live agent rows.
func (rs *rows) agentRoots() int {
	roots := map[int]bool{}
	for i, role := range rs.roles {
		if role == Agent {
			roots[rs.seqs[i].Nodes[0]] = true
		}
	}
	return len(roots)
}

func spans(list []graph.Span) [][2]int {
	out := make([][2]int, len(list))
	for i, s := range list {
		out[i] = [2]int{s.Start, s.End}
	}
	return out
}
