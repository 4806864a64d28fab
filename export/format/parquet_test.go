package format

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"captureproxy/internal/record"
)

func readParquet[T any](t *testing.T, out folder) []T {
	t.Helper()
	b := out[""].Bytes()
	rows, err := parquet.Read[T](bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestSFTParquet(t *testing.T) {
	docs := list{tangled("s", "g", ptr(1.0)).build(record.SharedEvery)}
	text, _ := mustFiles(t, docs, "trl-sft", Options{})
	binary, s := mustFiles(t, docs, "trl-sft", Options{Parquet: true})
	if diff := cmp.Diff(values[trlSFTRow](t, text), readParquet[trlSFTRow](t, binary)); diff != "" {
		t.Errorf("JSONL and Parquet differ (-json +parquet):\n%s", diff)
	}
	if s.TrainedTokens != tangledTokens {
		t.Errorf("%d trained tokens, want %d", s.TrainedTokens, tangledTokens)
	}
}

// TestRows looks at the flat rows both ways: every live row is there, and only those that are trained have a mask.
func TestRows(t *testing.T) {
	docs := list{tangled("s", "g", ptr(1.0)).build(record.SharedEvery), simple("u", "", nil)}
	out, _ := mustFiles(t, docs, "rows", Options{Advantage: AdvantageGroup})
	type line struct {
		Session_id, Group_id, Row_id, Role string
		Trainable                          bool
		Reward, Advantage                  *float64
		Policy_start, Policy_end           *int64
		Prompt_len                         int32
		Input_ids                          []int32
		Loss_mask                          []int32
		Logprobs                           []float64
		Messages, Tools                    json.RawMessage
	}
	lines := values[line](t, out)
	roles := map[string]int{}
	for _, l := range lines {
		roles[l.Role]++
		trained := 0
		for i, m := range l.Loss_mask {
			trained += int(m)
			if m == 0 && l.Logprobs[i] != 0 {
				t.Errorf("%s has a logprob under mask 0", l.Row_id)
			}
		}
		if l.Trainable != (trained > 0) || len(l.Loss_mask) != len(l.Input_ids) || len(l.Logprobs) != len(l.Input_ids) || l.Prompt_len == 0 {
			t.Errorf("row %+v", l)
		}
	}
	if diff := cmp.Diff(map[string]int{"agent": 4, "auxiliary": 1}, roles); diff != "" {
		t.Errorf("roles -want +got:\n%s", diff)
	}
	first, last := lines[0], lines[len(lines)-1]
	if *first.Reward != 1 || *first.Advantage != 0 || *first.Policy_start != 3 || *first.Policy_end != 4 || first.Session_id != "s" || first.Group_id != "g" {
		t.Errorf("first row %+v", first)
	}
	if last.Reward != nil || last.Advantage != nil || last.Group_id != "u" {
		t.Errorf("the row of a session that nobody scored: %+v", last)
	}
	binary, _ := mustFiles(t, docs, "rows", Options{Advantage: AdvantageGroup, Parquet: true})
	var same []line
	for _, r := range readParquet[parquetRow](t, binary) {
		same = append(same, line{r.SessionID, r.GroupID, r.RowID, r.Role, r.Trainable, r.Reward, r.Advantage, r.PolicyStart, r.PolicyEnd,
			r.PromptLen, r.InputIDs, r.LossMask, r.Logprobs, json.RawMessage(r.Messages), json.RawMessage(r.Tools)})
	}
	if diff := cmp.Diff(lines, same); diff != "" {
		t.Errorf("JSONL and Parquet differ (-json +parquet):\n%s", diff)
	}
}
