package format

import (
	"encoding/json"
	"io"

	"captureproxy/export"
)

// trlAsync writes a RolloutSample of TRL's asynchronous GRPO a line: the row's arrays as they are, the group as a
// number. model_version is the oldest policy that sampled in the session, null when nobody said.
type trlAsync struct{ *lines }

func newTRLAsync(w io.Writer) *trlAsync { return &trlAsync{newLines(w)} }

type trlAsyncRow struct {
	Prompt         []json.RawMessage `json:"prompt"`
	Completion     []json.RawMessage `json:"completion"`
	InputIDs       []int32           `json:"input_ids"`
	CompletionMask export.Mask       `json:"completion_mask"`
	OldLogProbs    export.Logprobs   `json:"old_log_probs"`
	Advantage      number            `json:"advantage"`
	ModelVersion   *int64            `json:"model_version"`
	GroupID        int               `json:"group_id"`
	Metrics        trlAsyncMetrics   `json:"metrics"`
	RolloutID      string            `json:"rollout_id"`
}

type trlAsyncMetrics struct {
	Reward number `json:"reward"`
}

func (w *trlAsync) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		err := w.put(trlAsyncRow{
			Prompt: r.opening(), Completion: []json.RawMessage{r.last().turn.ResponseMessage},
			InputIDs: r.InputIDs, CompletionMask: r.mask, OldLogProbs: r.logprobs,
			Advantage: number(s.advantage), ModelVersion: policyOf(s.doc).Start, GroupID: s.groupIndex,
			Metrics: trlAsyncMetrics{number(s.reward)}, RolloutID: s.doc.SessionID,
		})
		if err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}
