//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// player is an agent in one of the dialects that it speaks.
type player struct {
	name    string
	variant string // as its recipe calls the dialect; "" for its own
	dialect record.Dialect
	// broken are the causes of the roots that its conversation has besides the first.
	broken []string
}

func (p player) String() string { return strings.TrimSuffix(p.name+"-"+p.variant, "-") }

// native are the agents that speak something else than chat completions by themselves. Those that do are in agents.
var native = []player{
	{name: "claude", dialect: record.AnthropicMessages},
	{name: "codex", dialect: record.OpenAIResponses},
	{name: "gemini", dialect: record.Google},
}

// TestDialects lets each agent play its task in its own dialect, before an engine that speaks chat completions only. An
// engine that thinks makes no difference: all of them send its thoughts back, in the form that the dialect has for it.
func TestDialects(t *testing.T) {
	for engine, flags := range map[string][]string{"plain": nil, "thinking": {"--reasoning"}} {
		p := serve(t, "--upstream", fakeEngine(t, flags...), "--data", t.TempDir())
		for _, a := range native {
			t.Run(a.name+"/"+engine, func(t *testing.T) {
				t.Parallel()
				doc, _ := a.play(t, p, "run.sh", "harnesses")
				checkAgent(t, agent{name: a.name}, doc)
				checkDialect(t, doc, a.dialect)
			})
		}
	}
}

// further are agents beyond the six, so chosen that every dialect has two of them, that one does not stream (grok), and
// that one sends no tools (terminus-2, with a test of its own). Google's second is pi, below.
var further = []player{
	{name: "copilot", dialect: record.OpenAIChat},
	{name: "copilot", variant: "responses", dialect: record.OpenAIResponses},
	{name: "droid", variant: "anthropic", dialect: record.AnthropicMessages},
	{name: "droid", variant: "openai", dialect: record.OpenAIResponses},
	{name: "grok", dialect: record.OpenAIChat},
	{name: "openai-agents", variant: "responses", dialect: record.OpenAIResponses},
	// With this much context left kimi writes itself a summary after the first step and goes on from there.
	{name: "kimi", variant: "anthropic", dialect: record.AnthropicMessages, broken: []string{"history_rewritten"}},
}

// TestFurtherAgents expects of each the whole conversation in one row, or the cause of every break.
func TestFurtherAgents(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir())
	for _, a := range further {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			doc, _ := a.play(t, p, "run_more.sh", "more")
			checkDialect(t, doc, a.dialect)
			if got := causes(doc); !slices.Equal(got, a.broken) {
				t.Errorf("the conversation broke for %q, want %q", got, a.broken)
			}
			if len(a.broken) == 0 {
				checkAgent(t, agent{name: a.name}, doc)
				return
			}
			for _, row := range rows(doc, export.Agent) {
				if !row.Trainable {
					t.Errorf("a row of %d turns cannot be trained on: %v", row.NTurns, row.Validation)
				}
			}
			if n := len(rows(doc, export.Agent)); n != len(a.broken)+1 || len(doc.FailedCalls) > 0 || !doc.Trainable {
				t.Errorf("%d rows, %d failed calls, trainable %v", n, len(doc.FailedCalls), doc.Trainable)
			}
		})
	}
}

// TestPiInGoogle has pi speak Google's dialect, which is one setting in its configuration.
func TestPiInGoogle(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t, "--reasoning"), "--data", t.TempDir())
	session, home := p.session(t), t.TempDir()
	config, err := json.Marshal(map[string]any{"providers": map[string]any{"capture": map[string]any{
		"api": "google-generative-ai", "baseUrl": p.url + "/v1beta", "apiKey": session,
		"models": []any{map[string]any{"id": "m", "reasoning": true, "contextWindow": 64_000, "maxTokens": 4000}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "models.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	_, code := typed(t, []string{"PI_CODING_AGENT_DIR=" + home}, "pi", "-p", "--provider", "capture", "--model", "m", task)
	if code != 0 {
		t.Errorf("pi ended with %d", code)
	}
	doc := p.close(t, session)
	checkAgent(t, agent{name: "pi"}, doc)
	checkDialect(t, doc, record.Google)
}

// TestTerminus has an agent without tools, its commands being text, that asks the engine for token ids itself. What it
// counts is what the document holds.
func TestTerminus(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir())
	session, home := p.session(t), t.TempDir()
	python := installed(t, "more", "terminus-2", "bin", "python")
	out, code := command(t, append(elsewhere(home), "LITELLM_LOCAL_MODEL_COST_MAP=True"), "sh", "-c", `cd "$HOME" && exec "$@"`, "sh",
		python, absolute(t, "testdata/terminus.py"), wiretest.Shared(t, "harnesses", "sdk.py"), "terminus-2", p.url, session, "m", task)
	if code != 0 {
		t.Errorf("terminus-2 ended with %d", code)
	}
	doc := p.close(t, session)
	checkDialect(t, doc, record.OpenAIChat)
	if work := rows(doc, export.Agent); len(work) != 1 || work[0].NTurns != len(doc.Turns) || !work[0].Trainable {
		t.Errorf("rows %+v, want all %d turns in one", doc.Sequences, len(doc.Turns))
	}
	var prompt, sampled []int
	for _, turn := range doc.Turns {
		prompt, sampled = append(prompt, turn.NPrompt), append(sampled, turn.NSampled)
		if turn.NTools != 0 {
			t.Errorf("turn %s has %d tools", turn.NodeID, turn.NTools)
		}
	}
	for what, want := range map[string][]int{"prompt_token_ids": prompt, "completion_token_ids": sampled, "logprobs": sampled} {
		if got := counted(t, out, what); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("it counted %v %s, the document has %v", got, what, want)
		}
	}
}

// counted reads one list of the counts that terminus-2 prints.
func counted(t *testing.T, out, what string) []int {
	t.Helper()
	m := regexp.MustCompile(`'` + what + `': (\[[0-9, ]*\])`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %s in what it printed:\n%s", what, out)
	}
	var counts []int
	if err := json.Unmarshal([]byte(m[1]), &counts); err != nil {
		t.Fatal(err)
	}
	return counts
}

// play has the agent do its task in a session of a proxy, by the recipes' script.
func (a player) play(t *testing.T, p *proxy, script, folder string) (doc *export.Rollout, code int) {
	t.Helper()
	session := p.session(t)
	env := append(slices.Clone(enough), "HARNESS_DIALECT="+a.variant)
	_, code = command(t, env, wiretest.Shared(t, "harnesses", script), installed(t, folder), a.name, p.url, session, task)
	if code != 0 {
		t.Errorf("%s ended with %d", a, code)
	}
	return p.close(t, session), code
}

// checkDialect expects every turn in one dialect.
func checkDialect(t *testing.T, doc *export.Rollout, want record.Dialect) {
	t.Helper()
	if len(doc.Turns) == 0 {
		t.Error("no turns")
	}
	for _, turn := range doc.Turns {
		if turn.Dialect != want {
			t.Errorf("turn %s came as %s, want %s", turn.NodeID, turn.Dialect, want)
		}
	}
}

// causes are why a conversation's roots do not extend what they continue.
func causes(doc *export.Rollout) []string {
	var out []string
	for _, turn := range doc.Turns {
		if turn.Break != nil {
			out = append(out, turn.Break.Cause)
		}
	}
	return out
}
