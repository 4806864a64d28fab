package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/metrics"
)

// docs/observability.md names every metric of the proxy's own, and none that is not there.
func TestMetricsAreDocumented(t *testing.T) {
	m := metrics.New(metrics.Sources{Running: func() int { return 1 }, Waiting: func() (int, int64) { return 1, 1 }, Late: func() int64 { return 1 }, Ready: func() bool { return true }})
	one := int64(1)
	m.Settled(&proxy.Settled{Call: &record.Call{Outcome: record.Complete, Dialect: record.OpenAIChat, Usage: record.Usage{Prompt: &one, Completion: &one}}, Before: time.Second, After: time.Second})
	m.Refused(record.OpenAIChat, http.StatusUnauthorized)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var there []string
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok && strings.HasPrefix(name, "capture_proxy_") {
			there = append(there, strings.Fields(name)[0])
		}
	}
	doc, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range there {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("%s is not in the document", name)
		}
	}
	for _, name := range regexp.MustCompile(`capture_proxy_[a-z_]+`).FindAllString(string(doc), -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if !slices.Contains(there, name) {
			t.Errorf("the document names %s, which is not there", name)
		}
	}
	if len(there) < 10 {
		t.Fatalf("%q", there)
	}
}
