package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"captureproxy/export"
	"captureproxy/validate"
	"captureproxy/validate/reconcile"
)

// Forms that older and newer versions of the harnesses write.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // of each step: text, tool calls, prompt and completion counts, what else it is
	}{
		{"claude-code: counts of an answer that did not end are those of its first event",
			`{"type":"summary","summary":"s","leafUuid":"u"}
			{"type":"user","sessionId":"c","message":{"role":"user","content":"hi"}}
			{"type":"assistant","sessionId":"c","message":{"id":"m1","model":"m","stop_reason":null,"content":[{"type":"text","text":"a"}],"usage":{"input_tokens":3,"output_tokens":1}}}`,
			[]string{"a [] - -"}},
		{"claude-code: cached tokens are prompt tokens",
			`{"type":"assistant","sessionId":"c","message":{"id":"m1","model":"m","stop_reason":null,"content":[{"type":"text","text":"a"}],"usage":{"input_tokens":3,"output_tokens":1}}}
			{"type":"assistant","sessionId":"c","message":{"id":"m1","model":"m","stop_reason":"end_turn","content":[{"type":"text","text":"b"},{"type":"tool_use","id":"t1"}],"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":5,"output_tokens":8}}}`,
			[]string{"a b [t1] 18 8"}},
		{"codex: an answer ends with a token_count event, after its tools or before",
			`{"type":"session_meta","payload":{"id":"x"}}
			{"type":"response_item","payload":{"type":"function_call","call_id":"t1"}}
			{"type":"response_item","payload":{"type":"function_call","call_id":"t2"}}
			{"type":"event_msg","payload":{"type":"token_count","info":null}}
			{"type":"response_item","payload":{"type":"function_call_output","call_id":"t1"}}
			{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":5,"output_tokens":2}}}}
			{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":5,"output_tokens":2}}}}
			{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}}
			{"type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":9,"output_tokens":1}}}}`,
			[]string{" [t1 t2] 5 2", "done [] 9 1"}},
		{"codex: without counts a tool's output ends an answer",
			`{"type":"response_item","payload":{"type":"function_call","call_id":"t1"}}
			{"type":"response_item","payload":{"type":"function_call_output","call_id":"t1"}}
			{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}}`,
			[]string{" [t1] - -", "done [] - -"}},
		{"codex: an error stands twice and is one",
			`{"type":"session_meta","payload":{"id":"x"}}
			{"type":"event_msg","payload":{"type":"stream_error","message":"broke"}}
			{"type":"event_msg","payload":{"type":"error","message":"it is down"}}
			{"type":"event_msg","payload":{"type":"task_complete","error":{"message":"it is down"}}}`,
			[]string{"it is down [] - - synthetic"}},
		{"opencode: files of its storage in any order, two answers in one message",
			`{"id":"prt_4","sessionID":"ses_1","messageID":"msg_1","type":"text","text":"done"}
			{"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":"step-start"}
			{"id":"prt_2","sessionID":"ses_1","messageID":"msg_1","type":"tool","callID":"t1"}
			{"id":"prt_3","sessionID":"ses_1","messageID":"msg_1","type":"step-finish","tokens":{"input":4,"output":2,"reasoning":0,"cache":{"read":3,"write":0}}}
			{"id":"prt_5","sessionID":"ses_1","messageID":"msg_1","type":"step-finish","tokens":{"input":4,"output":2,"reasoning":1}}
			{"id":"msg_1","sessionID":"ses_1","role":"assistant"}`,
			[]string{" [t1] 7 2", "done [] 4 -"}},
		{"ATIF: several calls in one step, steps of code, copies and subagents",
			`{"schema_version":"ATIF-v1.7","session_id":"s","steps":[
				{"step_id":1,"source":"user","message":"hi"},
				{"step_id":2,"source":"agent","message":"by code","llm_call_count":0},
				{"step_id":3,"source":"agent","message":[{"type":"text","text":"two"}],"llm_call_count":2,"metrics":{"prompt_tokens":9,"completion_tokens":9}},
				{"step_id":4,"source":"agent","message":"old","is_copied_context":true},
				{"step_id":5,"source":"agent","model_name":"<synthetic>","message":"API Error"}],
			 "subagent_trajectories":[{"steps":[{"step_id":1,"source":"agent","message":"below","metrics":{"prompt_tokens":3,"completion_tokens":1}}]}]}`,
			[]string{" [] - -", "two [] - -", "old [] - - copied", "API Error [] - - synthetic", "below [] 3 1"}},
	} {
		trajectory := read(t, c.text)
		var got []string
		for _, s := range trajectory.Steps {
			line := fmt.Sprint(s.Text, " ", s.ToolCalls, " ", count(s.Prompt), " ", count(s.Completion))
			if s.Synthetic {
				line += " synthetic"
			}
			if s.Copied {
				line += " copied"
			}
			got = append(got, line)
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func count(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// What the harness retried is said in its own words.
func TestLoggedRetries(t *testing.T) {
	text := record(t, "claude-ok.log.jsonl") +
		`{"type":"system","subtype":"api_error","sessionId":"c","retryAttempt":1,"maxRetries":10,"error":{"status":500}}`
	if got := codes(reconcile.Against(document(t, "claude-ok"), read(t, text))); got != "INFO call_retried" {
		t.Error(got)
	}
}

// A record without counts says so; copies of another trajectory are not missed.
func TestWithoutCounts(t *testing.T) {
	trajectory := read(t, record(t, "claude-ok.log.jsonl"))
	for i := range trajectory.Steps {
		trajectory.Steps[i].Prompt, trajectory.Steps[i].Completion = nil, nil
	}
	trajectory.Steps = append(trajectory.Steps, reconcile.Step{ID: "old", Text: "of another", Copied: true})
	if got := codes(reconcile.Against(document(t, "claude-ok"), trajectory)); got != "INFO counts_unknown" {
		t.Error(got)
	}
}

// However the calls of both sides are ordered, every one that is on one side only is named, and no other.
func TestPairing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "calls")
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		inDoc := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "in the document")
		inLog := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "in the log")
		doc, log := &export.Rollout{}, &reconcile.Trajectory{Kind: reconcile.Pi}
		both, missing, extra := 0, 0, 0
		for _, i := range rapid.Permutation(all).Draw(t, "document's order") {
			if inDoc[i] {
				message := fmt.Sprintf(`{"content":null,"tool_calls":[{"id":"t%d"}]}`, i)
				doc.Turns = append(doc.Turns, export.Turn{NodeID: fmt.Sprint(i), Call: i + 1, NPrompt: 10 + i, NSampled: 5, ResponseMessage: []byte(message)})
			}
		}
		for _, i := range rapid.Permutation(all).Draw(t, "log's order") {
			prompt, completion := int64(10+i), int64(5)
			if inLog[i] {
				log.Steps = append(log.Steps, reconcile.Step{ID: fmt.Sprint(i), ToolCalls: []string{fmt.Sprint("t", i)}, Prompt: &prompt, Completion: &completion})
			}
			switch {
			case inDoc[i] && inLog[i]:
				both++
			case inDoc[i]:
				extra++
			case inLog[i]:
				missing++
			}
		}
		if both == 0 && missing > 0 && extra > 0 {
			return // another session's
		}
		counted := map[validate.Code]int{}
		for _, f := range reconcile.Against(doc, log) {
			counted[f.Code]++
		}
		if counted[reconcile.CallMissing] != missing || counted[reconcile.CallExtra] != extra || len(counted) > 2 {
			t.Fatalf("%v, want %d missing and %d more", counted, missing, extra)
		}
	})
}
