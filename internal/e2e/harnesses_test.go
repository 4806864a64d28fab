//go:build e2e && harnesses

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/wiretest"
)

// everyone are all agents with a recipe, each in the dialects that its recipe can set it to.
var everyone = []struct {
	script, folder, name string
	variants             []string
}{
	{"run.sh", "harnesses", "claude", nil},
	{"run.sh", "harnesses", "codex", nil},
	{"run.sh", "harnesses", "gemini", nil},
	{"run.sh", "harnesses", "opencode", nil},
	{"run.sh", "harnesses", "pi", nil},
	{"run.sh", "harnesses", "qwen", nil},
	{"run_more.sh", "more", "aider", nil},
	{"run_more.sh", "more", "claude-agent-sdk", nil},
	{"run_more.sh", "more", "cline", nil},
	{"run_more.sh", "more", "continue", nil},
	{"run_more.sh", "more", "copilot", []string{"completions", "responses", "anthropic"}},
	{"run_more.sh", "more", "droid", []string{"generic-chat-completion-api", "openai", "anthropic"}},
	{"run_more.sh", "more", "gptme", nil},
	{"run_more.sh", "more", "grok", nil},
	{"run_more.sh", "more", "kilo", nil},
	{"run_more.sh", "more", "kimi", []string{"openai", "openai_responses", "anthropic"}},
	{"run_more.sh", "more", "mini", nil},
	{"run_more.sh", "more", "nanocoder", []string{"openai-compatible", "anthropic"}},
	{"run_more.sh", "more", "omp", []string{"openai-completions", "openai-responses", "anthropic-messages"}},
	{"run_more.sh", "more", "openai-agents", []string{"", "responses"}},
	{"run_more.sh", "more", "openhands", nil},
	{"run_more.sh", "more", "smolagents", []string{"", "code"}},
	{"run_more.sh", "more", "strands", nil},
	{"run_more.sh", "more", "terminus-2", nil},
	{"run_more.sh", "more", "vibe", nil},
}

// TestHarnesses measures every agent before an engine that thinks and one that does not, and prints the table of
// docs/harnesses.md. E2E_HARNESSES, a list of names, chooses among them. Only an agent of which nothing was recorded
// fails it: what the others do is what the table is for.
func TestHarnesses(t *testing.T) {
	plain := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir())
	thinking := serve(t, "--upstream", fakeEngine(t, "--reasoning"), "--data", t.TempDir())
	chosen := strings.Fields(os.Getenv("E2E_HARNESSES"))
	var mu sync.Mutex
	var lines []string
	t.Run("all", func(t *testing.T) {
		for _, h := range everyone {
			if len(chosen) > 0 && !slices.Contains(chosen, h.name) {
				continue
			}
			variants := h.variants
			if variants == nil {
				variants = []string{""}
			}
			for _, variant := range variants {
				for _, e := range []struct {
					thinks string
					p      *proxy
				}{{"no", plain}, {"yes", thinking}} {
					a := player{name: h.name, variant: variant}
					t.Run(a.String()+"/thinking="+e.thinks, func(t *testing.T) {
						t.Parallel()
						line := measured(t, a, e.thinks, e.p, h.script, h.folder)
						mu.Lock()
						defer mu.Unlock()
						lines = append(lines, line)
					})
				}
			}
		}
	})
	slices.Sort(lines)
	fmt.Printf("| harness | dialect | engine thinks | exit | turns | failed calls | agent roots | trainable rows | broken because |\n")
	fmt.Printf("|---|---|---|---|---|---|---|---|---|\n%s\n", strings.Join(lines, "\n"))
}

// measured runs an agent and returns its line of the table.
func measured(t *testing.T, a player, thinks string, p *proxy, script, folder string) string {
	t.Helper()
	session := p.session(t)
	env := append(slices.Clone(enough), "HARNESS_DIALECT="+a.variant)
	_, code := command(t, env, wiretest.Shared(t, "harnesses", script), installed(t, folder), a.name, p.url, session, task)
	doc := p.close(t, session)
	if len(doc.Turns) == 0 {
		t.Errorf("%s: nothing was recorded", a)
		return fmt.Sprintf("| %s | – | %s | %d | 0 | %d | 0 | 0 | |", a.name, thinks, code, len(doc.FailedCalls))
	}
	roots := map[string]bool{}
	trainable := 0
	for _, row := range doc.Sequences {
		if row.Role == export.Agent {
			roots[row.RootID] = true
		}
		if row.Trainable {
			trainable++
		}
	}
	broken := causes(doc)
	slices.Sort(broken)
	return fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %d | %d | %s |", a.name, doc.Turns[0].Dialect, thinks, code, len(doc.Turns),
		len(doc.FailedCalls), len(roots), trainable, cmp.Or(strings.Join(slices.Compact(broken), ", "), "–"))
}
