package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"captureproxy/internal/record"
)

// endpoint is a small API that tests describe in a few lines.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []map[string]json.RawMessage // of the model calls
	heads  []http.Header
}

// newEndpoint serves a list of models and answers each model call with what call says.
func newEndpoint(t *testing.T, models string, call func(path string, body map[string]json.RawMessage) (status int, answer string)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodGet {
			if strings.HasSuffix(r.URL.Path, "/models") && models != "" {
				fmt.Fprint(w, models)
				return
			}
			http.NotFound(w, r)
			return
		}
		var body map[string]json.RawMessage
		if err := json.Unmarshal(data, &body); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		e.mu.Lock()
		e.bodies, e.heads = append(e.bodies, body), append(e.heads, r.Header)
		e.mu.Unlock()
		status, answer := call(r.URL.Path, body)
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bodies)
}

const (
	oneModel  = `{"object":"list","data":[{"id":"m"}]}`
	plainText = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`
)

func measured(t *testing.T, c Config) (*Upstream, *Profile) {
	t.Helper()
	up, err := NewUpstream(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return up, up.Measure(t.Context())
}

// TestProbeNegotiates measures an endpoint that refuses whatever can be refused, each in its own wording.
func TestProbeNegotiates(t *testing.T) {
	e := newEndpoint(t, oneModel, func(_ string, body map[string]json.RawMessage) (int, string) {
		switch {
		case body["return_token_ids"] != nil:
			return 400, `{"error":{"message":"Unrecognized request argument supplied: return_token_ids","type":"invalid_request_error","param":null,"code":null}}`
		case body["logprobs"] != nil:
			return 403, `{"error":{"message":"You are not allowed to request logprobs from this model","param":null}}`
		case body["max_tokens"] != nil:
			return 400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}`
		case body["temperature"] != nil && string(body["temperature"]) != "1":
			return 400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.","param":"temperature","code":"unsupported_value"}}`
		}
		return 200, plainText
	})
	up, p := measured(t, Config{URL: e.URL})
	if p.Level != record.LevelText || p.StreamCapture || p.Buffered || !p.ToolSupport || len(p.Findings) != 0 || p.LogprobsMode != record.LogprobsUnknown {
		t.Errorf("%+v", p)
	}
	var edits []string
	for _, x := range up.Record().ParamEdits {
		edits = append(edits, fmt.Sprintf("%s %s %v", x.Param, x.To, x.Behaviour))
		if x.Kind != record.EditNegotiated || x.Why == "" {
			t.Errorf("%+v", x)
		}
	}
	if want := []string{"return_token_ids null false", "logprobs null false", `max_tokens "max_completion_tokens" false`, "temperature null true"}; !slices.Equal(edits, want) {
		t.Errorf("%q\nwant %q", edits, want)
	}
	for _, stream := range []bool{true, false} {
		if way, buffered := p.Way(Shape{Stream: stream}); way.Level != record.LevelText || len(way.Params) != 0 || buffered {
			t.Errorf("%+v", way)
		}
	}
}

// TestProbeSaysWhatToDo: each thing that is missing is a finding of its own.
func TestProbeSaysWhatToDo(t *testing.T) {
	answer := func(string, map[string]json.RawMessage) (int, string) { return 200, plainText }
	for _, c := range []struct {
		name, models, model string
		call                func(string, map[string]json.RawMessage) (int, string)
		want                string
	}{
		{"nothing is wrong", oneModel, "", answer, ""},
		{"no list", "", "", answer, "GET /models answers 404): name one with --model"},
		{"an empty list", `{"data":[]}`, "", answer, "GET /models lists none): name one with --model"},
		{"no list, a model named", "", "m", answer, `whether it serves "m"`},
		{"several models", `{"data":[{"id":"a"},{"id":"b"}]}`, "", answer, "the engine serves 2 models (a, b): name one with --model"},
		{"several models, one named", `{"data":[{"id":"a"},{"id":"b"}]}`, "b", answer, ""},
		{"tools refused", oneModel, "", func(_ string, b map[string]json.RawMessage) (int, string) {
			if b["tools"] != nil {
				return 400, `{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"}}`
			}
			return 200, plainText
		}, "refuses calls with tools (400:"},
		{"the key is wrong", oneModel, "", func(string, map[string]json.RawMessage) (int, string) {
			return 401, `{"error":"Unauthorized sk-secret"}`
		},
			"refuses model calls (401: {\"error\":\"Unauthorized [the key]\"}): check --model, --upstream-key, --auth-header and --provider"},
	} {
		e := newEndpoint(t, c.models, c.call)
		_, p := measured(t, Config{URL: e.URL, Model: c.model, Key: "sk-secret"})
		all := strings.Join(p.Findings, "\n")
		if !p.Measured || !strings.Contains(all, c.want) || c.want == "" && all != "" || c.want != "" && len(p.Findings) != 1 || strings.Contains(all, "sk-secret") {
			t.Errorf("%s: measured %v, findings %q", c.name, p.Measured, p.Findings)
		}
	}
}

