package export

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/record"
)

type vector struct {
	Name         string
	CaptureLevel record.Level `json:"capture_level"`
	Turns        []struct {
		ID       string
		Prompt   []int32
		Sampled  []int32
		Logprobs []*float64
		Tools    int
		Messages []json.RawMessage
		Reply    json.RawMessage
	}
	Every expect `json:"expect_every"`
	Once  expect `json:"expect_once"`
}

type expect struct {
	Parents   map[string]*string
	Roots     []string
	Leaves    []string
	Forks     []string
	Discarded []string
	Stats     map[string]int
	Sequences []struct {
		Role        Role
		RootID      string   `json:"root_id"`
		NodeIDs     []string `json:"node_ids"`
		NTurns      int      `json:"n_turns"`
		PromptLen   int      `json:"prompt_len"`
		TurnLengths []int    `json:"turn_lengths"`
		TurnSpans   [][2]int `json:"turn_spans"`
		SharedSpans [][2]int `json:"shared_spans"`
		Trainable   bool
		InputIDs    []int32 `json:"input_ids"`
		LossMask    Mask    `json:"loss_mask"`
		Logprobs    Logprobs
		NTrainable  int `json:"n_trainable"`
	}
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("../graph/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(data, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 82 {
		t.Fatalf("%d vectors, want 82", len(vs))
	}
	return vs
}

// log makes the session and its calls; name maps node ids to the vector's own.
func (v vector) log() (sess *record.Session, calls []*record.Call, name map[string]string) {
	sess = session()
	sess.CaptureLevel = v.CaptureLevel
	name = map[string]string{"": ""}
	for i, t := range v.Turns {
		c := call(i+1, t.Prompt, t.Sampled)
		c.Tools = nil
		for range t.Tools {
			c.Tools = append(c.Tools, tool)
		}
		c.Messages = t.Messages
		ch := &c.Choices[0]
		ch.Message, ch.HasLogprobs = t.Reply, t.Logprobs != nil
		for _, lp := range t.Logprobs {
			if lp == nil {
				ch.Logprobs = append(ch.Logprobs, math.NaN())
			} else {
				ch.Logprobs = append(ch.Logprobs, *lp)
			}
		}
		if v.CaptureLevel != record.LevelTokens {
			c.Usage = record.Usage{}
		}
		calls = append(calls, c)
		name["s1-"+number(i+1)] = t.ID
	}
	return sess, calls, name
}

func number(n int) string {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestVectors(t *testing.T) {
	for _, v := range loadVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			checkVector(t, v, record.SharedEvery, v.Every)
			checkVector(t, v, record.SharedOnce, v.Once)
		})
	}
}

func checkVector(t *testing.T, v vector, mode record.Shared, want expect) {
	t.Helper()
	sess, calls, name := v.log()
	r := Build(sess, calls, Options{Shared: mode, IncludeDiscarded: true, IncludeMessages: true})
	sane(t, r)
	names := func(ids []string) []string {
		out := []string{}
		for _, id := range ids {
			out = append(out, name[id])
		}
		return out
	}
	discarded := []string{}
	for _, turn := range r.Turns {
		if p := want.Parents[name[turn.NodeID]]; p == nil && turn.ParentID != "" || p != nil && name[turn.ParentID] != *p {
			t.Errorf("%s: parent %q", name[turn.NodeID], name[turn.ParentID])
		}
		if turn.Discarded {
			discarded = append(discarded, name[turn.NodeID])
		}
	}
	same(t, "discarded", discarded, want.Discarded)
	same(t, "stats", map[string]int{"n_turns": r.Stats.Turns, "n_roots": r.Stats.Roots, "n_leaves": r.Stats.Leaves,
		"n_forks": r.Stats.Forks, "n_discarded": r.Stats.Discarded}, want.Stats)
	if len(r.Sequences) != len(want.Sequences) {
		t.Fatalf("%d rows, want %d", len(r.Sequences), len(want.Sequences))
	}
	trainable := false
	for i, row := range reread(t, r).Sequences {
		w := want.Sequences[i]
		same(t, "role", row.Role, w.Role)
		same(t, "root_id", name[row.RootID], w.RootID)
		same(t, "node_ids", names(row.NodeIDs), w.NodeIDs)
		same(t, "n_turns", row.NTurns, w.NTurns)
		same(t, "prompt_len", row.PromptLen, w.PromptLen)
		same(t, "turn_lengths", row.TurnLengths, w.TurnLengths)
		same(t, "turn_spans", row.TurnSpans, w.TurnSpans)
		same(t, "shared_spans", row.SharedSpans, w.SharedSpans)
		same(t, "trainable", row.Trainable, w.Trainable)
		same(t, "input_ids", row.InputIDs, w.InputIDs)
		same(t, "loss_mask", row.LossMask, w.LossMask)
		same(t, "logprobs", row.Logprobs, w.Logprobs)
		same(t, "n_trainable", row.NTrainable, w.NTrainable)
		trainable = trainable || w.Trainable
	}
	same(t, "gate", r.Trainable, trainable)
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// An eval rollout of the same session has the same structure and roles, the ids and logprobs as captured, and
// trains nothing.
func TestVectorsAsEval(t *testing.T) {
	for _, v := range loadVectors(t) {
		sess, calls, _ := v.log()
		train := Build(sess, calls, Options{IncludeDiscarded: true})
		sess.Spec.Purpose = record.PurposeEval
		eval := Build(sess, calls, Options{IncludeDiscarded: true})
		sane(t, eval)
		if eval.Trainable || eval.RolloutType != TypeEval {
			t.Fatalf("%s: trainable %v, type %s", v.Name, eval.Trainable, eval.RolloutType)
		}
		for i, row := range eval.Sequences {
			w := train.Sequences[i]
			same(t, v.Name, row.NodeIDs, w.NodeIDs)
			same(t, v.Name, row.Role, w.Role)
			same(t, v.Name, row.InputIDs, w.InputIDs)
			same(t, v.Name, row.Logprobs, w.Logprobs)
			if row.NTrainable != 0 || ones(row.LossMask) != 0 || row.Trainable || len(row.Validation) > 0 || len(row.SharedSpans) > 0 {
				t.Errorf("%s: the row trains or was checked: %+v", v.Name, row)
			}
		}
	}
}
