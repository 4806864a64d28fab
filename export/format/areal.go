package format

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"math"

	"captureproxy/export"
)

// areal writes a session a line: row id to tensor dict, as AReaL's proxy serialises interactions. Tensors are [1, L],
// little-endian and base64. versions holds, where a token is trained, the policy when its turn was sent to the engine,
// and -1 elsewhere; -1 too where nobody said which policy it was.
type areal struct{ *lines }

func newAReaL(w io.Writer) *areal { return &areal{newLines(w)} }

type arealSession struct {
	SessionID    string `json:"session_id"`
	GroupID      string `json:"group_id"`
	Interactions object `json:"interactions"`
}

type arealInteraction struct {
	TensorDict    arealTensors `json:"tensor_dict"`
	Reward        number       `json:"reward"`
	InteractionID string       `json:"interaction_id"`
}

type arealTensors struct {
	InputIDs      arealTensor `json:"input_ids"`
	LossMask      arealTensor `json:"loss_mask"`
	Logprobs      arealTensor `json:"logprobs"`
	Versions      arealTensor `json:"versions"`
	AttentionMask arealTensor `json:"attention_mask"`
	Rewards       arealTensor `json:"rewards"`
}

type arealTensor struct {
	Type  string `json:"type"`
	Data  string `json:"data"`
	Shape []int  `json:"shape"`
	DType string `json:"dtype"`
}

func (w *areal) write(s *session) (n written, err error) {
	line := arealSession{SessionID: s.doc.SessionID, GroupID: s.group}
	for i := range s.rows {
		r := &s.rows[i]
		line.Interactions = append(line.Interactions, member{r.RowID, arealInteraction{
			TensorDict: arealRow(r, s.reward), Reward: number(s.reward), InteractionID: r.RowID,
		}})
		n.rows++
		n.tokens += r.trained
	}
	return n, w.put(line)
}

func arealRow(r *row, reward float64) arealTensors {
	size := len(r.InputIDs)
	shape := []int{1, size}
	return arealTensors{
		InputIDs:      int64s(size, shape, func(i int) int64 { return int64(r.InputIDs[i]) }),
		LossMask:      int64s(size, shape, func(i int) int64 { return int64(r.mask[i]) }),
		Logprobs:      float32s(r.logprobs, shape),
		Versions:      versions(r, shape),
		AttentionMask: allTrue(size, shape),
		Rewards:       float32s(export.Logprobs{reward}, []int{1}),
	}
}

func versions(r *row, shape []int) arealTensor {
	list := make([]int64, len(r.InputIDs))
	for i := range list {
		list[i] = -1
	}
	for _, st := range r.steps {
		v := st.turn.Policy.Dispatch
		if !st.trained || v == nil {
			continue
		}
		for i := st.start; i < st.end; i++ {
			list[i] = *v
		}
	}
	return int64s(len(list), shape, func(i int) int64 { return list[i] })
}

func int64s(n int, shape []int, at func(i int) int64) arealTensor {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(at(i)))
	}
	return newTensor(b, shape, "torch.int64")
}

func float32s(list export.Logprobs, shape []int) arealTensor {
	b := make([]byte, 0, 4*len(list))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return newTensor(b, shape, "torch.float32")
}

func allTrue(n int, shape []int) arealTensor {
	b := make([]byte, n)
	for i := range b {
		b[i] = 1
	}
	return newTensor(b, shape, "torch.bool")
}

func newTensor(b []byte, shape []int, dtype string) arealTensor {
	return arealTensor{Type: "tensor", Data: base64.StdEncoding.EncodeToString(b), Shape: shape, DType: dtype}
}
