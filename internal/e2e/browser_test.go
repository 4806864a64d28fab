//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a real Chromium. What it complains about, and every address that it asks, is kept.
type browser struct {
	ctx        context.Context
	mu         sync.Mutex
	complaints []string
	asked      []string
	pending    map[network.RequestID]bool // of the page that is shown
	shown      cdp.LoaderID
	documents  int // loaded as pages, not as parts of one
}

// newBrowser starts Chromium for one test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: ./test e2e installs Debian's chromium", err)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(patience), // to start, on a busy machine
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, done := chromedp.NewContext(allocator)
	ctx, end := context.WithTimeout(ctx, 3*patience)
	t.Cleanup(func() { end(); done(); stop() })
	b := &browser{ctx: ctx, pending: map[network.RequestID]bool{}}
	chromedp.ListenTarget(ctx, b.note)
	b.do(t, "start", network.Enable(), runtime.Enable(), cdplog.Enable())
	return b
}

func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			var said []string
			for _, a := range e.Args {
				said = append(said, string(a.Value)+a.Description)
			}
			b.complaints = append(b.complaints, "console: "+strings.Join(said, " "))
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, "exception: "+e.ExceptionDetails.Error())
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			b.complaints = append(b.complaints, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
		if e.Type == network.ResourceTypeDocument {
			b.documents++
			b.shown = e.LoaderID
			clear(b.pending) // what the page before still waited for is given up, and never ends
		}
		if e.Type != network.ResourceTypeEventSource && e.LoaderID == b.shown {
			b.pending[e.RequestID] = true
		}
	case *network.EventLoadingFinished:
		delete(b.pending, e.RequestID)
	case *network.EventLoadingFailed:
		delete(b.pending, e.RequestID)
	case *page.EventJavascriptDialogOpening:
		go chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) //nolint:errcheck // what hangs on it fails by itself
	}
}

func (b *browser) do(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, strings.Join(b.said(), "\n"))
	}
}

func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

func (b *browser) loaded() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.documents
}

// open goes to a page and waits until it has loaded what it shows at first.
func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	b.do(t, address, chromedp.Navigate(address), chromedp.WaitReady("body"))
	b.quiet(t, address)
}

// quiet waits until nothing is being loaded.
func (b *browser) quiet(t *testing.T, what string) {
	t.Helper()
	b.until(t, what+" to come to rest", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.pending) == 0
	})
}

func (b *browser) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s\n%s", what, strings.Join(b.said(), "\n"))
		}
	}
}

// text is what a reader sees of a page.
func (b *browser) text(t *testing.T) string {
	t.Helper()
	var text string
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(`document.body?.innerText ?? ""`, &text)); err != nil {
		return "" // between two pages there is none
	}
	return text
}

// see waits for a text on the page.
func (b *browser) see(t *testing.T, want string) {
	t.Helper()
	b.until(t, fmt.Sprintf("%q on the page", want), func() bool { return strings.Contains(b.text(t), want) })
}

// links are the page's own.
func (b *browser) links(t *testing.T) []string {
	t.Helper()
	var links []string
	b.do(t, "read the links", chromedp.Evaluate(`[...document.querySelectorAll("a[href]")].map(a => new URL(a.getAttribute("href"), location).href)`, &links))
	return links
}

// check fails for whatever the browser complained about, and for every request to another origin.
func (b *browser) check(t *testing.T, origin string) {
	t.Helper()
	for _, c := range b.said() {
		t.Errorf("the browser complains: %s", c)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.asked {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "data" && u.Scheme != "about" && u.Scheme+"://"+u.Host != origin {
			t.Errorf("a page asked %s, which is not of %s", address, origin)
		}
	}
}

// device is what a reader holds.
type device struct {
	name          string
	width, height int64
	scheme        string
}

var devices = []device{
	{"light-wide", 1440, 1000, "light"}, {"dark-wide", 1440, 1000, "dark"}, {"light-narrow", 375, 812, "light"}, {"dark-narrow", 375, 812, "dark"},
	{"light-widest", 2560, 1300, "light"},
}

// hold makes the browser look like a device.
func (b *browser) hold(t *testing.T, d device) {
	t.Helper()
	b.do(t, d.name, emulation.SetDeviceMetricsOverride(d.width, d.height, 1, d.width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: d.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

// fits fails for a page that is wider than its device, on which things are cut off or must be scrolled for.
func (b *browser) fits(t *testing.T, what string) {
	t.Helper()
	var over float64
	b.do(t, what, chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over))
	if over > 0 {
		t.Errorf("%s is %g pixels wider than its window", what, over)
	}
}

// shoot writes what is seen into a file of the folder that UI_SCREENSHOTS names.
func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("UI_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture []byte
	b.do(t, name, chromedp.CaptureScreenshot(&picture))
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
