package format

import (
	"io"

	"captureproxy/export"
)

// openEnv writes a session a line: its agent turns in arrival order, each once, as GET /sessions/{id}/trace_entries
// gives them. A reward of null says that nobody scored the session. The mask covers prompt and completion, the
// logprobs the completion only.
type openEnv struct{ *lines }

func newOpenEnv(w io.Writer) *openEnv { return &openEnv{newLines(w)} }

type openEnvSession struct {
	SessionID string              `json:"session_id"`
	GroupID   string              `json:"group_id"`
	Reward    *number             `json:"reward"`
	Entries   []export.TraceEntry `json:"entries"`
}

func (w *openEnv) write(s *session) (written, error) {
	entries, err := export.TraceEntries(s.doc)
	if err != nil {
		return written{}, err
	}
	n := written{rows: len(entries)}
	for i := range entries {
		n.tokens += ones(entries[i].LossMask)
	}
	return n, w.put(openEnvSession{s.doc.SessionID, s.group, optional(s.doc.Reward), entries})
}
