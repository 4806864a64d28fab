package format

import (
	"encoding/json"
	"io"

	"captureproxy/export"
)

// rows writes one flat row per live sequence, of whatever role. A row that is not trainable has mask 0 throughout, so
// that ids and mask alone say what to train. In Parquet, messages and tools are JSON text.
type rows struct {
	json    *lines
	parquet sink[parquetRow]
}

func newRows(w io.Writer, asParquet bool) *rows {
	if asParquet {
		return &rows{parquet: newSink[parquetRow](w, true)}
	}
	return &rows{json: newLines(w)}
}

type flatRow struct {
	SessionID   string            `json:"session_id"`
	GroupID     string            `json:"group_id"`
	RowID       string            `json:"row_id"`
	Role        export.Role       `json:"role"`
	Trainable   bool              `json:"trainable"`
	Reward      *number           `json:"reward"`
	Advantage   *number           `json:"advantage"`
	PolicyStart *int64            `json:"policy_start"`
	PolicyEnd   *int64            `json:"policy_end"`
	PromptLen   int               `json:"prompt_len"`
	InputIDs    []int32           `json:"input_ids"`
	LossMask    export.Mask       `json:"loss_mask"`
	Logprobs    export.Logprobs   `json:"logprobs"`
	Messages    []json.RawMessage `json:"messages"`
	Tools       []json.RawMessage `json:"tools"`
}

type parquetRow struct {
	SessionID   string    `parquet:"session_id"`
	GroupID     string    `parquet:"group_id"`
	RowID       string    `parquet:"row_id"`
	Role        string    `parquet:"role,dict"`
	Trainable   bool      `parquet:"trainable"`
	Reward      *float64  `parquet:"reward,optional"`
	Advantage   *float64  `parquet:"advantage,optional"`
	PolicyStart *int64    `parquet:"policy_start,optional"`
	PolicyEnd   *int64    `parquet:"policy_end,optional"`
	PromptLen   int32     `parquet:"prompt_len"`
	InputIDs    []int32   `parquet:"input_ids,list"`
	LossMask    []int32   `parquet:"loss_mask,list"`
	Logprobs    []float64 `parquet:"logprobs,list"`
	Messages    string    `parquet:"messages"`
	Tools       string    `parquet:"tools"`
}

func (w *rows) write(s *session) (n written, err error) {
	for i := range s.rows {
		if err := w.row(flat(s, &s.rows[i])); err != nil {
			return n, err
		}
		n.rows++
		n.tokens += s.rows[i].trained
	}
	return n, nil
}

func flat(s *session, r *row) *flatRow {
	policy := policyOf(s.doc)
	f := &flatRow{
		SessionID: s.doc.SessionID, GroupID: s.group, RowID: r.RowID, Role: r.Role, Trainable: r.trained > 0,
		Reward: optional(s.doc.Reward), PolicyStart: policy.Start, PolicyEnd: policy.End,
		PromptLen: r.PromptLen, InputIDs: r.InputIDs, LossMask: r.mask, Logprobs: r.logprobs,
		Messages: r.chat(), Tools: append([]json.RawMessage{}, r.last().turn.RequestTools...),
	}
	if s.grouped {
		f.Advantage = optional(&s.advantage)
	}
	if f.InputIDs == nil {
		f.InputIDs = []int32{}
	}
	return f
}

func (w *rows) row(f *flatRow) error {
	if w.json != nil {
		return w.json.put(f)
	}
	messages, err := json.Marshal(f.Messages)
	if err != nil {
		return err
	}
	tools, err := json.Marshal(f.Tools)
	if err != nil {
		return err
	}
	mask := make([]int32, len(f.LossMask))
	for i, m := range f.LossMask {
		mask[i] = int32(m)
	}
	return w.parquet.put(&parquetRow{
		SessionID: f.SessionID, GroupID: f.GroupID, RowID: f.RowID, Role: string(f.Role), Trainable: f.Trainable,
		Reward: (*float64)(f.Reward), Advantage: (*float64)(f.Advantage), PolicyStart: f.PolicyStart, PolicyEnd: f.PolicyEnd,
		PromptLen: int32(f.PromptLen), InputIDs: f.InputIDs, LossMask: mask, Logprobs: f.Logprobs,
		Messages: string(messages), Tools: string(tools),
	}, len(f.InputIDs))
}

func (w *rows) close() error {
	if w.json != nil {
		return w.json.close()
	}
	return w.parquet.close()
}
