package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"captureproxy/export"
)

// How stale a rollout is follows from the weights that were live while it ran and from the step that it is for (SPEC 6).
func TestStaleness(t *testing.T) {
	trainEval := `,"run":{"kind":"train","id":"r","metadata":{"kind":"eval","step":6}}`
	trainStep := `,"run":{"kind":"train","id":"r","metadata":{"kind":"train","step":10}}`
	for _, c := range []struct {
		what     string
		fields   string
		versions []int // live at each of the calls, 0 for none named
		want     string
	}{
		{"an eval of step 6 under v5 that ran to v8", trainEval, []int{5, 6, 8}, `start 5 end 8 drift 3 off 3`},
		{"an eval under a single version", trainEval, []int{5, 5}, `start 5 end 5 drift 0 off 0`},
		{"a train rollout of step 10 from v8", trainStep, []int{8}, `start 8 end 8 drift 0 off 1`},
		{"a train rollout of step 10 from v8 to v9", trainStep, []int{8, 9}, `start 8 end 9 drift 1 off 1`},
		{"a standalone eval", `,"run":{"kind":"eval","id":"e"}`, []int{4, 6}, `start 4 end 6 drift 2 off 2`},
		{"a frozen one", trainStep + `,"frozen":true`, []int{8, 9}, `start null end null drift null off null`},
		{"no version named", trainStep, []int{0}, `start null end null drift null off null`},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t, setup{})
			r.create("a", c.fields)
			for _, v := range c.versions {
				if v > 0 {
					r.want(200, "POST", "/policy", fmt.Sprintf(`{"version":%d}`, v))
				}
				r.say("a", "hi")
			}
			doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/a/close", ""))
			p := doc.Policy
			if p == nil {
				p = &export.Policy{}
			}
			got := fmt.Sprintf("start %s end %s drift %s off %s", orNull(p.Start), orNull(p.End), orNull(p.Drift), orNull(p.OffPolicySteps))
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			var run struct {
				Metadata *struct {
					Drift *int64 `json:"drift"`
					Off   *int64 `json:"off_policy_steps"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal(doc.Run, &run); err != nil {
				t.Fatal(err)
			}
			if m := run.Metadata; strings.Contains(c.fields, "step") && (orNull(m.Drift) != orNull(p.Drift) || orNull(m.Off) != orNull(p.OffPolicySteps)) {
				t.Errorf("the run's metadata say otherwise: %s", doc.Run)
			}
		})
	}
}

func orNull(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// Which weights are live survives the process that was told: turns of the next one are labelled with them.
func TestPolicySurvivesARestart(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.want(200, "POST", "/policy", `{"version":7}`)
	r.stop()
	again := newRig(t, setup{dir: r.dir, engine: r.engine})
	if a := again.want(200, "GET", "/policy", ""); strings.TrimSpace(a.body) != `{"version":7}` {
		t.Error(a.body)
	}
	again.say("a", "hi")
	doc := read[export.Rollout](t, again.want(200, "GET", "/sessions/a/rollout", ""))
	if doc.Policy == nil || orNull(doc.Policy.Start) != "7" {
		t.Errorf("policy: %+v", doc.Policy)
	}
}

// A closed or cancelled session answers 409 in the caller's own dialect (SPEC 2).
func TestEndedSessionsAnswerInEachDialect(t *testing.T) {
	r := newRig(t, setup{})
	for _, end := range []string{"close", "cancel"} {
		r.create(end, "")
		r.say(end, "hi")
		r.want(200, "POST", "/sessions/"+end+"/"+end, "")
		for _, c := range []struct{ path, body, says string }{
			{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, `{"error":{"message":`},
			{"/v1/completions", `{"model":"m","prompt":"x"}`, `{"error":{"message":`},
			{"/v1/responses", `{"model":"m","input":"x"}`, `{"error":{"message":`},
			{"/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`, `{"type":"error","error":{`},
			{"/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`, `{"error":{"code":409,`},
			{"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`, `{"error":{"code":409,`},
		} {
			a := r.raw("POST", c.path, c.body, "Authorization", "Bearer "+end)
			if a.status != 409 || !strings.HasPrefix(strings.ReplaceAll(a.body, " ", ""), c.says) || !strings.Contains(a.body, "ended") && !strings.Contains(a.body, "cancelled") {
				t.Errorf("%s after %s: %d %s", c.path, end, a.status, a.body)
			}
		}
	}
}
