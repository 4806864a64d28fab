package reconcile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/validate"
	"captureproxy/validate/reconcile"
)

// codes are the findings as level and code, in order.
func codes(findings []validate.Finding) string {
	var out []string
	for _, f := range findings {
		out = append(out, string(f.Level)+" "+string(f.Code))
	}
	return strings.Join(out, ", ")
}

func document(t testing.TB, name string) *export.Rollout {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := export.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func record(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func read(t testing.TB, text string) *reconcile.Trajectory {
	t.Helper()
	trajectory, err := reconcile.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return trajectory
}

// What real harnesses wrote agrees with what was captured of them, with the document's messages and without.
func TestRealRecords(t *testing.T) {
	const side, stop, synthetic = "INFO call_extra", "INFO budget_stop", "WARN synthetic_step"
	for _, c := range []struct {
		doc, log string
		kind     reconcile.Kind
		steps    int
		want     string
	}{
		{"claude-ok", "claude-ok.log.jsonl", reconcile.ClaudeCode, 3, ""},
		{"claude-budget", "claude-budget.log.jsonl", reconcile.ClaudeCode, 3, stop},
		{"claude-fault", "claude-fault.log.jsonl", reconcile.ClaudeCode, 1, synthetic},
		{"claude-retry", "claude-retry.log.jsonl", reconcile.ClaudeCode, 3, "INFO call_retried"},
		{"codex-ok", "codex-ok.log.jsonl", reconcile.Codex, 3, ""},
		{"codex-budget", "codex-budget.log.jsonl", reconcile.Codex, 3, stop},
		{"codex-fault", "codex-fault.log.jsonl", reconcile.Codex, 1, synthetic},
		{"pi-ok", "pi-ok.log.jsonl", reconcile.Pi, 3, ""},
		{"pi-budget", "pi-budget.log.jsonl", reconcile.Pi, 3, stop},
		{"pi-fault", "pi-fault.log.jsonl", reconcile.Pi, 1, synthetic},
		{"opencode-ok", "opencode-ok.log.json", reconcile.OpenCode, 3, side},
		{"opencode-budget", "opencode-budget.log.json", reconcile.OpenCode, 2, side + ", " + stop},
		{"opencode-fault", "opencode-fault.log.json", reconcile.OpenCode, 1, "INFO call_retried, " + synthetic},
		{"pi-ok", "pi-ok.atif.json", reconcile.ATIF, 3, ""},
	} {
		trajectory := read(t, record(t, c.log))
		if trajectory.Kind != c.kind || len(trajectory.Steps) != c.steps || trajectory.SessionID == "" || trajectory.Cut {
			t.Errorf("%s: %s, %d steps, session %q", c.log, trajectory.Kind, len(trajectory.Steps), trajectory.SessionID)
		}
		doc := document(t, c.doc)
		if got := codes(reconcile.Against(doc, trajectory)); got != c.want {
			t.Errorf("%s: %s, want %s", c.log, got, c.want)
		}
		for i := range doc.Turns {
			doc.Turns[i].RequestMessages, doc.Turns[i].ResponseMessage = nil, nil
		}
		if got := codes(reconcile.Against(doc, trajectory)); got != c.want {
			t.Errorf("%s without messages: %s, want %s", c.log, got, c.want)
		}
	}
}

// A failed call that was repeated is named with the call that did.
func TestRetryIsNamed(t *testing.T) {
	findings := reconcile.Against(document(t, "claude-retry"), read(t, record(t, "claude-retry.log.jsonl")))
	if len(findings) != 1 || !strings.Contains(findings[0].Detail, "call 2 failed (upstream_error)") || !strings.Contains(findings[0].Detail, "call 3 repeated it") {
		t.Error(findings)
	}
}

// The counts that stand in real records are compared at all: each one changed is noticed.
func TestCountsAreCompared(t *testing.T) {
	for log, fields := range map[string][2]string{
		"claude-ok.log.jsonl":  {`"output_tokens":46`, `"input_tokens":18488`},
		"codex-ok.log.jsonl":   {`"output_tokens":46`, `"input_tokens":8587`},
		"pi-ok.log.jsonl":      {`"output":45`, `"input":1389`},
		"opencode-ok.log.json": {`"total": 7185`, `"input": 7134`},
		"pi-ok.atif.json":      {`"completion_tokens":45`, `"prompt_tokens":1389`},
	} {
		doc := document(t, log[:strings.Index(log, ".")])
		text := record(t, log)
		for i, field := range fields {
			if !strings.Contains(text, field) {
				t.Fatalf("%s has no %s", log, field)
			}
			got := codes(reconcile.Against(doc, read(t, strings.ReplaceAll(text, field, field+"1"))))
			want := []string{"FATAL", "WARN"}[i] + " token_counts_differ"
			if !strings.Contains(got, want) {
				t.Errorf("%s with another %s: %s", log, field, got)
			}
		}
	}
}

func TestDamagedDocument(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(*export.Rollout)
		want   string
	}{
		{"a turn is gone", func(d *export.Rollout) { d.Turns = slices.Delete(d.Turns, 1, 2) }, "FATAL call_missing"},
		{"the last turn is gone", func(d *export.Rollout) { d.Turns = d.Turns[:2] }, "FATAL call_missing"},
		{"all turns are gone", func(d *export.Rollout) { d.Turns = nil }, "FATAL call_missing, FATAL call_missing, FATAL call_missing"},
		{"a turn more", func(d *export.Rollout) {
			more := d.Turns[2]
			more.NodeID, more.Call, more.ResponseMessage = "more", 9, []byte(`{"role":"assistant","content":"more"}`)
			d.Turns = append(d.Turns, more)
		}, "WARN call_extra"},
		{"an answer that was asked for again", func(d *export.Rollout) {
			again := d.Turns[1]
			again.NodeID, again.Discarded, again.DiscardReason = "again", true, "retry"
			again.ResponseMessage = []byte(`{"role":"assistant","content":"other"}`)
			d.Turns = append(d.Turns, again)
		}, "INFO call_retried"},
		{"an answer whose call was repeated", func(d *export.Rollout) {
			first := d.Turns[1]
			first.NodeID, first.Call = "first", 7
			first.ResponseMessage = []byte(`{"role":"assistant","content":"other"}`)
			d.Turns[1].RetryOf = 7
			d.Turns = append(d.Turns, first)
		}, "INFO call_retried"},
		{"a failed call before", func(d *export.Rollout) {
			d.FailedCalls = []export.FailedCall{{Call: 2, Outcome: "upstream_error"}}
		}, "INFO call_retried"},
		{"a sampled id less", func(d *export.Rollout) { d.Turns[1].NSampled-- }, "FATAL token_counts_differ"},
		{"a prompt id less", func(d *export.Rollout) { d.Turns[1].NPrompt-- }, "WARN token_counts_differ"},
		{"budget stops that nobody saw", func(d *export.Rollout) { d.BudgetStops = 2 }, "WARN budget_stop"},
		{"another session's", func(d *export.Rollout) {
			for i := range d.Turns {
				d.Turns[i].ResponseMessage = []byte(`{"role":"assistant","content":"other"}`)
			}
		}, "FATAL other_session"},
	} {
		doc := document(t, "pi-ok")
		c.damage(doc)
		if got := codes(reconcile.Against(doc, read(t, record(t, "pi-ok.log.jsonl")))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Ids are compared one by one where the record has them.
func TestTokenIDs(t *testing.T) {
	trajectory := read(t, record(t, "pi-ok.atif.json"))
	trajectory.Steps[1].CompletionIDs[4]++
	findings := reconcile.Against(document(t, "pi-ok"), trajectory)
	if codes(findings) != "FATAL token_ids_differ" || !strings.Contains(findings[0].Detail, "position 4 ") {
		t.Error(findings)
	}
	trajectory = read(t, record(t, "pi-ok.atif.json"))
	trajectory.Steps[1].CompletionIDs = trajectory.Steps[1].CompletionIDs[:9]
	if got := codes(reconcile.Against(document(t, "pi-ok"), trajectory)); got != "FATAL token_ids_differ" {
		t.Error(got)
	}
}

// A record that is cut off is read as far as it goes.
func TestCutRecord(t *testing.T) {
	for _, log := range []string{"claude-ok.log.jsonl", "codex-ok.log.jsonl", "pi-ok.log.jsonl"} {
		text := record(t, log)
		trajectory := read(t, text[:len(text)-30])
		if !trajectory.Cut {
			t.Errorf("%s: the cut was not noticed", log)
		}
		got := codes(reconcile.Against(document(t, log[:strings.Index(log, ".")]), trajectory))
		if !strings.HasPrefix(got, "WARN record_cut") {
			t.Errorf("%s: %s", log, got)
		}
	}
	text := record(t, "pi-ok.atif.json")
	if _, err := reconcile.Read(strings.NewReader(text[:len(text)-30])); err == nil {
		t.Error("a trajectory that is cut off has no steps to read")
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no harness's record",
		"{}":                               "no harness's record",
		`[1,2]`:                            "no harness's record",
		`"text"`:                           "no harness's record",
		record(t, "pi-ok.json"):            "no harness's record",
		"not JSON":                         "cannot be read",
		"SQLite format 3\x00 and the rest": "opencode export",
		`{"schema_version":"ATIF-v1.7","steps":[{"step_id":1,"source":"agent","message":7}]}`: "step 1",
		`{"schema_version":"ATIF-v1.7","steps":"none"}`:                                       "no ATIF trajectory",
	} {
		_, err := reconcile.Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	broken := errors.New("the disk is gone")
	if _, err := reconcile.Read(io.MultiReader(strings.NewReader(`{"type":"session","id":"a","version":3}`), failing{broken})); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzRead(f *testing.F) {
	logs, err := filepath.Glob("testdata/*.log.json*")
	if err != nil || len(logs) == 0 {
		f.Fatal(err, logs)
	}
	for _, log := range append(logs, "testdata/pi-ok.atif.json") {
		f.Add([]byte(record(f, filepath.Base(log))))
	}
	doc := document(f, "pi-ok")
	f.Fuzz(func(_ *testing.T, text []byte) {
		if trajectory, err := reconcile.Read(bytes.NewReader(text)); err == nil {
			reconcile.Against(doc, trajectory)
		}
	})
}
