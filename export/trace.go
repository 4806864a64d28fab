package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ErrEval is returned where training data is asked of a rollout that has none by its kind.
var ErrEval = errors.New("this is an eval rollout: it has the trace and the reward, but nothing to train on")

// TraceEntry is one turn as OpenEnv's trainers read it.
type TraceEntry struct {
	Request            TraceRequest  `json:"request"`
	Response           TraceResponse `json:"response"`
	PromptTokenIDs     []int32       `json:"prompt_token_ids"`
	CompletionTokenIDs []int32       `json:"completion_token_ids"`
	PerTokenLogps      Logprobs      `json:"per_token_logps"`
	LossMask           Mask          `json:"loss_mask"` // over prompt and completion
	Metadata           TraceMetadata `json:"metadata"`
}

// TraceRequest is what was asked; empty in a document without messages.
type TraceRequest struct {
	Messages []json.RawMessage `json:"messages,omitzero"`
	Tools    []json.RawMessage `json:"tools,omitzero"`
}

// TraceResponse is what was answered.
type TraceResponse struct {
	Choices []TraceChoice `json:"choices"`
}

// TraceChoice is the answer's one choice.
type TraceChoice struct {
	Message      json.RawMessage `json:"message"`
	FinishReason *string         `json:"finish_reason"`
}

// TraceMetadata says where the entry comes from.
type TraceMetadata struct {
	NodeID            string          `json:"node_id"`
	Index             int             `json:"index"`
	Model             string          `json:"model"`
	NTools            int             `json:"n_tools"`
	HarnessSessionID  *string         `json:"harness_session_id"`
	SamplingParams    json.RawMessage `json:"sampling_params"`
	RequestedSampling json.RawMessage `json:"requested_sampling_params"`
}

// TraceEntries gives the usable agent turns of a document in arrival order, each once. Their sampled tokens have
// mask 1 where the document trains them; in a document that may not be trained on all masks are 0. It returns
// ErrEval for an eval rollout.
func TraceEntries(r *Rollout) ([]TraceEntry, error) {
	if r.RolloutType != TypeTrain {
		return nil, fmt.Errorf("session %s, capture level %q: %w", r.SessionID, r.CaptureLevel, ErrEval)
	}
	rows := agentRows(r)
	entries := []TraceEntry{}
	for i := range r.Turns {
		t := &r.Turns[i]
		row := rows[t.NodeID]
		if row == nil || !t.Usable() {
			continue
		}
		if end := t.NPrompt + t.NSampled; end > len(row.InputIDs) || end > len(row.LossMask) {
			return nil, fmt.Errorf("turn %s has %d ids, its row %s only %d: the document is damaged", t.NodeID, end, row.RowID, len(row.InputIDs))
		}
		entries = append(entries, traceEntry(t, row, r.Trainable && row.Trainable))
	}
	return entries, nil
}

// agentRows gives, for each turn on an agent row, that row; where it lies on several, the first that trains it.
func agentRows(r *Rollout) map[string]*Row {
	byID := r.turnsByID()
	rows := map[string]*Row{}
	for i := range r.Sequences {
		row := &r.Sequences[i]
		if row.Role != Agent {
			continue
		}
		for _, id := range row.NodeIDs {
			have, t := rows[id], byID[id]
			if have == nil || t != nil && !trainsTurn(have, t) && trainsTurn(row, t) {
				rows[id] = row
			}
		}
	}
	return rows
}

// trainsTurn reports whether the row has mask 1 somewhere on what the turn sampled.
func trainsTurn(row *Row, t *Turn) bool {
	end := min(t.NPrompt+t.NSampled, len(row.LossMask))
	return row.Trainable && t.NPrompt < end && slices.Contains(row.LossMask[t.NPrompt:end], 1)
}

func (r *Rollout) turnsByID() map[string]*Turn {
	byID := make(map[string]*Turn, len(r.Turns))
	for i := range r.Turns {
		byID[r.Turns[i].NodeID] = &r.Turns[i]
	}
	return byID
}

func traceEntry(t *Turn, row *Row, trains bool) TraceEntry {
	end := t.NPrompt + t.NSampled
	e := TraceEntry{
		Request:            TraceRequest{Messages: allInUTF8(t.RequestMessages), Tools: allInUTF8(t.RequestTools)},
		Response:           TraceResponse{Choices: []TraceChoice{{Message: inUTF8(t.ResponseMessage), FinishReason: orNil(t.FinishReason)}}},
		PromptTokenIDs:     row.InputIDs[:t.NPrompt:t.NPrompt],
		CompletionTokenIDs: row.InputIDs[t.NPrompt:end:end],
		PerTokenLogps:      t.SampledLogprobs,
		LossMask:           make(Mask, end),
		Metadata: TraceMetadata{
			NodeID: t.NodeID, Index: t.Index, Model: t.Model, NTools: t.NTools, HarnessSessionID: orNil(t.HarnessSessionID),
			SamplingParams: inUTF8(t.SamplingParams), RequestedSampling: inUTF8(t.RequestedSampling),
		},
	}
	if e.PerTokenLogps == nil {
		e.PerTokenLogps = Logprobs{}
	}
	if trains {
		copy(e.LossMask[t.NPrompt:], row.LossMask[t.NPrompt:end])
	}
	return e
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
