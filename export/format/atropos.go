package format

import (
	"encoding/json"
	"fmt"
	"io"

	"captureproxy/export"
)

// atropos writes a group a line, the body of POST /scored_data: all over the full length, masks the id where it is
// trained and -100 elsewhere, logprobs 1.0 where it is not (0.0 is a legal logprob). Every row of a session has its
// score. Atropos normalises scores over rows; with an advantage within the group each row carries that too, for
// trainers that take it.
type atropos struct {
	*lines
	group   *atroposGroup
	current int // the group's number
}

func newAtropos(w io.Writer) *atropos { return &atropos{lines: newLines(w)} }

type atroposGroup struct {
	Tokens            [][]int32           `json:"tokens"`
	Masks             [][]int32           `json:"masks"`
	Scores            []number            `json:"scores"`
	Advantages        []export.Logprobs   `json:"advantages,omitempty"`
	InferenceLogprobs []export.Logprobs   `json:"inference_logprobs"`
	Messages          [][]json.RawMessage `json:"messages"`
	Overrides         *struct{}           `json:"overrides"`
	GroupOverrides    atroposOverrides    `json:"group_overrides"`
}

type atroposOverrides struct {
	GroupID string `json:"group_id"`
}

// notTrained stands for the logprob of a token that is not trained.
const notTrained = 1.0

func (w *atropos) write(s *session) (n written, err error) {
	switch {
	case w.group == nil || s.groupIndex > w.current:
		if err := w.flush(); err != nil {
			return n, err
		}
		w.group, w.current = &atroposGroup{GroupOverrides: atroposOverrides{s.group}}, s.groupIndex
	case s.groupIndex < w.current:
		return n, fmt.Errorf("group %s was written before all of its sessions came: give the sessions of a group one after the other", s.group)
	}
	for i := range s.rows {
		w.add(s, &s.rows[i])
		n.rows++
		n.tokens += s.rows[i].trained
	}
	return n, nil
}

func (w *atropos) add(s *session, r *row) {
	g := w.group
	g.Tokens = append(g.Tokens, r.InputIDs)
	g.Masks = append(g.Masks, labels(r.InputIDs, r.mask))
	g.Scores = append(g.Scores, number(s.reward))
	lps := make(export.Logprobs, len(r.logprobs))
	for i, lp := range r.logprobs {
		lps[i] = notTrained
		if r.mask[i] == 1 {
			lps[i] = lp
		}
	}
	g.InferenceLogprobs = append(g.InferenceLogprobs, lps)
	g.Messages = append(g.Messages, r.chat())
	if s.grouped {
		g.Advantages = append(g.Advantages, onTrained(r.mask, s.advantage))
	}
}

func (w *atropos) flush() error {
	if w.group == nil {
		return nil
	}
	return w.put(w.group)
}

func (w *atropos) close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.lines.close()
}
