package ui

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// scroll goes down a page for 120 frames, two fifths of a window at a time, and says how long its frames took.
const scroll = `new Promise(done => {
  const took = [];
  let last = performance.now();
  requestAnimationFrame(function frame(now) {
    took.push(now - last);
    last = now;
    if (took.length > 120) { took.shift(); took.sort((a, b) => a - b); done([took[took.length >> 1], took.at(-1)]); return; }
    scrollBy(0, innerHeight * 0.4);
    requestAnimationFrame(frame);
  });
})`

// awaited is an expression whose value is promised.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// BenchmarkBrowser opens pages in Chromium and scrolls them: a session of 2,000 turns and a million tokens, and 5,000 other sessions.
func BenchmarkBrowser(b *testing.B) {
	p := newProxyUI(b)
	p.long(b, "s-long", 2000)
	if _, err := p.client.Cancel(b.Context(), "s-long", "enough"); err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		p.create(b, fmt.Sprintf("s-%04d", i), fmt.Sprintf("g-%d", i/8))
	}
	for i := range 500 {
		p.create(b, fmt.Sprintf("s-wide-%03d", i), "g-wide")
	}
	server := httptest.NewServer(p)
	b.Cleanup(server.Close)
	allocator, stop := chromedp.NewExecAllocator(b.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900))...)
	b.Cleanup(stop)
	ctx, done := chromedp.NewContext(allocator)
	b.Cleanup(done)
	for _, path := range []string{
		"/ui/sessions/s-long", "/ui/sessions/s-long/rows/0", "/ui/sessions/s-long/rows/0?at=900000#at", "/ui/", "/ui/?flat=1", "/ui/group?id=g-wide",
	} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				var loaded float64
				var frames []float64
				if err := chromedp.Run(ctx,
					chromedp.Navigate("about:blank"), chromedp.Navigate(server.URL+path),
					chromedp.Evaluate(`new Promise(d => { const t = () => { const n = performance.getEntriesByType("navigation")[0]; n.loadEventEnd ? d(n.loadEventEnd) : setTimeout(t, 5); }; t(); })`,
						&loaded, chromedp.EvalAsValue, awaited),
					chromedp.Evaluate(scroll, &frames, chromedp.EvalAsValue, awaited)); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(loaded, "ms-to-load")
				b.ReportMetric(frames[0], "ms-frame")
				b.ReportMetric(frames[1], "ms-longest-frame")
			}
		})
	}
}
