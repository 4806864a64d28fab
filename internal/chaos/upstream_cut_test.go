package chaos

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
)

// spoken are the ways in which a harness and an engine speak: dialect by dialect before an engine that speaks chat, and three that
// an engine speaks itself.
var spoken = []struct {
	name, provider string
	wire           fakeengine.Wire
	native         record.Dialect
	path, stream   string // of a whole call, of a streamed one
	body           string // %t for stream
}{
	{"chat", "", fakeengine.WireVLLM, "", "/v1/chat/completions", "", `{"model":"m","stream":%t,"messages":[{"role":"user","content":"mark-1-end"}]}`},
	{"completions", "", fakeengine.WireVLLM, "", "/v1/completions", "", `{"model":"m","stream":%t,"max_tokens":20,"prompt":"mark-1-end"}`},
	{"responses", "", fakeengine.WireVLLM, "", "/v1/responses", "", `{"model":"m","stream":%t,"input":"mark-1-end"}`},
	{"messages", "", fakeengine.WireVLLM, "", "/v1/messages", "", `{"model":"m","max_tokens":4000,"stream":%t,"messages":[{"role":"user","content":"mark-1-end"}]}`},
	{"google", "", fakeengine.WireVLLM, "", "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"mark-1-end"}]}],"generationConfig":{"responseModalities":["TEXT"]}}`},
	{"native messages", "anthropic", fakeengine.WireAnthropic, record.AnthropicMessages, "/v1/messages", "", `{"model":"fake-model","max_tokens":4000,"stream":%t,"messages":[{"role":"user","content":"mark-1-end"}]}`},
	{"native google", "google", fakeengine.WireGoogle, record.Google, "/v1beta/models/fake-model:generateContent", "/v1beta/models/fake-model:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"mark-1-end"}]}]}`},
	{"native responses", "openai", fakeengine.WireOpenAI, record.OpenAIResponses, "/v1/responses", "", `{"model":"fake-model","stream":%t,"input":"mark-1-end"}`},
}

// talk is a call that goes well, and the proxy before which it may be made otherwise.
type talk struct {
	*front
	path, body string
	raw        []byte       // all that the engine says
	good       *record.Call // what is recorded of it
	got        reply        // what the client gets
	before     func(t *testing.T, idle time.Duration) *front
}

// eachSpoken runs a test for whole and streamed calls of each.
func eachSpoken(t *testing.T, test func(t *testing.T, k *talk)) {
	for _, s := range spoken {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s stream=%t", s.name, stream), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				t.Run("", func(t *testing.T) { // what it starts has ended behind it
					var native []record.Dialect
					if s.native != "" {
						native = append(native, s.native)
					}
					k := &talk{path: s.path, body: s.body, before: func(t *testing.T, idle time.Duration) *front { return newFront(t, s.provider, idle, native...) }}
					k.front = k.before(t, 20*time.Second)
					if stream && s.stream != "" {
						k.path = s.stream
					}
					if strings.Contains(k.body, "%t") {
						k.body = fmt.Sprintf(k.body, stream)
					}
					k.raw, k.good, k.got = taped(t, k.front, fakeengine.Options{Wire: s.wire, Model: "fake-model"}, k.path, k.body)
					if k.good.Outcome != record.Complete && k.good.Outcome != record.Length || k.got.cut || k.got.status != http.StatusOK || len(k.good.Choices) != 1 {
						t.Fatalf("without a fault: %s: %s; %+v", k.good.Outcome, k.good.Detail, k.got)
					}
					test(t, k)
				})
			})
		}
	}
}

// same says that two records hold the same answer.
func same(a, b *record.Call) bool {
	return len(a.Choices) == len(b.Choices) && bytes.Equal(a.Choices[0].Message, b.Choices[0].Message) && slices.Equal(a.Choices[0].SampledIDs, b.Choices[0].SampledIDs) &&
		slices.Equal(a.Choices[0].PromptIDs, b.Choices[0].PromptIDs) && slices.Equal(a.Choices[0].Logprobs, b.Choices[0].Logprobs)
}

