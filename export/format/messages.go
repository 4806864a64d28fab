package format

import (
	"encoding/json"
	"io"

	"captureproxy/internal/record"
)

// messages writes a chat a line, one per agent row, for trainers that tokenise text themselves. There are no ids and no
// masks, so eval rollouts have them too. A conversation whose last answer was cut off by the engine or refused is left
// out.
type messages struct{ *lines }

func newMessages(w io.Writer) *messages { return &messages{newLines(w)} }

type chatLine struct {
	Messages  []json.RawMessage `json:"messages"`
	Tools     []json.RawMessage `json:"tools"`
	SessionID string            `json:"session_id"`
	GroupID   string            `json:"group_id"`
	RowID     string            `json:"row_id"`
	Reward    *number           `json:"reward"`
}

func (w *messages) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		t := r.last().turn
		if t.Outcome == record.Aborted || t.Outcome == record.Filtered {
			continue
		}
		err := w.put(chatLine{
			Messages: r.chat(), Tools: append([]json.RawMessage{}, t.RequestTools...),
			SessionID: s.doc.SessionID, GroupID: s.group, RowID: r.RowID, Reward: optional(s.doc.Reward),
		})
		if err != nil {
			return n, err
		}
		n.rows++
	}
	return n, nil
}
