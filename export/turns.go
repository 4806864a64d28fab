package export

import (
	"encoding/json"
	"math"
	"slices"

	"captureproxy/graph"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// turns lists every node, in arrival order.
func turns(answers []answer, g *graph.Graph, messages bool) []Turn {
	list := make([]Turn, len(answers))
	for i := range answers {
		t := newTurn(&answers[i])
		place(&t, g, i)
		if messages {
			// Shared with the log: a copy of every turn's list grows with the square of the turns.
			t.RequestMessages = orNone(answers[i].call.Messages)
			t.RequestTools = orNone(answers[i].call.Tools)
			t.ResponseMessage = answers[i].choice.Message
		}
		list[i] = t
	}
	return list
}

func newTurn(a *answer) Turn {
	c, ch := a.call, a.choice
	return Turn{
		NodeID: a.id, Call: c.Number,
		NPrompt: len(ch.PromptIDs), NSampled: len(ch.SampledIDs), NTools: len(c.Tools),
		FinishReason: ch.FinishReason, FinishReasonRaw: ch.FinishReasonRaw, Outcome: a.outcome,
		HarnessSessionID: c.HarnessSessionID,
		Harness: Harness{
			Name: c.Harness.Name, Version: c.Harness.Version, AgentID: c.Harness.AgentID, ParentAgentID: c.Harness.ParentAgentID,
		},
		Dialect: c.Dialect, Model: c.Model,
		SamplingParams: orEmpty(c.SubmittedSampling), RequestedSampling: orEmpty(c.RequestedSampling),
		SampledLogprobs: sampledLogprobs(ch),
		RetryOf:         c.RetryOf, PromptSource: c.PromptSource, Edits: edits(c.Edits),
		Policy: c.Policy, Usage: c.Usage.Raw,
		Timing: Timing{
			Received: Time{c.Timing.Received}, Dispatched: Time{c.Timing.Dispatched}, FirstToken: Time{c.Timing.FirstToken},
			LastToken: Time{c.Timing.LastToken}, Recorded: Time{c.Timing.Recorded},
		},
		Validation: a.findings,
	}
}

// orNone is the list, never null and safe to append to.
func orNone(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return []json.RawMessage{}
	}
	return slices.Clip(list)
}

// sampledLogprobs are the turn's as captured, nil where the engine gave none.
func sampledLogprobs(ch *record.Choice) Logprobs {
	if !ch.HasLogprobs && len(ch.Logprobs) == 0 {
		return nil
	}
	if ch.Logprobs == nil {
		return Logprobs{}
	}
	return ch.Logprobs
}

// place says where the turn stands in the graph.
func place(t *Turn, g *graph.Graph, i int) {
	n := &g.Nodes[i]
	id := func(node int) string {
		if node == graph.None {
			return ""
		}
		return g.Nodes[node].Turn.ID
	}
	t.Index = i
	t.ParentID, t.RootID, t.Continues = id(n.Parent), id(n.Root), id(n.Continues)
	t.Link, t.Discarded, t.DiscardReason = string(n.Link), n.Discarded, string(n.Reason)
	if b := n.Break; b != nil {
		t.Break = &Break{Position: b.Position, Cause: string(b.Cause), Detail: b.Detail}
	}
}

// Usable reports whether the turn's sampled tokens may be trained on, as far as the document tells.
func (t *Turn) Usable() bool {
	return t.NPrompt > 0 && len(t.SampledLogprobs) == t.NSampled && !validate.AnyFatal(t.Validation) &&
		validate.MayTrain(t.Outcome, true) && // an aborted turn that may not be trained on carries a FATAL
		!slices.ContainsFunc(t.SampledLogprobs, func(lp float64) bool {
			return math.IsNaN(lp) || lp > 0 || lp <= validate.Sentinel
		})
}
