package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"captureproxy/export"
)

// TestExamples holds each form to the mapping that trainers/mkexamples.py states: the same two sessions must become the
// same values.
func TestExamples(t *testing.T) {
	docs := examples(t)
	above := Options{MinReward: ptr(0.5)}
	for _, c := range []struct {
		name, file string
		o          Options
	}{
		{"openenv", "openenv.jsonl", Options{}},
		{"verifiers", "verifiers.jsonl", Options{}},
		{"verl", "verl.jsonl", Options{}},
		{"tinker", "tinker.jsonl", Options{Advantage: AdvantageGroup}},
		{"tinker-sft", "tinker-sft.jsonl", above},
		{"trl-sft", "trl-sft.jsonl", above},
		{"trl-async", "trl-async.jsonl", Options{Advantage: AdvantageGroup}},
		{"skyrl", "skyrl.json", Options{}},
		{"nemo-gym", "nemo-gym", Options{}},
		{"areal", "areal.jsonl", Options{}},
		{"atif", "atif.jsonl", Options{}},
		{"atropos", "atropos.jsonl", Options{}},
		{"miles", "miles.jsonl", Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, s := mustFiles(t, docs, c.name, c.o)
			want := read(t, filepath.Join("testdata/examples", c.file))
			if len(want) > 1 {
				delete(out, "")
			}
			if diff := cmp.Diff(sortedKeys(want), sortedKeys(out)); diff != "" {
				t.Fatalf("other files (-want +got):\n%s", diff)
			}
			near := cmpopts.EquateApprox(0, 1e-12)
			if diff := cmp.Diff(values[any](t, want), values[any](t, out), near); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if n := trainedTokens(t, c.name, out); n != s.TrainedTokens {
				t.Errorf("the summary says %d trained tokens, the file has %d", s.TrainedTokens, n)
			}
		})
	}
}

// read takes the files of an example; a single one has the name "".
func read(t *testing.T, path string) folder {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	out := folder{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(name)] = bytes.NewBuffer(b)
	}
	if len(names) == 0 {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[""] = bytes.NewBuffer(b)
	}
	return out
}

// examples reads the two sessions that mkexamples.py writes, and adds what a document has and its sketch leaves out.
func examples(t *testing.T) list {
	t.Helper()
	b, err := os.ReadFile("testdata/examples/rollouts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var docs list
	for line := range strings.Lines(string(b)) {
		sketch := map[string]any{}
		if err := json.Unmarshal([]byte(line), &sketch); err != nil {
			t.Fatal(err)
		}
		complete(sketch)
		whole, err := json.Marshal(sketch)
		if err != nil {
			t.Fatal(err)
		}
		r, err := export.Read(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, r)
	}
	return docs
}

func complete(doc map[string]any) {
	roots := map[string]any{}
	turns, rows := doc["turns"].([]any), doc["sequences"].([]any)
	for _, v := range turns {
		turn := v.(map[string]any)
		if parent, ok := turn["parent_id"].(string); ok {
			roots[turn["node_id"].(string)] = roots[parent]
		} else {
			roots[turn["node_id"].(string)] = turn["node_id"]
		}
		turn["root_id"] = roots[turn["node_id"].(string)]
		policy := turn["policy"].(map[string]any)
		turn["policy"] = map[string]any{"dispatch": policy["dispatch"], "first_token": policy["first"], "end": policy["end"]}
		timing := turn["timing"].(map[string]any)
		turn["timing"] = map[string]any{"dispatched": moment(timing["start"]), "recorded": moment(timing["end"])}
	}
	trained, tokens := 0, 0.0
	for _, v := range rows {
		if row := v.(map[string]any); row["trainable"] == true {
			trained++
			tokens += row["n_trainable"].(float64)
		}
	}
	doc["stats"] = map[string]any{
		"n_turns": len(turns), "n_sequences": len(rows), "n_trainable_sequences": trained,
		"n_trainable_tokens": tokens, "n_distinct_trainable_tokens": tokens,
	}
	doc["policy"] = doc["run"].(map[string]any)["metadata"].(map[string]any)["policy"]
	doc["shared"], doc["proxy_version"] = "once", "0"
}

func moment(v any) string {
	seconds, part := math.Modf(v.(float64))
	return time.Unix(int64(seconds), int64(part*1e9)).UTC().Format(time.RFC3339Nano)
}

// TestExamplesAreWhole keeps the adapter honest: what it makes is a document that agrees with itself.
func TestExamplesAreWhole(t *testing.T) {
	for _, r := range examples(t) {
		if found := export.Check(r); len(found) > 0 {
			t.Errorf("%s: %v", r.SessionID, found)
		}
	}
	if n := len(examples(t)); n != 2 {
		t.Error(fmt.Sprint("want 2 examples, got ", n))
	}
}
