//go:build e2e && harnesses

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"captureproxy/internal/wiretest"
)

// TestContinuityOfEveryone measures every agent before an engine at which every conversation breaks, with continuity and without,
// and prints the second table of docs/continuity.md. E2E_HARNESSES, a list of names, chooses among them. Only an agent of
// which nothing was recorded fails it: what the others do is what the table is for.
func TestContinuityOfEveryone(t *testing.T) {
	engine := oddEngine(t)
	on := serve(t, "--upstream", engine, "--data", t.TempDir(), "--continuity", "on")
	off := serve(t, "--upstream", engine, "--data", t.TempDir(), "--continuity", "off")
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
				a := player{name: h.name, variant: variant}
				t.Run(a.String(), func(t *testing.T) {
					t.Parallel()
					env := append(slices.Clone(enough), "HARNESS_DIALECT="+variant)
					pieces := map[*proxy]kept{}
					dialect := "–"
					for _, p := range []*proxy{on, off} {
						session := p.session(t)
						command(t, env, wiretest.Shared(t, "harnesses", h.script), installed(t, h.folder), h.name, p.url, session, task)
						doc := p.close(t, session)
						if len(doc.Turns) == 0 {
							t.Errorf("%s: nothing was recorded", a)
							continue
						}
						pieces[p], dialect = keptOf(doc), string(doc.Turns[0].Dialect)
					}
					with, without := pieces[on], pieces[off]
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %s |", h.name, dialect, with.turns, with.forced, with.rows, without.rows,
						strings.Join(with.plain, ", ")))
				})
			}
		}
	})
	slices.Sort(lines)
	fmt.Printf("| harness | dialect | turns | by ids | trainable rows | without continuity | sent as messages because |\n|---|---|---|---|---|---|---|\n%s\n", strings.Join(lines, "\n"))
}
