package format

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/record"
)

func raw(s ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, v := range s {
		out = append(out, json.RawMessage(v))
	}
	return out
}

// odd is a session whose messages are of every form that harnesses and providers write.
func odd() *capture {
	c := newCapture("s", "g", ptr(1.0))
	c.sess.Rewards = map[string]float64{"tests": 1, "style": 0.5}
	first := c.turn(raw(
		`{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"old","type":"function","function":{"name":"ls","arguments":"{\"p\":1}"}}]}`,
		`{"role":"tool","tool_call_id":"old","content":"old result"}`,
		`{"role":"tool","tool_call_id":"nobody","content":"lost result"}`,
		`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:,x"}},{"type":"input_audio","input_audio":{}}]}`,
	), []int32{1, 2}, 10, 11)
	first.Choices[0].Message = json.RawMessage(`{"role":"assistant","content":"look","reasoning":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"not json"}}]}`)
	first.Choices[0].FinishReason = "tool_calls"
	// The harness adds nothing that is a message, yet the engine renders more tokens.
	second := c.next(first, []int32{20}, 12)
	second.Messages = second.Messages[:len(first.Messages)+1]
	second.Dialect = record.AnthropicMessages
	c.next(second, []int32{21}, 13)
	return c
}

func TestVerifiersGraph(t *testing.T) {
	out, s := mustFiles(t, list{odd().build(record.SharedOnce)}, "verifiers", Options{})
	type node struct {
		Parent    *int
		Message   map[string]any
		Token_ids []int
		Mask      []bool
	}
	trace := values[struct {
		Run    *struct{}
		Traces []struct {
			Nodes   []node
			Calls   []struct{ Endpoint string }
			Rewards map[string]struct{ Score, Weight float64 }
		}
	}](t, out)[0].Traces[0]
	var shape []any
	for i, n := range trace.Nodes {
		if (n.Parent == nil) != (i == 0) || n.Parent != nil && *n.Parent != i-1 {
			t.Errorf("node %d has the parent %v", i, n.Parent)
		}
		shape = append(shape, []any{n.Message["role"], n.Message["content"], n.Token_ids})
	}
	image := []any{
		map[string]any{"type": "text", "text": "see"},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:,x"}},
		map[string]any{"type": "text", "text": "[input_audio]"},
	}
	want := []any{
		[]any{"system", "a\nb", []int{}}, []any{"assistant", "", []int{}}, []any{"tool", "old result", []int{}}, []any{"tool", "lost result", []int{}},
		[]any{"user", image, []int{1, 2}}, []any{"assistant", "look", []int{10, 11}},
		[]any{"assistant", "answer 2", []int{20, 12}}, // no message to carry 20
		[]any{"user", "go on 3", []int{21}}, []any{"assistant", "answer 3", []int{13}},
	}
	if diff := cmp.Diff(want, shape); diff != "" {
		t.Errorf("nodes -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, true}, trace.Nodes[6].Mask); diff != "" {
		t.Errorf("the prompt's tokens on an answer: %s", diff)
	}
	if trace.Nodes[5].Message["reasoning_content"] != "hm" || trace.Calls[1].Endpoint != "/messages" {
		t.Errorf("%+v %+v", trace.Nodes[5], trace.Calls[1])
	}
	total := 0.0
	for _, r := range trace.Rewards {
		total += r.Score * r.Weight
	}
	if total != 1 || len(trace.Rewards) != 3 {
		t.Errorf("the rewards add up to %v, the document's is 1: %+v", total, trace.Rewards)
	}
	if s.TrainedTokens != 4 {
		t.Errorf("%d trained tokens, want 4", s.TrainedTokens)
	}
}

// TestVerifiersCycle: a document from a disk may say anything of parents.
func TestVerifiersCycle(t *testing.T) {
	bad := simple("a", "g", ptr(1.0))
	bad.Turns[0].ParentID = bad.Turns[0].NodeID
	if _, _, err := files(list{bad}, "verifiers", Options{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a turn that is its own parent: %v", err)
	}
	bad = tangled("a", "g", ptr(1.0)).build(record.SharedEvery)
	bad.Turns[0].ParentID = bad.Turns[1].NodeID // the discarded retry
	if _, _, err := files(list{bad}, "verifiers", Options{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a root with a parent that is on no row: %v", err)
	}
}

func TestVerifiersRun(t *testing.T) {
	for run, want := range map[string]string{
		`null`:                      `null`,
		`{"kind":"eval","id":"e"}`:  `{"type":"eval","id":"e"}`,
		`{"kind":"train","id":"r"}`: `null`, // the trainer's type must have a step
		`{"kind":"other","id":"r"}`: `null`,
		`{"kind":"train","id":"r","metadata":{"kind":"eval","step":4}}`: `{"type":"train","id":"r","work":{"type":"eval","step":4,"policy":{"start":3,"end":4}}}`,
	} {
		c := newCapture("s", "g", ptr(1.0))
		c.turn(raw(`{"role":"user","content":"q"}`), []int32{1}, 2)
		c.sess.Spec.Run = json.RawMessage(run)
		c.sess.Status, c.sess.Outcome = record.Failed, &record.Verdict{Status: "failed", Error: ptr("Timeout: too late")}
		out, _ := mustFiles(t, list{c.build("")}, "verifiers", Options{})
		if !strings.Contains(all(out), `"run":`+want+`,"ok":false,"errors":[{"type":"failed","message":"Timeout: too late"}]`) {
			t.Errorf("%s: want %s in\n%s", run, want, all(out))
		}
	}
}

func TestATIFSteps(t *testing.T) {
	out, _ := mustFiles(t, list{odd().build(record.SharedOnce)}, "atif", Options{})
	trajectory := values[atifTrajectory](t, out)[0]
	for i, s := range trajectory.Steps {
		if s.StepID != i+1 {
			t.Errorf("step %d says %d", i+1, s.StepID)
		}
		if s.Source != "agent" && (s.Metrics != nil || s.ToolCalls != nil || s.Reasoning != "") {
			t.Errorf("a %s step with what only an agent's may have: %+v", s.Source, s)
		}
	}
	var shape []string
	for _, s := range trajectory.Steps {
		line := s.Source + ":" + s.Message
		for _, c := range s.ToolCalls {
			line += " " + c.FunctionName + string(c.Arguments)
		}
		if s.Observation != nil {
			for _, r := range s.Observation.Results {
				line += " -> " + r.Content
			}
		}
		if s.IsCopied {
			line += " (copied)"
		}
		shape = append(shape, line)
	}
	want := []string{
		"system:a\nb", `agent: ls{"p":1} -> old result -> lost result (copied)`, "user:see\n[image_url]\n[input_audio]",
		`agent:look bash{"raw":"not json"}`, "agent:answer 2", "user:go on 3", "agent:answer 3",
	}
	if diff := cmp.Diff(want, shape); diff != "" {
		t.Errorf("steps -want +got:\n%s", diff)
	}
}

// TestATIFContext: a turn that may not be trained has no ids, one that an earlier row trains is a copy.
func TestATIFContext(t *testing.T) {
	out, _ := mustFiles(t, list{tangled("s", "g", ptr(1.0)).build(record.SharedOnce)}, "atif", Options{})
	var shape []string
	for _, tr := range values[atifTrajectory](t, out) {
		line := ""
		for _, s := range tr.Steps {
			switch {
			case s.Source != "agent":
			case s.IsCopied:
				line += "c"
			case s.Metrics.CompletionTokenIDs == nil:
				line += "-"
			default:
				line += "t"
			}
		}
		shape = append(shape, line)
	}
	if diff := cmp.Diff([]string{"tt-t", "ctt", "t"}, shape); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNemoGymFiles(t *testing.T) {
	doc := tangled("s", "g", ptr(1.0)).build(record.SharedOnce)
	out, _ := mustFiles(t, list{doc}, "nemo-gym", Options{})
	type entry struct {
		Rollout_id, Model_call_id, Parent_resolution string
		Parent_call_id                               *string
		Prompt_token_ids, Generation_token_ids       []int32
	}
	entries := values[entry](t, folder{"": out[doc.Sequences[1].RowID+".tokens.jsonl"]})
	if len(entries) != 2 { // the fork's second row, without the turn that it shares
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	if entries[0].Parent_call_id != nil || entries[0].Parent_resolution != "root" || *entries[1].Parent_call_id != entries[0].Model_call_id {
		t.Errorf("the chain is broken: %+v", entries)
	}
	if diff := cmp.Diff([]int32{1, 2, 3, 10, 11, 21}, entries[0].Prompt_token_ids); diff != "" {
		t.Errorf("the call's prompt: %s", diff)
	}
	for _, id := range []string{"../up", "a/b", `a\b`, "/etc/x"} {
		bad := simple("a", "g", ptr(1.0))
		bad.Sequences[0].RowID = id
		if out, _, err := files(list{bad}, "nemo-gym", Options{}); err == nil || len(out) > 1 {
			t.Errorf("a file was made for the row id %q: %v", id, err)
		}
	}
}

// TestStatus: an answer that was cut off by the cap is said to be.
func TestStatus(t *testing.T) {
	c := newCapture("s", "g", ptr(1.0))
	c.turn(raw(`{"role":"user","content":"q"}`), []int32{1}, 2).Choices[0].Outcome = record.Length
	c.calls[0].Outcome, c.calls[0].Choices[0].FinishReason = record.Length, "length"
	for name, want := range map[string]string{"miles": `"status":"truncated"`, "skyrl": `"stop_reasons":["length"]`} {
		if out, _ := mustFiles(t, list{c.build("")}, name, Options{}); !strings.Contains(all(out), want) {
			t.Errorf("%s: %s", name, all(out))
		}
	}
}

// TestNoPolicy: what nobody said is null, or the trainer's own word for it, never version 0.
func TestNoPolicy(t *testing.T) {
	c := newCapture("s", "", ptr(1.0))
	c.turn(raw(`{"role":"user","content":"q"}`), []int32{1}, 2).Policy = record.CallPolicy{}
	docs := list{c.build("")}
	for name, want := range map[string]string{
		"verl": `"min_global_steps":null,"max_global_steps":null`, "trl-async": `"model_version":null`, "miles": `"weight_versions":[]`,
		"rows": `"policy_start":null,"policy_end":null`, "areal": `"versions":{"type":"tensor","data":"/////////////////////w=="`,
	} {
		if out, _ := mustFiles(t, docs, name, Options{}); !strings.Contains(all(out), want) {
			t.Errorf("%s: want %s in\n%s", name, want, all(out))
		}
	}
}

func TestMessagesForm(t *testing.T) {
	cut := newCapture("cut", "g", ptr(1.0))
	cut.turn(raw(`{"role":"user","content":"q"}`), []int32{1}, 2).Outcome = record.Filtered
	cut.calls[0].Choices[0].Outcome = record.Filtered
	cut.sess.Spec.Purpose = record.PurposeEval
	eval := newCapture("eval", "g", nil)
	eval.sess.CaptureLevel = record.LevelText
	first := eval.turn(raw(`{"role":"user","content":"q"}`), nil)
	first.Choices[0].HasIDs, first.Choices[0].HasLogprobs = false, false
	out, s := mustFiles(t, list{eval.build(""), cut.build(""), tangled("t", "g", ptr(1.0)).build("")}, "messages", Options{})
	var got []string
	for _, l := range values[struct {
		Session_id string
		Messages   []struct{ Role, Content string }
		Tools      []any
	}](t, out) {
		line := l.Session_id
		for _, m := range l.Messages {
			line += " " + m.Role
		}
		got = append(got, line)
	}
	want := []string{
		"eval user assistant",
		"t system user assistant user assistant user assistant user assistant", "t system user assistant user assistant user assistant", "t system user assistant",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Reason{{"nothing to write", 1}}, s.SessionsLeftOut); diff != "" || s.TrainedTokens != 0 {
		t.Errorf("%s %d", diff, s.TrainedTokens)
	}
}

func TestNoMessage(t *testing.T) {
	bad := simple("a", "g", ptr(1.0))
	bad.Turns[0].RequestMessages = raw(`"just text"`)
	for _, name := range []string{"verifiers", "atif"} {
		if _, _, err := files(list{bad}, name, Options{}); err == nil || !strings.Contains(err.Error(), "document 0: a message is not in OpenAI's format") {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := simple("a", "g", ptr(1.0))
	none.Turns[0].ResponseMessage = nil
	for _, name := range Names() {
		if out, _ := mustFiles(t, list{none}, name, Options{}); !json.Valid([]byte(strings.TrimSpace(firstFile(out)))) {
			t.Errorf("%s: %s", name, all(out))
		}
	}
}

func firstFile(out folder) string {
	for _, b := range out {
		if b.Len() > 0 {
			return b.String()
		}
	}
	return ""
}

func TestAll(t *testing.T) {
	for _, i := range All() {
		found, err := Find(i.Name)
		if err != nil || found != i || i.About == "" {
			t.Errorf("%+v: %v", i, err)
		}
	}
}
