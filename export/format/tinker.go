package format

import (
	"encoding/json"
	"io"

	"captureproxy/export"
)

// tinker writes a Datum a line. It is shifted by one: inputs are ids[:-1], targets and every other stream [1:].
//
// For RL there is no mask: a position with advantage 0 is not trained, so a session whose advantage is 0 trains
// nothing. The advantage within a group is the reward less the mean, as Tinker's own recipes have it. For SFT the mask
// is the weights.
type tinker struct {
	*lines
	sft bool
}

func newTinker(w io.Writer) *tinker    { return &tinker{lines: newLines(w)} }
func newTinkerSFT(w io.Writer) *tinker { return &tinker{lines: newLines(w), sft: true} }

type tinkerDatum struct {
	ModelInput   tinkerInput  `json:"model_input"`
	LossFnInputs tinkerInputs `json:"loss_fn_inputs"`
}

type tinkerInput struct {
	Chunks []tinkerChunk `json:"chunks"`
}

type tinkerChunk struct {
	Type   string  `json:"type"`
	Tokens []int32 `json:"tokens"`
}

type tinkerInputs struct {
	TargetTokens tinkerTensor  `json:"target_tokens"`
	Logprobs     *tinkerTensor `json:"logprobs,omitempty"`
	Advantages   *tinkerTensor `json:"advantages,omitempty"`
	Weights      *tinkerTensor `json:"weights,omitempty"`
}

type tinkerTensor struct {
	Data  json.Marshaler `json:"data"`
	DType string         `json:"dtype"`
	Shape []int          `json:"shape"`
}

func floats(v export.Logprobs) tinkerTensor { return tinkerTensor{v, "float32", []int{len(v)}} }

// ids make a list of ids a json.Marshaler, as the other tensors are.
type ids []int32

func (v ids) MarshalJSON() ([]byte, error) { return json.Marshal([]int32(v)) }

func (w *tinker) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		if err := w.put(w.datum(r, s.centred)); err != nil {
			return n, err
		}
		n.rows++
		if w.sft || s.centred != 0 {
			n.tokens += r.trained
		}
	}
	return n, nil
}

func (w *tinker) datum(r *row, advantage float64) tinkerDatum {
	end := len(r.InputIDs) - 1
	d := tinkerDatum{
		ModelInput:   tinkerInput{[]tinkerChunk{{"encoded_text", r.InputIDs[:end]}}},
		LossFnInputs: tinkerInputs{TargetTokens: tinkerTensor{ids(r.InputIDs[1:]), "int64", []int{end}}},
	}
	if w.sft {
		weights := floats(onTrained(r.mask[1:], 1))
		d.LossFnInputs.Weights = &weights
		return d
	}
	logprobs, advantages := floats(r.logprobs[1:]), floats(onTrained(r.mask[1:], advantage))
	d.LossFnInputs.Logprobs, d.LossFnInputs.Advantages = &logprobs, &advantages
	return d
}

// onTrained is a value where the mask is 1, and 0 elsewhere.
func onTrained(m export.Mask, value float64) export.Logprobs {
	out := make(export.Logprobs, len(m))
	for i, v := range m {
		if v == 1 {
			out[i] = value
		}
	}
	return out
}
