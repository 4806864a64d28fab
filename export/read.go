package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Read takes one document. Fields that it does not know are ignored: a document may come from another producer of
// the same form.
func Read(in io.Reader) (*Rollout, error) {
	dec := json.NewDecoder(in)
	r := new(Rollout)
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("this is no rollout document: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows the rollout document: give one document per file")
	}
	if r.SchemaVersion > SchemaVersion {
		return nil, fmt.Errorf("the document has schema_version %d, this program reads up to %d: use a newer capture-proxy", r.SchemaVersion, SchemaVersion)
	}
	if r.SessionID == "" {
		return nil, errors.New("this is no rollout document: it has no session_id")
	}
	if err := r.sane(); err != nil {
		return nil, err
	}
	return r, nil
}

// sane refuses counts that no program can go by, so that whoever reads the document may index with them.
func (r *Rollout) sane() error {
	for i := range r.Turns {
		if t := &r.Turns[i]; !isCount(t.NPrompt) || !isCount(t.NSampled) {
			return fmt.Errorf("turn %q has n_prompt %d and n_sampled %d: the document is damaged", t.NodeID, t.NPrompt, t.NSampled)
		}
	}
	for i := range r.Sequences {
		row := &r.Sequences[i]
		if !isCount(row.PromptLen) {
			return fmt.Errorf("row %q has prompt_len %d: the document is damaged", row.RowID, row.PromptLen)
		}
		for _, s := range row.TurnSpans {
			if !isCount(s[0]) || !isCount(s[1]) || s[0] > s[1] {
				return fmt.Errorf("row %q has the span %v: the document is damaged", row.RowID, s)
			}
		}
	}
	return nil
}

func isCount(n int) bool { return n >= 0 && n <= math.MaxInt32 }
