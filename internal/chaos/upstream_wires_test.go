package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// struck are faults that strike any wire, each with whether its answer may count as whole.
var struck = []struct {
	text  string
	whole bool
}{
	{"", true}, {"gzip", true}, {"slow 20", true},
	{"status 400", false}, {"status 404", false}, {"status 429 0", false}, {"status 500", false}, {"status 503 0", false}, {"cut 0", false}, {"cut 1", false},
}

// Engines of which whole answers are asked for, and engines that speak a harness's dialect themselves: under every fault that can
// strike them a call is recorded once, as whole only if it is, and with no id that was not sampled.
func TestFaultsOfOtherWires(t *testing.T) {
	chat := `{"model":"fake-model","stream":%t,"messages":[{"role":"user","content":"mark-1-end"}]}`
	for _, w := range []struct {
		name     string
		wire     fakeengine.Wire
		provider string
		native   record.Dialect
		buffered bool
		path     string
		body     string
	}{
		{"llamacpp", fakeengine.WireLlamaCpp, "", "", true, "/v1/chat/completions", chat},
		{"sglang-old", fakeengine.WireSGLangOld, "", "", true, "/v1/chat/completions", chat},
		{"sglang", fakeengine.WireSGLang, "", "", false, "/v1/chat/completions", chat},
		{"anthropic", fakeengine.WireAnthropic, "anthropic", record.AnthropicMessages, false, "/v1/messages", spoken[5].body},
		{"openai", fakeengine.WireOpenAI, "openai", record.OpenAIResponses, false, "/v1/responses", spoken[7].body},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s stream=%t", w.name, stream), func(t *testing.T) {
				t.Parallel() // most of it is waiting between two tries
				fake, err := fakeengine.Start(fakeengine.Options{Wire: w.wire, Model: "fake-model"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { fake.Close() })
				var native []record.Dialect
				if w.native != "" {
					native = append(native, w.native)
				}
				f := newFrontOf(t, fake.URL, w.provider, time.Minute, native...)
				if w.native == "" {
					f.up.Measure(t.Context())
				}
				for _, s := range struck {
					body := fmt.Sprintf(w.body, stream)
					if s.text != "" {
						body = strings.Replace(body, "mark-1-end", "mark-1-end [[fault:"+s.text+"]]", 1)
					}
					got, c := f.call(w.path, body)
					if c.Outcome.IsNode() != s.whole {
						t.Errorf("%q: recorded as %s: %s", s.text, c.Outcome, c.Detail)
					}
					if !c.Outcome.IsNode() && got.status == http.StatusOK && !got.cut && !strings.Contains(got.body, "error") {
						t.Errorf("%q: %s, and the client got a good end: %.300s", s.text, c.Outcome, got.body)
					}
					truth, known := fake.Truth("chatcmpl-" + c.RequestID)
					for i, ch := range c.Choices {
						if known && !slices.Equal(ch.SampledIDs, truth.Sampled[i][:min(len(ch.SampledIDs), len(truth.Sampled[i]))]) {
							t.Errorf("%q: ids %v were never sampled, %v were", s.text, ch.SampledIDs, truth.Sampled[i])
						}
						if w.buffered && s.whole && len(ch.SampledIDs) == 0 {
							t.Errorf("%q: no ids of an engine that gives them in whole answers: %s: %s", s.text, c.Outcome, c.Detail)
						}
					}
				}
			})
		}
	}
}
