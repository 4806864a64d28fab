package ui

import (
	"encoding/json"
	"fmt"
	"testing"

	"captureproxy/internal/record"
)

// long fills a session with turns of one conversation, each 300 tokens of context and 200 sampled ones further.
func (p *proxyUI) long(b testing.TB, id string, turns int) {
	b.Helper()
	p.create(b, id, "")
	rec, err := p.log.Session(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.registry.Update(b.Context(), id, func(s *record.Session) error {
		s.CaptureLevel = record.LevelTokens
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	ids := make([]int32, 0, turns*500)
	messages := make([]json.RawMessage, 0, 2*turns)
	for i := range turns {
		for k := range 300 {
			ids = append(ids, int32((i*7+k)%100_000))
		}
		messages = append(messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"question %d, %01000d"}`, i, i)))
		prompt := ids[:len(ids):len(ids)]
		for k := range 200 {
			ids = append(ids, int32((i*11+k)%100_000))
		}
		p.record(b, rec, i+1, prompt, ids[len(prompt):len(ids):len(ids)], messages[:len(messages):len(messages)])
		messages = append(messages, json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, i+1)))
	}
}

// BenchmarkLongSession opens the pages of a session of 2,000 turns and a million tokens: cold is the first time, with the
// document derived from the log.
func BenchmarkLongSession(b *testing.B) {
	p := newProxyUI(b)
	p.long(b, "s-long", 2000)
	if _, err := p.client.Cancel(b.Context(), "s-long", "enough"); err != nil {
		b.Fatal(err)
	}
	for _, path := range []string{"/ui/sessions/s-long", "/ui/sessions/s-long/turns/1999", "/ui/sessions/s-long/rows/0?at=900000", "/ui/sessions/s-long/rows/0/tokens?from=500000"} {
		b.Run("cold"+path, func(b *testing.B) {
			for b.Loop() {
				p.shelf.books = nil
				p.UI = newUI(b, Options{Source: p.fresh(), Loopback: true}) // which has derived nothing yet
				b.ReportMetric(float64(len(page(b, p, path))), "bytes")
			}
		})
		b.Run("warm"+path, func(b *testing.B) {
			for b.Loop() {
				page(b, p, path)
			}
		})
	}
}

// BenchmarkIndex opens the list of 5,000 sessions in groups of eight, and then a group of 500 more.
func BenchmarkIndex(b *testing.B) {
	p := newProxyUI(b)
	for i := range 5000 {
		p.create(b, fmt.Sprintf("s-%04d", i), fmt.Sprintf("g-%d", i/8))
	}
	for i := range 500 {
		p.create(b, fmt.Sprintf("s-wide-%03d", i), "g-wide")
	}
	for _, path := range []string{"/ui/", "/ui/?flat=1", "/ui/list", "/ui/?group=g-7", "/ui/?group=g-wide&open=g-wide", "/ui/group?id=g-wide"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(len(page(b, p, path))), "bytes")
			}
		})
	}
}
