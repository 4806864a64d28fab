package show

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T) *export.Rollout {
	t.Helper()
	data, err := os.ReadFile("../testdata/rollout.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := export.Read(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func drawings(t *testing.T, r *export.Rollout, o Options) map[string]string {
	t.Helper()
	var tree, mermaid, dot bytes.Buffer
	for _, err := range []error{Tree(&tree, r, o), Mermaid(&mermaid, r), Dot(&dot, r)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"tree.txt": tree.String(), "graph.mmd": mermaid.String(), "graph.dot": dot.String()}
}

func TestGolden(t *testing.T) {
	for name, got := range drawings(t, golden(t), Options{}) {
		file := "testdata/" + name
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", file, d)
		}
	}
}

func TestHostileTextIsNeverRaw(t *testing.T) {
	evil := "\x1b[2J\x07\u202e\"]; click n0 \"javascript:x\" <script>|`#\r\n"
	r := golden(t)
	r.SessionID, r.Status, r.Shared = evil, record.Status(evil), record.Shared(evil)
	r.Outcome = &record.Verdict{Status: "failed", Error: &evil}
	bad := validate.Finding{Level: validate.Warn, Code: "x", Detail: evil}
	r.Validation = append(r.Validation, bad, validate.Finding{Detail: evil})
	for i := range r.Turns {
		turn := &r.Turns[i]
		turn.FinishReason, turn.Outcome, turn.DiscardReason = evil, record.Outcome(evil), evil
		turn.Validation = append(turn.Validation, bad)
		if turn.Break != nil {
			turn.Break.Cause, turn.Break.Detail = evil, evil
		}
	}
	for i := range r.Sequences {
		r.Sequences[i].RowID, r.Sequences[i].Role = evil, export.Role(evil)
		r.Sequences[i].Validation = append(r.Sequences[i].Validation, bad)
	}
	r.FailedCalls[0].Detail = evil
	for name, got := range drawings(t, r, Options{Width: 10_000}) {
		for _, c := range got {
			if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
				t.Errorf("%s holds %U", name, c)
				break
			}
		}
		if name == "graph.mmd" && (strings.Contains(got, "<script>") || strings.Contains(got, `javascript:x"`)) {
			t.Errorf("%s lets text out of its label", name)
		}
		if name == "graph.dot" && strings.Contains(strings.ReplaceAll(got, `\"`, ""), `"]; click`) {
			t.Errorf("%s lets text out of its label", name)
		}
	}
}

func TestColourOnlyWhenAsked(t *testing.T) {
	r := golden(t)
	if got := drawings(t, r, Options{})["tree.txt"]; strings.Contains(got, "\x1b") {
		t.Error("colour unasked")
	}
	if got := drawings(t, r, Options{Color: true})["tree.txt"]; !strings.Contains(got, "\x1b[32m") {
		t.Error("no colour")
	}
}

func TestWidth(t *testing.T) {
	for _, line := range strings.Split(drawings(t, golden(t), Options{Width: 40})["tree.txt"], "\n") {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestVerdict(t *testing.T) {
	fatal := func(c validate.Code) []validate.Finding { return []validate.Finding{{Level: validate.Fatal, Code: c}} }
	for _, tc := range []struct {
		r    export.Rollout
		want string
	}{
		{export.Rollout{Trainable: true, Stats: export.Stats{TrainableSequences: 1, DistinctTrainableTokens: 7}}, "trainable: 1 row, 7 tokens"},
		{export.Rollout{RolloutType: export.TypeEval, CaptureLevel: record.LevelTokens}, "purpose"},
		{export.Rollout{RolloutType: export.TypeEval, CaptureLevel: record.LevelText}, "no token ids"},
		{export.Rollout{RolloutType: export.TypeTrain, Validation: fatal(validate.NoTurns)}, "base URL"},
		{export.Rollout{RolloutType: export.TypeTrain, Validation: fatal(validate.CaptureFailed)}, "store"},
		{export.Rollout{RolloutType: export.TypeTrain, Validation: fatal(validate.LogprobsMode)}, "processed logprobs"},
		{export.Rollout{RolloutType: export.TypeTrain, Validation: fatal(validate.SamplingPolicyChanged)}, "pins sampling"},
		{export.Rollout{RolloutType: export.TypeTrain, Validation: fatal(validate.DegenerateRollout)}, "min_turns"},
		{export.Rollout{RolloutType: export.TypeTrain, Sequences: []export.Row{{Role: export.Agent, Validation: fatal(validate.NothingTrainable)}}}, "why each of them is context"},
		{export.Rollout{RolloutType: export.TypeTrain, Sequences: []export.Row{{Role: export.Agent, Validation: fatal(validate.EmptyResponse)}}}, "sampled nothing"},
		{export.Rollout{RolloutType: export.TypeTrain}, "no agent row"},
	} {
		if got := Verdict(&tc.r); !strings.Contains(got, tc.want) {
			t.Errorf("%q does not say %q", got, tc.want)
		}
	}
}

// chain is a document of n plain turns, one below the other.
func chain(n int) *export.Rollout {
	r := &export.Rollout{SessionID: "s", RolloutType: export.TypeTrain}
	for i := range n {
		turn := export.Turn{NodeID: fmt.Sprint("s-", i), Outcome: record.Complete}
		if i > 0 {
			turn.ParentID = fmt.Sprint("s-", i-1)
		}
		r.Turns = append(r.Turns, turn)
	}
	return r
}

func TestLongConversationFitsOneScreen(t *testing.T) {
	r := chain(200)
	r.Turns[100].Validation = []validate.Finding{{Level: validate.Warn, Code: validate.NoUsage, Detail: "x"}}
	got := drawings(t, r, Options{})["tree.txt"]
	for _, want := range []string{"s-0 ", "⋮ 99 more turns", "s-100 ", "no_usage", "⋮ 98 more turns", "s-199 "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n"); n > 15 {
		t.Errorf("%d lines", n)
	}
}

func TestDamagedGraphEnds(t *testing.T) {
	for name, damage := range map[string]func(r *export.Rollout){
		"a circle":        func(r *export.Rollout) { r.Turns[0].ParentID = "s-19" },
		"one id twice":    func(r *export.Rollout) { r.Turns[5].NodeID = "s-4" },
		"its own parent":  func(r *export.Rollout) { r.Turns[5].ParentID = "s-5" },
		"nobody's child":  func(r *export.Rollout) { r.Turns[5].ParentID = "x" },
		"all in one name": func(r *export.Rollout) { r.Turns[1].NodeID, r.Turns[1].ParentID = "s-0", "s-0" },
	} {
		r := chain(20)
		damage(r)
		if got := drawings(t, r, Options{})["tree.txt"]; !strings.Contains(got, "s-7") && !strings.Contains(got, "more turns") {
			t.Errorf("%s: turns are missing in\n%s", name, got)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("pipe closed") }

func TestWriteErrorsComeBack(t *testing.T) {
	r := golden(t)
	for _, err := range []error{Tree(brokenWriter{}, r, Options{}), Mermaid(brokenWriter{}, r), Dot(brokenWriter{}, r)} {
		if err == nil {
			t.Error("a failed write passes unseen")
		}
	}
}
