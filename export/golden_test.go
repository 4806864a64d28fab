package export

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"testing"

	"captureproxy/internal/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fullSession has all that a document can show: a title call, a retry, a fork, a failed call, a broken prefix, an
// untrained turn, a budget stop, run, group, rewards and edits.
func fullSession() (*record.Session, []*record.Call) {
	sess := session()
	closed, reward, size := start.Add(90e9), 1.0, 2
	sess.Status, sess.Outcome, sess.ClosedAt = record.Completed, &record.Verdict{Status: "completed"}, &closed
	sess.Spec.Env, sess.Spec.Group = &record.Env{ID: "swe", Name: "swe-a"}, &record.Group{ID: "g1", Size: &size}
	sess.Spec.Run = json.RawMessage(`{"kind":"train","id":"run1","metadata":{"kind":"train","step":5}}`)
	sess.Reward, sess.Rewards = &reward, map[string]float64{"tests": 1, "style": 0.5}
	sess.Metadata = map[string]json.RawMessage{"task": json.RawMessage(`"t1"`), "seed": json.RawMessage("{\n \"n\": 7\n}")}
	sess.Engine.ParamEdits = []record.Edit{{Kind: record.EditNegotiated, Param: "min_p", From: json.RawMessage(`0`), Why: "the engine refuses it"}}

	ask := []json.RawMessage{text("system", "You fix code."), text("user", "fix it")}
	title := call(1, []int32{1, 40, 41}, []int32{50, 2}, -0.1, -0.2)
	title.Tools, title.Messages = nil, []json.RawMessage{text("user", "Title?")}
	title.Choices[0].Message = text("assistant", "Fix")

	first := call(2, []int32{1, 10, 11}, []int32{20, 2}, -0.25, -1.5)
	first.Messages = ask
	retry := call(3, []int32{1, 10, 11}, []int32{21, 22, 2}, -0.10000000149011612, 0, -0.00001)
	retry.Messages, retry.RetryOf = ask, 2
	look := json.RawMessage(`{"role":"assistant","content":"look\u0000","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"cmd\": \"ls\"}"}}]}`)
	retry.Choices[0].Message, retry.Choices[0].FinishReason = look, "tool_calls"
	retry.Edits = []record.Edit{{Kind: record.EditSampling, Param: "temperature", From: json.RawMessage(`0.2`), To: json.RawMessage(`1.0`), Why: "training"}}
	retry.RequestedSampling = json.RawMessage(`{"temperature":0.2}`)

	failed := call(4, []int32{1, 10, 11, 21, 22, 2, 30}, []int32{60}, -0.5)
	failed.Outcome, failed.Detail, failed.Status = record.UpstreamError, "the stream ended without a finish reason", 200
	said := append(slices.Clone(ask), look, text("tool", "a.py"))
	left := call(5, []int32{1, 10, 11, 21, 22, 2, 30}, []int32{23, 2}, -0.5, -0.0625)
	left.Messages, left.Choices[0].Message = said, text("assistant", "done")
	right := call(6, []int32{1, 10, 11, 21, 22, 2, 31}, []int32{24, 2}, -0.75, math.NaN())
	right.Messages, right.Choices[0].Message = said, text("assistant", "other")
	right.Choices[0].FinishReason, right.Choices[0].FinishReasonRaw = "length", "length"
	right.Outcome, right.Choices[0].Outcome, right.Detail = record.IncompleteCapture, record.IncompleteCapture, "invalid_logprob"

	bare := json.RawMessage(`{"role":"assistant","content":"look\u0000","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"cmd\": \"ls\"}"}}]}`)
	broken := call(7, []int32{1, 10, 11, 22, 2, 32}, []int32{25, 2}, -0.3, -0.3)
	broken.Messages = append(slices.Clone(ask), bare, text("tool", "a.py"), text("user", "again"))
	broken.HarnessSessionID, broken.Harness = "h1", record.Harness{Name: "claude-code", Version: "2.1.197", AgentID: "a1"}
	stop := call(8, nil, nil)
	stop.Outcome, stop.Choices, stop.Detail = record.BudgetStop, nil, "max_model_calls 6 spent"

	calls := []*record.Call{title, first, retry, failed, left, right, broken, stop}
	for i, c := range calls {
		at, end := int64(4), int64(4+i/6)
		c.Policy = record.CallPolicy{Dispatch: &at, FirstToken: &at, End: &end}
	}
	broken.Policy.Engine = json.RawMessage(`"step-5"`)
	return sess, calls
}

func TestGolden(t *testing.T) {
	sess, calls := fullSession()
	r := Build(sess, calls, Options{IncludeMessages: true, IncludeDiscarded: true, ProxyVersion: "1.0.0"})
	sane(t, r)
	got := bytesOf(t, r)
	checkGolden(t, "testdata/rollout.json", got)

	slices.Reverse(calls)
	if again := bytesOf(t, Build(sess, calls, Options{IncludeMessages: true, IncludeDiscarded: true, ProxyVersion: "1.0.0"})); !bytes.Equal(got, again) {
		t.Error("the order of the log's slice changes the document")
	}
}

// checkGolden compares a document with a file, in which it is indented for readers.
func checkGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, got, "", " "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	same(t, file, b.String(), string(want))
}

func TestBytesAreThoseOfMarshal(t *testing.T) {
	sess, calls := fullSession()
	r := Build(sess, calls, Options{IncludeMessages: true})
	viaGo, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var ours bytes.Buffer
	if err := json.Compact(&ours, bytesOf(t, r)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(viaGo, ours.Bytes()) {
		t.Error("json.Marshal gives another document")
	}
}
