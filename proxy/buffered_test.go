package proxy

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// wholeOnly is an engine that gives ids with whole answers only.
var wholeOnly = engine.Profile{
	Level: record.LevelTokens, Buffered: true, LogprobsMode: record.LogprobsProcessed, Served: "m",
	Whole:  engine.Way{Level: record.LevelTokens, Params: []engine.Param{{Name: "return_token_ids", Value: "true"}, {Name: "logprobs", Value: "true"}, {Name: "top_logprobs", Value: "0"}}},
	Stream: engine.Way{Level: record.LevelText},
}

func newBufferedRig(t *testing.T, url string, profile engine.Profile, config func(*Config)) *rig {
	t.Helper()
	r := newRig(t, url, rigOptions{level: record.LevelTokens, config: config})
	r.up.Assume(profile)
	return r
}

const wholeAnswer = `{"id":"c1","object":"chat.completion","created":1,"model":"m","prompt_token_ids":[1,2,3],"choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"five"},"token_ids":[4,5],"logprobs":{"content":[{"token":"fi","logprob":-0.5},{"token":"ve","logprob":-0.25}]},` +
	`"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`

// An engine that gives its ids with whole answers only is asked for one, and the harness gets the stream that it asked for.
func TestBufferedCapture(t *testing.T) {
	e, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // a test's engine
	profile := wholeOnly
	profile.Served = fakeengine.DefaultModel
	r := newBufferedRig(t, e.URL, profile, nil)
	r.agent(t.Context())
	doc := r.document(export.Options{})
	if !doc.Trainable || doc.Stats.Roots != 1 || doc.Stats.FailedCalls != 0 {
		t.Errorf("trainable %v, %d roots, %d failed calls: %v", doc.Trainable, doc.Stats.Roots, doc.Stats.FailedCalls, doc.Validation)
	}
	for _, c := range r.calls() {
		if !c.Stream || !slices.ContainsFunc(c.Edits, func(e record.Edit) bool { return e.Param == "stream" && string(e.To) == "false" }) {
			t.Errorf("call %d: stream %v, edits %v", c.Number, c.Stream, c.Edits)
		}
	}
	for _, req := range e.Requests() {
		if strings.Contains(string(req.Body), `"stream":true`) {
			t.Errorf("a stream was asked for: %s", req.Body)
		}
	}
}

// While a whole answer is made, a harness that waits for a stream sees that it is alive, in every dialect; what comes then is
// a stream that ends as it should, or the dialect's error.
func TestLifeWhileBuffered(t *testing.T) {
	for _, c := range []struct{ name, path, body, life, end, failed string }{
		{"chat", "/v1/chat/completions", simpleStream, ": \n", "data: [DONE]\n\n", `data: {"error"`},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"add"}]}`, ": \n", `{"type":"message_stop"}`, "event: error"},
		{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"add"}`, ": \n", "response.completed", "response.failed"},
		{"google", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"add"}]}]}`, ": \n", `"finishReason":"STOP"`, `"error"`},
		{"google array", "/v1beta/models/m:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"add"}]}]}`, "\n", `"finishReason":"STOP"`, `"error"`},
	} {
		for _, fails := range []bool{false, true} {
			name := c.name
			if fails {
				name += " failing"
			}
			t.Run(name, func(t *testing.T) {
				alive := make(chan struct{})
				up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
					<-alive
					if fails {
						answers(500, "application/json", `{"error":{"message":"out of memory"}}`)(w, nil, 0)
						return
					}
					answers(200, "application/json", wholeAnswer)(w, nil, 0)
				})
				r := newBufferedRig(t, up.URL, wholeOnly, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
				req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+c.path, strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer s1")
				resp, err := http.DefaultClient.Do(req) // returns with the head, which nothing but the keepalive sends
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				first := make([]byte, len(c.life))
				if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != c.life {
					t.Fatalf("first bytes %q, %v", first, err)
				}
				close(alive)
				rest, err := io.ReadAll(resp.Body)
				text := string(rest)
				if fails {
					if err == nil || !strings.Contains(text, c.failed) || strings.Contains(text, c.end) {
						t.Errorf("%v: %s", err, text)
					}
					if got := r.eventually(1)[0]; got.Outcome != record.UpstreamError || got.Status != 200 {
						t.Errorf("outcome %s, status %d", got.Outcome, got.Status)
					}
					return
				}
				if err != nil || !strings.Contains(text, c.end) || strings.Contains(text, "token_ids") || !strings.Contains(text, "five") {
					t.Errorf("%v: %s", err, text)
				}
				got := r.only()
				if ch := got.Choices[0]; got.Outcome != record.Complete || len(ch.PromptIDs) != 3 || len(ch.SampledIDs) != 2 {
					t.Errorf("outcome %s %s: %+v", got.Outcome, got.Detail, ch)
				}
			})
		}
	}
}

// Prompt ids that the engine does not give come from its own tokenizer, and count only if there are as many as it says.
func TestDerivedPrompt(t *testing.T) {
	const noPrompt = `{"choices":[{"index":0,"message":{"role":"assistant","content":"five"},"token_ids":[4,5],"logprobs":{"content":[{"token":"fi","logprob":-0.5},{"token":"ve","logprob":-0.25}]},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	for _, c := range []struct {
		name, tokens string
		outcome      record.Outcome
		trainable    bool
	}{
		{"as many as the engine counts", `{"tokens":[7,8,9]}`, record.Complete, true},
		{"too few", `{"tokens":[7,8]}`, record.IncompleteCapture, false},
		{"none", `{"error":{"message":"no such route"}}`, record.IncompleteCapture, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				switch r.URL.Path {
				case "/apply-template":
					answers(200, "application/json", `{"prompt":"<user>add</user>"}`)(w, r, 0)
				case "/tokenize":
					answers(200, "application/json", c.tokens)(w, r, 0)
				default:
					answers(200, "application/json", noPrompt)(w, r, 0)
				}
			})
			profile := wholeOnly
			profile.Whole.Derive = true
			r := newBufferedRig(t, up.URL, profile, nil)
			if resp, body := r.post("/v1/chat/completions", simpleStream); resp.StatusCode != 200 || !strings.Contains(string(body), "five") {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			call := r.only()
			if call.Outcome != c.outcome {
				t.Errorf("outcome %s (%s), want %s", call.Outcome, call.Detail, c.outcome)
			}
			doc := r.document(export.Options{})
			if doc.Trainable != c.trainable {
				t.Errorf("trainable %v: %v", doc.Trainable, doc.Turns[0].Validation)
			}
			if c.trainable && call.PromptSource != record.PromptDerived {
				t.Errorf("prompt source %q", call.PromptSource)
			}
		})
	}
}
