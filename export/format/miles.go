package format

import (
	"encoding/json"
	"io"
	"strconv"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// miles writes a Sample a line (miles and slime read it): tokens over the full length, mask and logprobs over the
// response. weight_versions has the version at the end of each turn for which one is known.
type miles struct {
	*lines
	rows int
}

func newMiles(w io.Writer) *miles { return &miles{lines: newLines(w)} }

type milesSample struct {
	GroupIndex      int               `json:"group_index"`
	Index           int               `json:"index"`
	Prompt          []json.RawMessage `json:"prompt"`
	Tokens          []int32           `json:"tokens"`
	Response        string            `json:"response"`
	ResponseLength  int               `json:"response_length"`
	Label           *string           `json:"label"` // a rule-based reward's, we have none
	Reward          number            `json:"reward"`
	LossMask        export.Mask       `json:"loss_mask"`
	RolloutLogProbs export.Logprobs   `json:"rollout_log_probs"`
	WeightVersions  []string          `json:"weight_versions"`
	Status          string            `json:"status"`
	Metadata        milesMetadata     `json:"metadata"`
}

type milesMetadata struct {
	RolloutID string `json:"rollout_id"`
	RowID     string `json:"row_id"`
}

func (w *miles) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		reply, err := answerText(r)
		if err != nil {
			return n, err
		}
		sample := milesSample{
			GroupIndex: s.groupIndex, Index: w.rows, Prompt: r.opening(), Tokens: r.InputIDs,
			Response: reply, ResponseLength: len(r.response()), Reward: number(s.reward),
			LossMask: r.responseMask(), RolloutLogProbs: r.responseLogs(), WeightVersions: weightVersions(r),
			Status: "completed", Metadata: milesMetadata{s.doc.SessionID, r.RowID},
		}
		if r.last().turn.Outcome == record.Length {
			sample.Status = "truncated"
		}
		if err := w.put(sample); err != nil {
			return n, err
		}
		w.rows++
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

// answerText is what the row's last turn said.
func answerText(r *row) (string, error) {
	raw := r.last().turn.ResponseMessage
	if len(raw) == 0 {
		return "", nil
	}
	m, err := parseMessage(raw)
	if err != nil {
		return "", err
	}
	return m.text()
}

func weightVersions(r *row) []string {
	list := []string{}
	for _, st := range r.steps {
		if v := st.turn.Policy.End; v != nil {
			list = append(list, strconv.FormatInt(*v, 10))
		}
	}
	return list
}
