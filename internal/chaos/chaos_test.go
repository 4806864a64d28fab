package chaos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// faults is what the engine does, each with whether its answer may count as whole.
var faults = []struct {
	text  string
	whole bool
}{
	{"", true}, {"pings", true}, {"huge-first", true}, {"json-type", true}, {"json-answer", true}, {"gzip", true}, {"slow 20", true}, {"no-usage", true},
	{"status 400", false}, {"status 500", false}, {"status 404", false}, {"cut 0", false}, {"cut 1", false}, {"cut 4", false}, {"stall 2", false}, {"error-event 2", false},
	{"done-early", false}, {"abort", false}, {"content-filter", false}, {"missing-ids", false}, {"short-ids", false}, {"missing-logprobs", false},
	{"short-logprobs", false}, {"null-logprob", false}, {"positive-logprob", false}, {"sentinel-logprob", false}, {"wrong-usage", false},
	{"nan-logprob", false}, {"missing-prompt-ids", false}, {"status 429 0", false}, {"status 503 0", false}, {"garbage 2", true},
}

// streamsOnly are the faults that strike between two events: a whole answer has none.
var streamsOnly = []string{"stall 2", "error-event 2", "done-early"}

var dialects = []struct{ path, body string }{
	{"/v1/chat/completions", `{"model":"m","stream":%t,"messages":[{"role":"user","content":%q}]}`},
	{"/v1/responses", `{"model":"m","stream":%t,"input":%q}`},
	{"/v1/messages", `{"model":"m","max_tokens":4000,"stream":%t,"messages":[{"role":"user","content":%q}]}`},
	{"/v1/completions", `{"model":"m","max_tokens":4000,"stream":%t,"prompt":%q}`},
	{googlePath, `{"generationConfig":{"candidateCount":1},"systemInstruction":{"parts":[{"text":"stream %t"}]},"contents":[{"role":"user","parts":[{"text":%q}]}]}`},
}

// googlePath says in its last word what other dialects say in the body.
const googlePath = "/v1beta/models/m:"

func pathOf(path string, stream bool) string {
	switch {
	case path != googlePath:
		return path
	case stream:
		return path + "streamGenerateContent?alt=sse"
	}
	return path + "generateContent"
}

var anyMarker = regexp.MustCompile(`mark-\d+-end`)

// mixed says that text holds the marker of another call.
func mixed(text, marker string) bool {
	return slices.ContainsFunc(anyMarker.FindAllString(text, -1), func(m string) bool { return m != marker })
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Whatever the engine does in whatever dialect, each call is recorded once and truly, and nothing of it reaches another.
func TestFaults(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("CHAOS_ROUNDS"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	runs, results := map[string]int{}, map[string]map[record.Outcome]int{}
	for range rounds {
		round(t, runs, results)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d file descriptors, %d before", after, before)
	}
	for _, f := range faults {
		t.Logf("%-18s %4d runs: %v", cmp.Or(f.text, "none"), runs[f.text], results[f.text])
	}
}

func round(t *testing.T, runs map[string]int, results map[string]map[record.Outcome]int) {
	fake, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	up, err := engine.NewUpstream(engine.Config{URL: fake.URL, Timeouts: engine.Timeouts{FirstByte: time.Minute, Idle: 3 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	sessions, err := session.Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return up })
	if err != nil {
		t.Fatal(err)
	}
	up.Measure(t.Context())
	srv := httptest.NewServer(proxy.New(proxy.Config{Sessions: sessions, Log: st}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	var mu sync.Mutex
	var all sync.WaitGroup
	gate := make(chan struct{}, 16)
	n := 0
	for _, f := range faults {
		for _, d := range dialects {
			for _, stream := range []bool{true, false} {
				n++
				id, marker := fmt.Sprintf("s%d", n), fmt.Sprintf("mark-%d-end", n)
				all.Go(func() {
					gate <- struct{}{}
					defer func() { <-gate }()
					if _, err := sessions.Create(context.Background(), &record.Session{ID: id, CaptureLevel: up.Profile().Level, Engine: up.Record()}, up); err != nil {
						t.Error(err)
						return
					}
					text := marker
					if f.text != "" {
						text += " [[fault:" + f.text + "]]"
					}
					name := fmt.Sprintf("%q %s stream=%t", f.text, d.path, stream)
					answer := ask(t, client, f.text, srv.URL+pathOf(d.path, stream), id, fmt.Sprintf(d.body, stream, text))
					calls := wait(t, st, id)
					if len(calls) != 1 {
						t.Errorf("%s: %d records", name, len(calls))
						return
					}
					check(t, name, fake, calls[0], f.whole || !stream && slices.Contains(streamsOnly, f.text), answer, marker)
					body, err := st.Body(context.Background(), id, 1)
					if err != nil || !strings.Contains(string(body), marker) || mixed(string(body), marker) {
						t.Errorf("%s: recorded body %q, %v", name, body, err)
					}
					mu.Lock()
					defer mu.Unlock()
					runs[f.text]++
					if results[f.text] == nil {
						results[f.text] = map[record.Outcome]int{}
					}
					results[f.text][calls[0].Outcome]++
				})
			}
		}
	}
	all.Wait()
}

func ask(t *testing.T, client *http.Client, fault, url, key, body string) string {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if fault != "" && strings.HasSuffix(url, "/v1/completions") { // a prompt has no last user message to name a fault
		req.Header.Set("X-Fake-Fault", fault)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "" // a connection that was cut before its answer
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return string(answer) + "\ncut"
	}
	return string(answer)
}

// wait gives a call that ended with a cut connection the time to be written.
func wait(t *testing.T, st *store.Log, id string) []*record.Call {
	for range 1000 {
		calls, err := st.Calls(context.Background(), id)
		if err != nil {
			t.Error(err)
			return nil
		}
		if len(calls) > 0 {
			return calls
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func check(t *testing.T, name string, fake *fakeengine.Server, c *record.Call, whole bool, answer, marker string) {
	if good := c.Outcome == record.Complete || c.Outcome == record.Length; good != whole {
		t.Errorf("%s: recorded as %s: %s", name, c.Outcome, c.Detail)
	}
	if mixed(answer, marker) {
		t.Errorf("%s: the answer holds another call's text: %s", name, answer)
	}
	if !c.Outcome.IsNode() && c.Status == http.StatusOK && c.Stream && !strings.HasSuffix(answer, "cut") {
		t.Errorf("%s: a failed stream ended well: %s", name, answer)
	}
	prefix := "chatcmpl-"
	if c.Dialect == record.OpenAICompletions {
		prefix = "cmpl-"
	}
	truth, known := fake.Truth(prefix + c.RequestID)
	for i, ch := range c.Choices {
		if mixed(string(ch.Message), marker) {
			t.Errorf("%s: the record holds another call's text: %s", name, ch.Message)
		}
		if whole && (!known || !slices.Equal(ch.SampledIDs, truth.Sampled[i]) || !slices.Equal(ch.PromptIDs, truth.Prompt)) {
			t.Errorf("%s: recorded ids are not those that were sampled", name)
		}
	}
}
