package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	return r, nil
}
