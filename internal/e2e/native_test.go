//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/wiretest"
)

// TestAgentsNatively lets the agent of each hosted dialect work against an API that speaks it: signed thoughts must come back
// byte for byte, or the provider refuses the next call.
func TestAgentsNatively(t *testing.T) {
	for _, c := range []struct{ agent, wire, provider, model string }{
		{"claude", "anthropic", "anthropic", "claude"}, {"codex", "openai", "openai", "m"}, {"gemini", "google", "google", "gemini"},
	} {
		t.Run(c.agent, func(t *testing.T) {
			t.Parallel()
			engine := strings.TrimSuffix(fakeEngine(t, "--wire", c.wire, "--model", c.model, "--key", "provider-key", "--reasoning"), "/v1")
			p := serve(t, "--upstream", engine, "--provider", c.provider, "--upstream-key", "provider-key", "--data", t.TempDir())
			session := p.session(t)
			_, code := command(t, enough, wiretest.Shared(t, "harnesses", "run.sh"), installed(t, "harnesses"), c.agent, p.url, session, task)
			if code != 0 {
				t.Errorf("%s ended with %d", c.agent, code)
			}
			doc := p.close(t, session)
			if doc.Status != "completed" || doc.RolloutType != export.TypeEval || doc.Trainable || doc.Stats.Roots != 1 {
				t.Errorf("status %s %v, type %s, trainable %v, %d roots", doc.Status, doc.Outcome, doc.RolloutType, doc.Trainable, doc.Stats.Roots)
			}
			if len(doc.FailedCalls) > 0 {
				t.Errorf("failed calls: %+v", doc.FailedCalls)
			}
			calls := 0
			for _, turn := range doc.Turns {
				if turn.FinishReason == "tool_calls" {
					calls++
				}
				if len(turn.Edits) > 0 {
					t.Errorf("turn %d was edited: %+v", turn.Index, turn.Edits)
				}
			}
			if calls != steps {
				t.Errorf("%d turns called a tool, want %d", calls, steps)
			}
		})
	}
}

// TestAgentsWithoutStreamedIDs has an engine that gives its ids with whole answers only: the agents stream all the same, and
// what they did can be trained on.
func TestAgentsWithoutStreamedIDs(t *testing.T) {
	engine := fakeEngine(t, "--wire", "sglang-old")
	p := serve(t, "--upstream", engine, "--data", t.TempDir())
	for _, a := range []agent{{"opencode", 1}, {"claude", 0}} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			session := p.session(t)
			_, code := command(t, enough, wiretest.Shared(t, "harnesses", "run.sh"), installed(t, "harnesses"), a.name, p.url, session, task)
			if code != 0 {
				t.Errorf("%s ended with %d", a.name, code)
			}
			doc := p.close(t, session)
			if doc.Engine.Profile.StreamCapture {
				t.Error("the profile says that streams carry ids")
			}
			checkAgent(t, a, doc)
		})
	}
}

// TestAgentsAtHostedModel has a chat endpoint that refuses what we add and what the agents send, in its own words.
func TestAgentsAtHostedModel(t *testing.T) {
	engine := fakeEngine(t, "--wire", "openai", "--key", "provider-key")
	p := serve(t, "--upstream", engine, "--upstream-key", "provider-key", "--data", t.TempDir())
	for _, a := range []agent{{"opencode", 1}, {"qwen", 0}, {"claude", 0}} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			session := p.session(t)
			_, code := command(t, enough, wiretest.Shared(t, "harnesses", "run.sh"), installed(t, "harnesses"), a.name, p.url, session, task)
			if code != 0 {
				t.Errorf("%s ended with %d", a.name, code)
			}
			doc := p.close(t, session)
			if doc.RolloutType != export.TypeEval || len(doc.FailedCalls) > 0 || doc.Status != "completed" {
				t.Errorf("type %s, status %s, failed calls %+v", doc.RolloutType, doc.Status, doc.FailedCalls)
			}
			if n := len(rows(doc, export.Agent)); n != 1 {
				t.Errorf("%d agent rows", n)
			}
		})
	}
}