// TestUnwellEngine: what an engine in trouble does not answer says nothing about what it can do.
func TestUnwellEngine(t *testing.T) {
	gone := newEndpoint(t, oneModel, nil)
	gone.Close()
	failing := newEndpoint(t, oneModel, func(string, map[string]json.RawMessage) (int, string) { return 503, "loading" })
	for url, want := range map[string]string{gone.URL: "cannot be reached", failing.URL: "503: loading"} {
		up, p := measured(t, Config{URL: url})
		if p.Measured || !strings.Contains(up.Problem(), want) {
			t.Errorf("measured %v, problem %q, want %q", p.Measured, up.Problem(), want)
		}
	}
}

// TestProbeAsksNatively speaks to hosted providers as they want it.
func TestProbeAsksNatively(t *testing.T) {
	for _, c := range []struct {
		provider, models, path, answer string
		header                         map[string]string
		served                         string
	}{
		{"anthropic", `{"data":[{"type":"model","id":"claude"}],"has_more":false}`, "/v1/messages", `{"type":"message","content":[{"type":"text","text":"hi"}]}`,
			map[string]string{"X-Api-Key": "k", "Anthropic-Version": anthropicVersion, "Authorization": ""}, "claude"},
		{"google", `{"models":[{"name":"models/gemini"}]}`, "/v1beta/models/gemini:generateContent", `{"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}`,
			map[string]string{"X-Goog-Api-Key": "k", "Authorization": ""}, "gemini"},
		{"openai", oneModel, "/v1/chat/completions", plainText, map[string]string{"Authorization": "Bearer k"}, "m"},
	} {
		e := newEndpoint(t, c.models, func(path string, _ map[string]json.RawMessage) (int, string) {
			if path != c.path {
				return 404, "{}"
			}
			return 200, c.answer
		})
		_, p := measured(t, Config{URL: e.URL, Key: "k", Provider: c.provider})
		if !p.Measured || p.Level != record.LevelText || !p.ToolSupport || p.Served != c.served || len(p.Native) == 0 || len(p.Findings) != 0 || e.calls() != 2 {
			t.Errorf("%s: %+v after %d calls", c.provider, p, e.calls())
		}
		for name, want := range c.header {
			if got := e.heads[0].Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", c.provider, name, got, want)
			}
		}
	}
}

// TestStreamRefusalIsNoEdit: what an engine refuses in streams only is still asked of whole answers (BC11).
func TestStreamRefusalIsNoEdit(t *testing.T) {
	e := newEndpoint(t, oneModel, func(_ string, b map[string]json.RawMessage) (int, string) {
		if string(b["stream"]) == "true" && b["return_token_ids"] != nil {
			return 400, `{"error":{"message":"Parameter 'return_token_ids' is not supported with stream","param":"return_token_ids"}}`
		}
		if b["return_token_ids"] == nil {
			return 200, plainText
		}
		return 200, `{"choices":[{"index":0,"message":{"role":"assistant","content":"5"},"logprobs":{"content":[{"token":"5","logprob":-0.5}]},"finish_reason":"stop","prompt_token_ids":[1,2],"token_ids":[5]}],"usage":{"prompt_tokens":2,"completion_tokens":1}}`
	})
	_, p := measured(t, Config{URL: e.URL})
	if p.Level != record.LevelTokens || p.StreamCapture || !p.Buffered || len(p.Fixes) != 0 {
		t.Errorf("%+v", p)
	}
	if way, buffered := p.Way(Shape{Stream: true, Tools: true}); !buffered || way.Level != record.LevelTokens {
		t.Errorf("%+v %v", way, buffered)
	}
}

