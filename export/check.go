package export

import (
	"fmt"
	"slices"

	"captureproxy/internal/record"
	"captureproxy/validate"
)

// Check looks at a document again, as it comes from a disk or from somebody else: arrays, masks, spans, ids, counts
// and the gate must agree with each other. What the document itself says in its findings is not repeated.
func Check(r *Rollout) []validate.Finding {
	c := &checker{r: r, turns: r.turnsByID()}
	c.checkTurns()
	ids := map[string]bool{}
	for i := range r.Sequences {
		row := &r.Sequences[i]
		if ids[row.RowID] {
			c.bad("two rows have the row_id %q", row.RowID)
		}
		ids[row.RowID] = row.RowID != "" // other producers have none
		c.checkRow(row)
	}
	c.checkTrainedOnce()
	c.checkStats()
	c.checkGate()
	return c.found
}

type checker struct {
	r     *Rollout
	turns map[string]*Turn
	found []validate.Finding
}

func (c *checker) add(code validate.Code, format string, args ...any) {
	c.found = append(c.found, validate.Finding{Level: validate.Fatal, Code: code, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) bad(format string, args ...any) {
	c.add(validate.InconsistentDocument, format, args...)
}

func (c *checker) trains() bool { return c.r.RolloutType == TypeTrain }

func (c *checker) checkTurns() {
	if len(c.turns) != len(c.r.Turns) {
		c.bad("several turns have one node_id")
	}
	for i := range c.r.Turns {
		t := &c.r.Turns[i]
		if t.Index != i {
			c.bad("turn %s stands at %d and says index %d", t.NodeID, i, t.Index)
		}
		if t.ParentID != "" && c.turns[t.ParentID] == nil {
			c.bad("turn %s has the parent %s, which is no turn", t.NodeID, t.ParentID)
		}
		if c.turns[t.RootID] == nil {
			c.bad("turn %s has the root %s, which is no turn", t.NodeID, t.RootID)
		}
	}
}

func (c *checker) checkRow(row *Row) {
	if !c.checkPath(row) {
		return
	}
	if n := len(row.InputIDs); len(row.LossMask) != n || len(row.Logprobs) != n {
		c.add(validate.LengthMismatch, "row %s: %d ids, %d mask entries, %d logprobs", row.RowID, n, len(row.LossMask), len(row.Logprobs))
		return
	}
	c.checkTokens(row)
	c.checkSpans(row)
	c.checkRowGate(row)
	if n := ones(row.LossMask); n != row.NTrainable {
		c.bad("row %s says n_trainable %d, its mask has %d", row.RowID, row.NTrainable, n)
	}
}

func ones(m Mask) int {
	n := 0
	for _, v := range m {
		n += int(v)
	}
	return n
}

// checkPath follows the row from its root to its leaf.
func (c *checker) checkPath(row *Row) bool {
	before := len(c.found)
	if row.NTurns != len(row.NodeIDs) {
		c.bad("row %s says n_turns %d and lists %d", row.RowID, row.NTurns, len(row.NodeIDs))
	}
	for k, id := range row.NodeIDs {
		t := c.turns[id]
		switch {
		case t == nil:
			c.bad("row %s lists %s, which is no turn", row.RowID, id)
		case k == 0 && id != row.RootID:
			c.bad("row %s begins with %s, not with its root %s", row.RowID, id, row.RootID)
		case k > 0 && t.ParentID != "" && t.ParentID != row.NodeIDs[k-1]:
			c.bad("row %s: %s follows %s, its parent is %s", row.RowID, id, row.NodeIDs[k-1], t.ParentID)
		}
	}
	return len(c.found) == before
}

// checkTokens runs the row's own checks again and looks at every value.
func (c *checker) checkTokens(row *Row) {
	for i, id := range row.InputIDs {
		if id < 0 {
			c.add(validate.InvalidTokenID, "row %s: id %d is %d", row.RowID, i, id)
			break
		}
	}
	for i, lp := range row.Logprobs {
		if !(lp > validate.Sentinel && lp <= 0) {
			c.add(validate.InvalidLogprob, "row %s: logprob %d is %v", row.RowID, i, lp)
			break
		}
	}
	if !c.trains() {
		if n := ones(row.LossMask); n > 0 {
			c.bad("row %s of an eval rollout has %d tokens with mask 1", row.RowID, n)
		}
		return
	}
	facts := validate.RowFacts{InputIDs: row.InputIDs, LossMask: row.LossMask, Logprobs: row.Logprobs, PromptLen: row.PromptLen,
		TakenByShare: c.r.Shared == record.SharedOnce}
	for _, id := range row.NodeIDs {
		facts.Sampled += c.turns[id].NSampled
	}
	for _, f := range validate.Row(facts) {
		said := slices.ContainsFunc(row.Validation, func(have validate.Finding) bool { return have.Code == f.Code })
		if f.Level == validate.Fatal && !said {
			c.add(f.Code, "row %s: %s", row.RowID, f.Detail)
		}
	}
}

// checkSpans compares the spans with the turns and with the mask.
func (c *checker) checkSpans(row *Row) {
	if row.TurnSpans == nil || len(row.InputIDs) == 0 {
		return
	}
	covered, k := 0, 0
	var lengths []int
	for _, id := range row.NodeIDs {
		t := c.turns[id]
		if t.NSampled == 0 {
			continue
		}
		if k >= len(row.TurnSpans) || row.TurnSpans[k] != [2]int{t.NPrompt, t.NPrompt + t.NSampled} || row.TurnSpans[k][1] > len(row.InputIDs) {
			c.bad("row %s: span %d is not where %s has its %d sampled tokens", row.RowID, k, id, t.NSampled)
			return
		}
		if t.Usable() {
			lengths = append(lengths, t.NSampled)
		}
		covered += c.checkSpan(row, t)
		k++
	}
	if k != len(row.TurnSpans) {
		c.bad("row %s has %d spans for %d turns that sampled something", row.RowID, len(row.TurnSpans), k)
	}
	if n := ones(row.LossMask); covered != n {
		c.bad("row %s: %d of %d tokens with mask 1 lie outside of what was sampled", row.RowID, n-covered, n)
	}
	if c.trains() && !slices.Equal(lengths, row.TurnLengths) {
		c.bad("row %s says turn_lengths %v, its turns have %v", row.RowID, row.TurnLengths, lengths)
	}
	for _, s := range row.SharedSpans {
		if !slices.Contains(row.TurnSpans, s) {
			c.bad("row %s: the shared span %v is none of its spans", row.RowID, s)
		}
	}
}

// checkSpan compares one turn's logprobs with the row's where they are trained, and counts those tokens.
func (c *checker) checkSpan(row *Row, t *Turn) int {
	trained := 0
	for i := range t.NSampled {
		at := t.NPrompt + i
		if row.LossMask[at] == 0 {
			continue
		}
		trained++
		if !t.Usable() {
			c.bad("row %s trains %s, which is context", row.RowID, t.NodeID)
			return trained
		}
		if row.Logprobs[at] != t.SampledLogprobs[i] {
			c.bad("row %s: the logprob at %d is %v, that of %s is %v", row.RowID, at, row.Logprobs[at], t.NodeID, t.SampledLogprobs[i])
			return trained
		}
	}
	return trained
}

func (c *checker) checkRowGate(row *Row) {
	if !row.Trainable {
		return
	}
	if row.Role != Agent || !c.trains() || ones(row.LossMask) == 0 || validate.AnyFatal(row.Validation) {
		c.bad("row %s is called trainable, but its role, its mask or its findings forbid it", row.RowID)
	}
}

// checkTrainedOnce holds a document with shared=once to its promise.
func (c *checker) checkTrainedOnce() {
	if c.r.Shared != record.SharedOnce {
		return
	}
	by := map[string]string{}
	for i := range c.r.Sequences {
		row := &c.r.Sequences[i]
		for _, id := range row.NodeIDs {
			t := c.turns[id]
			if t == nil || !trainsTurn(row, t) {
				continue
			}
			if first, twice := by[id]; twice {
				c.bad("%s is trained in the rows %s and %s, although shared is once", id, first, row.RowID)
			}
			by[id] = row.RowID
		}
	}
}

func (c *checker) checkStats() {
	s, r := c.r.Stats, c.r
	rows, tokens := 0, 0
	distinct := map[string]int{}
	for i := range r.Sequences {
		row := &r.Sequences[i]
		if !row.Trainable {
			continue
		}
		rows++
		tokens += row.NTrainable
		for _, id := range row.NodeIDs {
			if t := c.turns[id]; t != nil && trainsTurn(row, t) {
				distinct[id] = t.NSampled
			}
		}
	}
	sum := 0
	for _, n := range distinct {
		sum += n
	}
	forced := 0
	for i := range r.Turns {
		if r.Turns[i].PromptSource == record.PromptForced {
			forced++
		}
	}
	for _, count := range []struct {
		name      string
		says, are int
	}{
		{"n_turns", s.Turns, len(r.Turns)}, {"n_sequences", s.Sequences, len(r.Sequences)},
		{"n_trainable_sequences", s.TrainableSequences, rows}, {"n_trainable_tokens", s.TrainableTokens, tokens},
		{"n_forced", s.Forced, forced},
	} {
		if count.says != count.are {
			c.bad("stats say %s %d, the document has %d", count.name, count.says, count.are)
		}
	}
	if r.SchemaVersion > 0 && s.DistinctTrainableTokens != sum {
		c.bad("stats say n_distinct_trainable_tokens %d, the document has %d", s.DistinctTrainableTokens, sum)
	}
}

func (c *checker) checkGate() {
	r := c.r
	if c.trains() && r.CaptureLevel != record.LevelTokens {
		c.bad("a train rollout of capture level %q", r.CaptureLevel)
	}
	row := slices.ContainsFunc(r.Sequences, func(row Row) bool { return row.Trainable })
	if want := row && !validate.AnyFatal(r.Validation); r.Trainable != want {
		c.bad("the document says trainable %v, its rows and findings say %v", r.Trainable, want)
	}
}
