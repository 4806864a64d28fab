//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// longDocument is a session of one conversation, each turn 300 tokens of context and 200 sampled ones further, without messages.
func longDocument(t *testing.T, turns int) string {
	t.Helper()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &record.Session{ID: "s-long", CreatedAt: begin, Status: record.Completed, CaptureLevel: record.LevelTokens}
	var calls []*record.Call
	ids := make([]int32, 0, turns*500)
	logprobs := make([]float64, 200)
	for i := range logprobs {
		logprobs[i] = -float64(i%7) / 2
	}
	for i := range turns {
		for k := range 300 {
			ids = append(ids, int32((i*7+k)%100_000))
		}
		prompt := ids[:len(ids):len(ids)]
		for k := range 200 {
			ids = append(ids, int32((i*11+k)%100_000))
		}
		at := begin.Add(time.Duration(i) * 2 * time.Second)
		calls = append(calls, &record.Call{
			Session: s.ID, Number: i + 1, Dialect: record.OpenAIChat, Outcome: record.Complete, Status: 200,
			Timing: record.Timing{Received: at, Dispatched: at, FirstToken: at.Add(200 * time.Millisecond), LastToken: at.Add(700 * time.Millisecond), Recorded: at.Add(701 * time.Millisecond)},
			Choices: []record.Choice{{
				Outcome: record.Complete, FinishReason: "stop", PromptIDs: prompt, SampledIDs: ids[len(prompt):len(ids):len(ids)], Logprobs: logprobs, HasIDs: true, HasLogprobs: true,
				Message: json.RawMessage(`{"role":"assistant","content":"answer"}`),
			}},
		})
	}
	file := filepath.Join(t.TempDir(), "long.json")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = export.Build(s, calls, export.Options{}).WriteTo(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLongPages opens a session of 2,000 turns and a million tokens: what a page holds stays bounded wherever its reader goes, and
// nothing is cut off or squeezed, from a phone to a very wide screen.
func TestLongPages(t *testing.T) {
	t.Parallel()
	const turns = 2000
	origin := strings.TrimSuffix(start(t, nil, binary, "view", longDocument(t, turns)).line(t, `^(http://\S+)$`), "/ui/sessions/s-long")
	b := newBrowser(t)
	measure := func(what, script string) (n float64) {
		t.Helper()
		b.do(t, what, chromedp.Evaluate(script, &n))
		return n
	}
	nodes := func(what string, most float64) {
		t.Helper()
		if n := measure(what, `document.getElementsByTagName("*").length`); n > most {
			t.Errorf("%s: %g elements on the page, at most %g", what, n, most)
		}
	}
	session, row := origin+"/ui/sessions/s-long", origin+"/ui/sessions/s-long/rows/0"
	for _, d := range []device{{"very wide", 2560, 1300, "light"}, {"wide", 1440, 1000, "dark"}, {"narrow", 375, 812, "light"}} {
		b.hold(t, d)

		b.open(t, session)
		b.until(t, "the graph", func() bool { return measure("graph", `document.querySelectorAll(".graph a.m").length`) == turns })
		nodes("session, "+d.name, 25_000)
		b.fits(t, "session, "+d.name)
		b.see(t, "holds no messages")
		// Ticks are at round times, never far apart, and the first turn stands at the beginning.
		if gap := measure("ticks", `(() => { const x = [...document.querySelectorAll(".graph .tick")].map(t => t.getBoundingClientRect().left); return Math.max(...x.slice(1).map((v, i) => v - x[i])); })()`); gap > 600 {
			t.Errorf("%s: %g pixels between two ticks", d.name, gap)
		}
		if left := measure("margin", `document.querySelector(".graph a.m use").getBoundingClientRect().left - document.querySelector(".graph svg").getBoundingClientRect().left`); left > 60 {
			t.Errorf("%s: the graph begins with %g empty pixels", d.name, left)
		}

		b.open(t, row)
		if h := measure("jumps", `Math.max(...[...document.querySelectorAll(".jumps a")].map(a => a.getBoundingClientRect().height))`); h > 30 {
			t.Errorf("%s: a link to a turn is %g pixels high", d.name, h)
		}
		for _, to := range []string{"0.3", "0.31", "0.7", "1"} {
			b.do(t, "scroll", chromedp.Evaluate(`scrollTo(0, document.documentElement.scrollHeight * `+to+`)`, nil))
			b.until(t, "tokens at "+to, func() bool {
				return measure("tokens in view", `[...document.querySelectorAll(".t")].filter(e => { const r = e.getBoundingClientRect(); return r.bottom > 0 && r.top < innerHeight; }).length`) > 20
			})
			b.fits(t, "row, "+d.name)
			nodes("row, "+d.name+", scrolled to "+to, 30_000)
		}

		at := 900_000
		b.open(t, row+"?at="+strconv.Itoa(at)+"#at")
		b.until(t, "token 900,000", func() bool {
			return measure("the token", `(() => { const e = document.querySelector("#at .t"), r = e?.getBoundingClientRect(); return r && r.bottom > 0 && r.top < innerHeight && Math.abs(parseInt(e.title) - 900000) < 600 ? 1 : 0; })()`) == 1
		})
	}
	b.check(t, origin)
}
