package format

import (
	"io"

	"captureproxy/export"
)

// trlSFT writes what TRL's SFT takes without any code: input_ids, and labels over the full length that are the id where
// the token is trained and -100 elsewhere. Labels, not completion_mask: TRL uses labels as they are. It checks no
// lengths, and cuts at its max_length.
type trlSFT struct{ sink[trlSFTRow] }

func newTRLSFT(w io.Writer, parquet bool) *trlSFT { return &trlSFT{newSink[trlSFTRow](w, parquet)} }

type trlSFTRow struct {
	InputIDs []int32 `json:"input_ids" parquet:"input_ids,list"`
	Labels   []int32 `json:"labels" parquet:"labels,list"`
}

// ignored is the label that a loss skips.
const ignored = -100

func (w *trlSFT) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		if err := w.put(&trlSFTRow{InputIDs: r.InputIDs, Labels: labels(r.InputIDs, r.mask)}, len(r.InputIDs)); err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

func labels(ids []int32, m export.Mask) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = ignored
		if m[i] == 1 {
			out[i] = id
		}
	}
	return out
}