// judge compares what became of a damaged answer with the whole one: a node is the whole answer and nothing else, and a client
// whose call is none saw no normal end.
func (k *talk) judge(t *testing.T, what string, c *record.Call, got reply) {
	t.Helper()
	good, wanted := k.good, k.got
	if c.Outcome.IsNode() {
		if !same(c, good) {
			t.Errorf("%s: recorded as %s: %s, want %s", what, c.Outcome, c.Choices[0].Message, good.Choices[0].Message)
		}
		return
	}
	switch {
	case got.status == http.StatusOK && !got.cut && !strings.Contains(got.body, "error"):
		t.Errorf("%s: recorded as %s (%s), and the client got a good end: %q", what, c.Outcome, c.Detail, got.body)
	case got.status == http.StatusOK && got.body == wanted.body && !got.cut:
		t.Errorf("%s: recorded as %s (%s), and the client got all of it", what, c.Outcome, c.Detail)
	}
	for _, ch := range c.Choices { // what is kept of it is a beginning of what the engine said
		full := good.Choices[0]
		if len(ch.SampledIDs) > len(full.SampledIDs) || !slices.Equal(ch.SampledIDs, full.SampledIDs[:len(ch.SampledIDs)]) {
			t.Errorf("%s: ids %v were never sampled, %v were", what, ch.SampledIDs, full.SampledIDs)
		}
	}
}

// points are places in an answer: every byte in a long run, in a short one all of its beginning and of its end and some between.
func points(n int) []int {
	if os.Getenv("CHAOS_ROUNDS") != "" {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	var some []int
	for i := 0; i < n; i++ {
		if i < 8 || i > n-24 || i%(n/40+1) == 0 {
			some = append(some, i)
		}
	}
	return some
}

// An engine's answer that ends at any byte, by a close or a reset, is a whole one or a failure, in the record and for the client.
func TestCutAnywhere(t *testing.T) {
	eachSpoken(t, func(t *testing.T, k *talk) {
		ended := map[record.Outcome]int{}
		places := points(len(k.raw))
		for _, at := range places {
			reset := at%2 == 0
			k.wire.does(func(c *net.TCPConn, _ *http.Request, _ []byte) {
				c.Write(k.raw[:at]) //nolint:errcheck // what counts is what comes of it
				if reset {
					c.SetLinger(0) //nolint:errcheck // likewise
				}
			})
			got, c := k.call(k.path, k.body)
			ended[c.Outcome]++
			k.judge(t, fmt.Sprintf("cut at %d of %d, reset %t", at, len(k.raw), reset), c, got)
		}
		if ended[record.UpstreamError] == 0 {
			t.Errorf("no cut was seen: %v", ended)
		}
		t.Logf("%d places: %v", len(places), ended)
	})
}

// An engine that falls silent in the middle is given up after the idle limit.
func TestStallAnywhere(t *testing.T) {
	eachSpoken(t, func(t *testing.T, k *talk) {
		f := k.before(t, 100*time.Millisecond)
		for _, part := range []float64{0, .05, .3, .6, .9} {
			at := int(part * float64(len(k.raw)))
			f.wire.does(func(c *net.TCPConn, _ *http.Request, _ []byte) {
				c.Write(k.raw[:at])       //nolint:errcheck // what counts is what comes of it
				c.Read(make([]byte, 512)) //nolint:errcheck // until the proxy hangs up
			})
			got, c := f.call(k.path, k.body)
			k.judge(t, fmt.Sprintf("silent at %d of %d", at, len(k.raw)), c, got)
			if c.Outcome != record.UpstreamError || !strings.Contains(c.Detail, "limit") {
				t.Errorf("silent at %d: %s: %s", at, c.Outcome, c.Detail)
			}
		}
	})
}

// An engine that says a byte at a time is heard to its end.
func TestTrickle(t *testing.T) {
	eachSpoken(t, func(t *testing.T, k *talk) {
		k.wire.does(func(c *net.TCPConn, _ *http.Request, _ []byte) {
			for i := range k.raw {
				if _, err := c.Write(k.raw[i : i+1]); err != nil {
					return
				}
			}
		})
		got, c := k.call(k.path, k.body)
		if !c.Outcome.IsNode() || !same(c, k.good) || got.cut || got.status != k.got.status {
			t.Errorf("byte by byte: %s: %s; %+v", c.Outcome, c.Detail, got)
		}
	})
}
