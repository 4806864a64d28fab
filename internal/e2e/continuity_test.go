//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// kept is how many pieces one task of an agent came in: the trainable rows of its work, and why the others broke off.
type kept struct {
	turns, forced, rows int
	broken              []string // causes of the breaks
	plain               []string // reasons for sending messages alone
}

func keptOf(doc *export.Rollout) kept {
	k := kept{turns: len(doc.Turns), forced: doc.Stats.Forced}
	for _, row := range rows(doc, export.Agent) {
		if row.Trainable {
			k.rows++
		}
	}
	for i := range doc.Turns {
		turn := &doc.Turns[i]
		if turn.Break != nil {
			k.broken = append(k.broken, turn.Break.Cause)
		}
		if why := turn.NotContinued(); why != "" {
			reason, _, _ := strings.Cut(why, ":")
			k.plain = append(k.plain, reason)
		}
	}
	slices.Sort(k.broken)
	slices.Sort(k.plain)
	k.broken, k.plain = slices.Compact(k.broken), slices.Compact(k.plain)
	return k
}

// oddEngine thinks before every answer, and renders no past as it sampled it: arguments are spelled anew, thoughts dropped, text is
// filed under another field, space trimmed, and the tokenizer splits the same text otherwise.
func oddEngine(t *testing.T) string { return fakeEngine(t, "--reasoning", "--odd", "all") }

// six are the agents of install.sh; further are those of install_more.sh.
var six = []player{{name: "claude"}, {name: "codex"}, {name: "gemini"}, {name: "opencode"}, {name: "pi"}, {name: "qwen"}}

// TestContinuityOfAgents lets agents play a task before an engine at which every conversation breaks, once with continuity and
// once without: one trainable row, and more than one. One that rewrites its history really has several rows either way.
func TestContinuityOfAgents(t *testing.T) {
	engine := oddEngine(t)
	proxies := map[string]*proxy{}
	for _, mode := range []string{"on", "off"} {
		proxies[mode] = serve(t, "--upstream", engine, "--data", t.TempDir(), "--continuity", mode)
	}
	var mu sync.Mutex
	var lines []string
	t.Run("all", func(t *testing.T) {
		for i, a := range slices.Concat(six, further) {
			script, folder, name := "run.sh", "harnesses", a.name
			if i >= len(six) {
				script, folder = "run_more.sh", "more"
			}
			for mode, p := range proxies {
				t.Run(a.String()+"/"+mode, func(t *testing.T) {
					t.Parallel()
					session := p.session(t)
					env := append(slices.Clone(enough), "HARNESS_DIALECT="+a.variant)
					_, code := command(t, env, wiretest.Shared(t, "harnesses", script), installed(t, folder), name, p.url, session, task)
					doc := p.close(t, session)
					k := keptOf(doc)
					if code != 0 && a.broken == nil || len(doc.FailedCalls) > 0 || k.turns < steps+1 {
						t.Errorf("%s ended with %d after %d turns, failed calls %+v", name, code, k.turns, doc.FailedCalls)
					}
					if whole := k.rows == 1; whole != (mode == "on" && a.broken == nil) || k.rows == 0 {
						t.Errorf("%d trainable rows with continuity %s: %+v", k.rows, mode, k)
					}
					for i := range doc.Turns {
						if src := doc.Turns[i].PromptSource; mode == "off" && src != record.PromptEngine {
							t.Errorf("turn %d has its prompt from %s", i, src)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %s | %s |", name, doc.Turns[0].Dialect, mode, k.turns, k.forced, k.rows,
						strings.Join(k.broken, ", "), strings.Join(k.plain, ", ")))
				})
			}
		}
	})
	slices.Sort(lines)
	t.Logf("\n| harness | dialect | continuity | turns | by ids | trainable rows | broken because | sent as messages because |\n|---|---|---|---|---|---|---|---|\n%s", strings.Join(lines, "\n"))
}
