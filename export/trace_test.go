package export

import (
	"encoding/json"
	"math"
	"testing"

	"captureproxy/internal/record"
)

func TestTraceEntries(t *testing.T) {
	sess, calls := fullSession()
	for _, mode := range []record.Shared{record.SharedEvery, record.SharedOnce} {
		r := reread(t, Build(sess, calls, Options{Shared: mode, IncludeMessages: true}))
		entries, err := TraceEntries(r)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range entries {
			ids = append(ids, e.Metadata.NodeID)
			if len(e.LossMask) != len(e.PromptTokenIDs)+len(e.CompletionTokenIDs) || len(e.PerTokenLogps) != len(e.CompletionTokenIDs) {
				t.Errorf("%s: lengths %d, %d, %d, %d", e.Metadata.NodeID, len(e.PromptTokenIDs), len(e.CompletionTokenIDs), len(e.PerTokenLogps), len(e.LossMask))
			}
			if ones(e.LossMask) != len(e.CompletionTokenIDs) {
				t.Errorf("%s: mask %v", e.Metadata.NodeID, e.LossMask)
			}
		}
		// The title call is auxiliary, the first attempt discarded, the incomplete one not usable.
		same(t, "turns", ids, []string{"s1-3", "s1-5", "s1-7"})
		same(t, "prompt", entries[1].PromptTokenIDs, []int32{1, 10, 11, 21, 22, 2, 30})
		same(t, "completion", entries[1].CompletionTokenIDs, []int32{23, 2})
		same(t, "logprobs", entries[1].PerTokenLogps, Logprobs{-0.5, -0.0625})
	}
}

func TestTraceEntryForm(t *testing.T) {
	c := call(1, []int32{1}, []int32{2}, -1)
	c.HarnessSessionID = "h"
	entries, err := TraceEntries(Build(session(), []*record.Call{c}, Options{IncludeMessages: true}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"request":{"messages":[{"role":"user","content":"q"}],"tools":[` + string(tool) + `]},` +
		`"response":{"choices":[{"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]},` +
		`"prompt_token_ids":[1],"completion_token_ids":[2],"per_token_logps":[-1.0],"loss_mask":[0,1],` +
		`"metadata":{"node_id":"s1-1","index":0,"model":"gpt","n_tools":1,"harness_session_id":"h","sampling_params":{"temperature":1.0},"requested_sampling_params":{}}}`
	same(t, "entry", string(got), want)
}

func TestTraceEntriesOfADamagedDocument(t *testing.T) {
	r := Build(session(), []*record.Call{call(1, []int32{1}, []int32{2}, -1)}, Options{})
	r.Sequences[0].InputIDs = r.Sequences[0].InputIDs[:1]
	if _, err := TraceEntries(r); err == nil {
		t.Error("a row that is too short passes")
	}
}

func TestTurnUsable(t *testing.T) {
	base := func() *Turn {
		return &Turn{NPrompt: 1, NSampled: 1, Outcome: record.Complete, SampledLogprobs: Logprobs{-1}}
	}
	if !base().Usable() {
		t.Error("a sound turn is not usable")
	}
	for name, change := range map[string]func(*Turn){
		"no prompt":    func(t *Turn) { t.NPrompt = 0 },
		"no logprobs":  func(t *Turn) { t.SampledLogprobs = nil },
		"null":         func(t *Turn) { t.SampledLogprobs[0] = math.NaN() },
		"positive":     func(t *Turn) { t.SampledLogprobs[0] = 0.1 },
		"sentinel":     func(t *Turn) { t.SampledLogprobs[0] = -9999 },
		"filtered":     func(t *Turn) { t.Outcome = record.Filtered },
		"fatal remark": func(t *Turn) { t.Validation = fatal() },
	} {
		turn := base()
		change(turn)
		if turn.Usable() {
			t.Errorf("%s: usable", name)
		}
	}
}
