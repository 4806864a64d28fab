package format

import (
	"encoding/json"
	"errors"
	"io"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// skyRL writes one GeneratorOutput, an object of columns. The rows of a session are adjacent; the reward stands on the
// last token of the last, which is_last_step marks (step_wise_training must be on).
//
// An object of columns can only be written once every row is known, so each column waits in a temporary file.
type skyRL struct {
	out     io.Writer
	columns []*spool
}

// skyNames are the columns, in the order in which a row gives its values.
func skyNames() []string {
	return []string{"prompt_token_ids", "response_ids", "rewards", "loss_masks", "stop_reasons", "rollout_logprobs", "trajectory_ids", "is_last_step"}
}

func newSkyRL(w io.Writer) *skyRL {
	s := &skyRL{out: w}
	for range skyNames() {
		s.columns = append(s.columns, &spool{})
	}
	return s
}

type skyTrajectory struct {
	InstanceID   string `json:"instance_id"`
	RepetitionID int    `json:"repetition_id"`
}

func (w *skyRL) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		last := i == len(s.rows)-1
		rewards := make(export.Logprobs, len(r.response()))
		if last && len(rewards) > 0 {
			rewards[len(rewards)-1] = s.reward
		}
		stop := "stop"
		if r.last().turn.Outcome == record.Length {
			stop = "length"
		}
		err := w.row(r.prompt(), r.response(), rewards, r.responseMask(), stop, r.responseLogs(), skyTrajectory{s.group, s.inGroup}, last)
		if err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

func (w *skyRL) row(values ...any) error {
	for i, v := range values {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := w.columns[i].add(text); err != nil {
			return err
		}
	}
	return nil
}

func (w *skyRL) close() error {
	var failed error
	opening := "{"
	put := func(text string) {
		if failed == nil {
			_, failed = io.WriteString(w.out, text)
		}
	}
	for i, name := range skyNames() {
		put(opening + `"` + name + `":[`)
		opening = ","
		if failed == nil {
			failed = w.columns[i].copyTo(w.out)
		}
		put("]")
	}
	put("}\n")
	for _, c := range w.columns {
		failed = errors.Join(failed, c.close())
	}
	return failed
}
