package validate

import "strings"

// RowFacts is a flattened path as its checks see it.
type RowFacts struct {
	InputIDs  []int32
	LossMask  []uint8
	Logprobs  []float64
	PromptLen int
	// Sampled counts the tokens sampled by the turns of the path, whether they may be trained on or not.
	Sampled int
	// TakenByShare says that the row would train something, had not an earlier row trained all of it.
	TakenByShare bool
	Turns        []TurnFindings
}

// TurnFindings are the findings of one turn of a path.
type TurnFindings struct {
	NodeID   string
	Findings []Finding
}

// Row checks a flattened path of a session that trains.
func Row(f RowFacts) []Finding {
	var r report
	if len(f.LossMask) != len(f.InputIDs) || len(f.Logprobs) != len(f.InputIDs) {
		r.add(Fatal, LengthMismatch, "%d ids, %d mask entries, %d logprobs", len(f.InputIDs), len(f.LossMask), len(f.Logprobs))
		return r // every other check reads the arrays together
	}
	checkPromptMask(&r, f)
	checkMaskedLogprobs(&r, f)
	checkTrainable(&r, f)
	checkResponse(&r, f)
	checkUntrained(&r, f)
	checkCertain(&r, f)
	return r
}

func checkPromptMask(r *report, f RowFacts) {
	n := 0
	for _, m := range f.LossMask[:min(f.PromptLen, len(f.LossMask))] {
		n += int(m)
	}
	if n > 0 {
		r.add(Fatal, TrainablePrompt, "%d of the first %d tokens, the prompt, have mask 1", n, f.PromptLen)
	}
}

func checkMaskedLogprobs(r *report, f RowFacts) {
	n := 0
	for i, m := range f.LossMask {
		if m == 0 && f.Logprobs[i] != 0 {
			n++
		}
	}
	if n > 0 {
		r.add(Fatal, MaskedHasLogprob, "%d context tokens carry a logprob", n)
	}
}

func trained(f RowFacts) int {
	n := 0
	for _, m := range f.LossMask {
		n += int(m)
	}
	return n
}

func checkTrainable(r *report, f RowFacts) {
	switch {
	case trained(f) > 0:
	case f.TakenByShare:
		r.add(Info, AllShared, "every token of this row is trained in an earlier row")
	default:
		r.add(Fatal, NothingTrainable, "none of the %d tokens has mask 1", len(f.InputIDs))
	}
}

func checkResponse(r *report, f RowFacts) {
	if f.Sampled == 0 {
		r.add(Fatal, EmptyResponse, "no turn of the path sampled anything")
	}
}

func checkUntrained(r *report, f RowFacts) {
	for _, t := range f.Turns {
		var codes []string
		for _, found := range t.Findings {
			if found.Level == Fatal {
				codes = append(codes, string(found.Code))
			}
		}
		if len(codes) > 0 {
			r.add(Warn, UntrainedTurn, "%s is context: %s", t.NodeID, strings.Join(codes, ", "))
		}
	}
}

func checkCertain(r *report, f RowFacts) {
	certain := 0
	for i, m := range f.LossMask {
		if m == 1 && f.Logprobs[i] == 0 {
			certain++
		}
	}
	if n := trained(f); certain*2 > n {
		r.add(Info, CertainTokens, "%d of %d trained tokens have logprob 0: greedy sampling, or logprobs that are none", certain, n)
	}
}
