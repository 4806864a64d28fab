//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/wiretest"
	"captureproxy/validate"
)

const (
	// task is what every agent is asked to do, steps how many commands the built-in engine has it run for that.
	task  = "Run the steps one by one with your shell tool, then say that you are done."
	steps = 3
)

// agent is a real coding agent, and what of its traffic is no part of its work.
type agent struct {
	name      string
	auxiliary int // calls without tools: a title for the conversation
}

// enough is the time that an agent gets: they are quick, but not on a machine that is busy with something else.
var enough = []string{"HARNESS_TIMEOUT=240"}

var agents = []agent{{"opencode", 1}, {"qwen", 0}, {"pi", 0}}

// TestAgentsBehindServe lets each agent play a task through a proxy that serves all of them.
func TestAgentsBehindServe(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir())
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			session := p.session(t)
			_, code := command(t, enough, wiretest.Shared(t, "harnesses", "run.sh"),
				installed(t, "harnesses"), a.name, p.url, session, task)
			if code != 0 {
				t.Errorf("%s ended with %d", a.name, code)
			}
			checkAgent(t, a, p.close(t, session))
		})
	}
}

// TestAgentsUnderRun lets capture-proxy run start each agent: a proxy, a session and a document for one command. The
// engine thinks before it answers, so the agents have to bring its thoughts back for the conversation to stay whole.
func TestAgentsUnderRun(t *testing.T) {
	engine := fakeEngine(t, "--reasoning")
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "rollout.json")
			_, code := command(t, enough, binary, "run", "--upstream", engine, "--out", out, "--",
				"sh", "-c", `exec "$0" "$1" "$2" "$CAPTURE_PROXY_URL" "$CAPTURE_PROXY_SESSION" "$3"`,
				wiretest.Shared(t, "harnesses", "run.sh"), installed(t, "harnesses"), a.name, task)
			if code != 0 {
				t.Errorf("capture-proxy run ended with %d", code)
			}
			checkAgent(t, a, documentFile(t, out))
		})
	}
}

// checkAgent expects one unbroken conversation with all the tool calls in it, every sampled token of it to be trained.
func checkAgent(t *testing.T, a agent, doc *export.Rollout) {
	t.Helper()
	if doc.Status != "completed" || !doc.Trainable || doc.RolloutType != export.TypeTrain || validate.AnyFatal(doc.Validation) {
		t.Errorf("status %s, trainable %v, type %s, findings %v", doc.Status, doc.Trainable, doc.RolloutType, doc.Validation)
	}
	if len(doc.FailedCalls) > 0 {
		t.Errorf("failed calls: %+v", doc.FailedCalls)
	}
	if n := len(rows(doc, export.Auxiliary)); n != a.auxiliary {
		t.Errorf("%d auxiliary rows, want %d", n, a.auxiliary)
	}
	work := rows(doc, export.Agent)
	if len(work) != 1 {
		t.Fatalf("%d agent rows, want the whole conversation in one", len(work))
	}
	row := work[0]
	if row.NTurns < steps+1 || !row.Trainable || len(row.TurnLengths) != row.NTurns {
		t.Errorf("the agent's row has %d turns, %d of them trained, trainable %v: %v", row.NTurns, len(row.TurnLengths), row.Trainable, row.Validation)
	}
	calls := 0
	for _, turn := range doc.Turns {
		if turn.FinishReason == "tool_calls" {
			calls++
		}
	}
	if calls != steps {
		t.Errorf("%d turns called a tool, want %d", calls, steps)
	}
}
