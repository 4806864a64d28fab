package graph

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// vector is one session of the shared vectors, with what must come out of it.
type vector struct {
	Name         string
	Why          string
	CaptureLevel string `json:"capture_level"`
	Turns        []vectorTurn
	Every        vectorExpect `json:"expect_every"`
	Once         vectorExpect `json:"expect_once"`
}

type vectorTurn struct {
	ID       string
	Prompt   []int32
	Sampled  []int32
	Logprobs []*float64
	Tools    int
	Messages []json.RawMessage
	Reply    json.RawMessage
}

type vectorExpect struct {
	Parents   map[string]*string
	Roots     []string
	Leaves    []string
	Forks     []string
	Discarded []string
	Stats     struct {
		Turns     int `json:"n_turns"`
		Roots     int `json:"n_roots"`
		Leaves    int `json:"n_leaves"`
		Forks     int `json:"n_forks"`
		Discarded int `json:"n_discarded"`
	}
	Sequences []vectorRow
}

type vectorRow struct {
	Role        string
	RootID      string   `json:"root_id"`
	NodeIDs     []string `json:"node_ids"`
	PromptLen   int      `json:"prompt_len"`
	TurnLengths []int    `json:"turn_lengths"`
	TurnSpans   [][2]int `json:"turn_spans"`
	SharedSpans [][2]int `json:"shared_spans"`
	InputIDs    []int32  `json:"input_ids"`
	LossMask    []int    `json:"loss_mask"`
	Logprobs    []float64
	NTrainable  int `json:"n_trainable"`
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
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

// turn builds a Turn whose usability follows from its ids and logprobs alone.
func (v vectorTurn) turn(arrival int) Turn {
	t := Turn{ID: v.ID, Arrival: arrival, Prompt: v.Prompt, Sampled: v.Sampled, Request: v.Messages, Reply: v.Reply}
	t.Usable = len(v.Prompt) > 0 && len(v.Logprobs) == len(v.Sampled)
	for _, p := range v.Logprobs {
		if p == nil {
			t.Usable = false
			t.Logprobs = append(t.Logprobs, math.NaN())
			continue
		}
		if *p > 0 || *p <= -9999 {
			t.Usable = false
		}
		t.Logprobs = append(t.Logprobs, *p)
	}
	return t
}

func (v vector) turns() []Turn {
	turns := make([]Turn, len(v.Turns))
	for i, t := range v.Turns {
		turns[i] = t.turn(i)
	}
	return turns
}

func (g *Graph) ids(nodes []int) []string {
	ids := []string{}
	for _, i := range nodes {
		ids = append(ids, g.Nodes[i].Turn.ID)
	}
	return ids
}

func pairs(spans []Span) [][2]int {
	out := [][2]int{}
	for _, s := range spans {
		out = append(out, [2]int{s.Start, s.End})
	}
	return out
}

// say builds a message; raw messages in tests read as conversations that way.
func say(role, text string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"role": role, "content": text})
	if err != nil {
		panic(err)
	}
	return b
}

func ones(n int) []float64 {
	lps := make([]float64, n)
	for i := range lps {
		lps[i] = -0.5
	}
	return lps
}

// sampled builds a usable turn.
func sampled(id string, arrival int, prompt, ids []int32) Turn {
	return Turn{ID: id, Arrival: arrival, Prompt: prompt, Sampled: ids, Logprobs: ones(len(ids)), Usable: true}
}