func TestLearn(t *testing.T) {
	up, err := NewUpstream(Config{URL: "http://127.0.0.1:1", Key: "sk-secret"})
	if err != nil {
		t.Fatal(err)
	}
	up.Assume(Profile{Level: record.LevelTokens, StreamCapture: true, Forced: ForcedKV})
	up.Learn(Fix{Param: "temperature", Why: "x sk-secret", Behaviour: true})
	up.Learn(Fix{Param: "temperature", To: "1", Why: "y", Behaviour: true})
	if p := up.Profile(); p.Level != record.LevelTokens || len(p.Fixes) != 1 || p.Fixes[0].To != "1" {
		t.Errorf("%+v", p)
	}
	up.Learn(Fix{Param: "return_token_ids", Why: "x sk-secret"})
	if p := up.Profile(); p.Level != record.LevelLogprobs || !slices.Equal(p.Whole.names(), []string{"logprobs", "top_logprobs"}) || strings.Contains(p.Fixes[1].Why, "sk-secret") {
		t.Errorf("%+v", p)
	}
	up.Learn(Fix{Param: "logprobs", Why: "x"})
	if p := up.Profile(); p.Level != record.LevelText || len(p.Whole.Params)+len(p.Stream.Params) != 0 || p.StreamCapture {
		t.Errorf("%+v", p)
	}
	up.LoseForced("other ids came back")
	if p := up.Profile(); p.Forced != "" || len(p.Findings) != 1 || up.Record().Profile.ForcedIDs {
		t.Errorf("%+v", p)
	}
}

// TestProbeTriesAgain: a sampled emoji, whose parts share a row, or an answer that is empty, says nothing about the engine.
// llama.cpp was measured as an engine without ids, or without a mode, in one run out of ten.
func TestProbeTriesAgain(t *testing.T) {
	const (
		whole  = `{"id":"c","prompt_token_ids":[1,2,3],"choices":[{"index":0,"message":{"role":"assistant","content":%q},"token_ids":%s,"logprobs":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":%d}}`
		row    = `{"token":"a","logprob":%g,"top_logprobs":[{"token":"a","logprob":%g},{"token":"b","logprob":-3}]}`
		noRows = `{"content":[]}`
	)
	unlucky := []string{
		fmt.Sprintf(whole, "a👋", "[5,6,7]", `{"content":[`+fmt.Sprintf(row, -1., -1.)+`,`+fmt.Sprintf(row, -1., -1.)+`]}`, 3),
		fmt.Sprintf(whole, "", "[]", noRows, 0),
		fmt.Sprintf(whole, "", "[7]", `null`, 1),
	}
	lucky := func(best float64) string {
		return fmt.Sprintf(whole, "a", "[5]", `{"content":[`+fmt.Sprintf(row, best, best)+`]}`, 1)
	}
	for name, before := range map[string]int{"at once": 0, "the second time": 1, "the fourth time": 3} {
		tried := map[string]int{}
		e := newEndpoint(t, oneModel, func(_ string, body map[string]json.RawMessage) (int, string) {
			kind := string(body["temperature"]) + string(body["stream"])
			if tried[kind]++; tried[kind] <= before {
				n := tried[kind] - 1
				if kind == "1" || kind == "2" {
					n = 1 + n%2 // a first row is all that they need
				}
				return http.StatusOK, unlucky[n]
			}
			if kind == "2" { // halves the gap of -1 and -3
				return http.StatusOK, lucky(-2)
			}
			return http.StatusOK, lucky(-1)
		})
		_, p := measured(t, Config{URL: e.URL})
		if p.Level != record.LevelTokens || !p.StreamCapture || p.LogprobsMode != record.LogprobsProcessed || len(p.Fixes) > 0 {
			t.Errorf("%s: level %s, streamed %t, logprobs %s, fixes %v", name, p.Level, p.StreamCapture, p.LogprobsMode, p.Fixes)
		}
	}
	e := newEndpoint(t, oneModel, func(string, map[string]json.RawMessage) (int, string) { return http.StatusOK, unlucky[0] })
	if _, p := measured(t, Config{URL: e.URL}); p.Level != record.LevelLogprobs || e.calls() > 60 {
		t.Errorf("always: level %s after %d calls", p.Level, e.calls())
	}
}
