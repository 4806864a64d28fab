package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"captureproxy/export"
)

// nemoGym writes a file per row, <row id>.tokens.jsonl, of one TokenEntry per turn that the row trains: the call's
// whole prompt, and logprobs of what was generated only. NeMo Gym delivers one chain per file, so a turn that an
// earlier row trains is left out here; the next one's prompt holds its tokens as context.
type nemoGym struct {
	create func(name string) (io.WriteCloser, error)
}

func newNemoGym(create func(string) (io.WriteCloser, error)) *nemoGym { return &nemoGym{create} }

type nemoEntry struct {
	SchemaVersion      int             `json:"schema_version"`
	RolloutID          string          `json:"rollout_id"`
	ModelCallID        string          `json:"model_call_id"`
	Model              string          `json:"model"`
	PromptTokenIDs     []int32         `json:"prompt_token_ids"`
	GenerationTokenIDs []int32         `json:"generation_token_ids"`
	GenerationLogProbs export.Logprobs `json:"generation_log_probs"`
	OutputItems        []object        `json:"output_items"`
	TokenItemIndex     int             `json:"token_item_index"`
	ResponseID         string          `json:"response_id"`
	CreatedAt          number          `json:"created_at"`
	ParentCallID       *string         `json:"parent_call_id"`
	ParentResolution   string          `json:"parent_resolution"`
}

func (w *nemoGym) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		if err := w.file(r); err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

// close has nothing to do: each file is closed as it is written.
func (w *nemoGym) close() error { return nil }

func (w *nemoGym) file(r *row) (err error) {
	name := r.RowID + ".tokens.jsonl"
	if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("the row id %q cannot be part of a file's name", r.RowID)
	}
	f, err := w.create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := newLines(f)
	parent := ""
	for _, st := range r.steps {
		if !st.trained {
			continue
		}
		entry, err := nemoTurn(r, st, parent)
		if err != nil {
			return err
		}
		if err := out.put(entry); err != nil {
			return err
		}
		parent = st.turn.NodeID
	}
	return out.close()
}

func nemoTurn(r *row, st step, parent string) (nemoEntry, error) {
	t := st.turn
	item, err := outputItem(t.ResponseMessage)
	e := nemoEntry{
		SchemaVersion: 1, RolloutID: r.RowID, ModelCallID: t.NodeID, Model: t.Model,
		PromptTokenIDs: st.prompt, GenerationTokenIDs: st.sampled, GenerationLogProbs: t.SampledLogprobs,
		OutputItems: []object{item}, ResponseID: "resp-" + t.NodeID, CreatedAt: seconds(t.Timing.Recorded),
		ParentCallID: orNull(parent), ParentResolution: "root",
	}
	if parent != "" {
		e.ParentResolution = "resolved"
	}
	return e, err
}

// outputItem is the answer, named as an item of the Responses API.
func outputItem(message json.RawMessage) (object, error) {
	item := object{{"type", "message"}, {"role", "assistant"}}
	if len(message) == 0 {
		return item, nil
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(message, &fields); err != nil {
		return nil, fmt.Errorf("an answer is no object: %w", err)
	}
	for _, key := range sortedKeys(fields) {
		if key != "type" && key != "role" {
			item = append(item, member{key, fields[key]})
		}
	}
	return item, nil
}
