//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// TestLlamaCppProbe measures a real engine that tells its ids with whole answers only, and raw logprobs.
func TestLlamaCppProbe(t *testing.T) {
	engine := llamaCpp(t)
	out, code := command(t, nil, binary, "probe", "--upstream", engine, "--json", "--timeout", "5m")
	var said struct {
		Level   record.Level        `json:"capture_level"`
		Stream  *bool               `json:"stream_capture"`
		Mode    record.LogprobsMode `json:"logprobs_mode"`
		Tools   bool                `json:"tool_support"`
		Edits   []export.Edit       `json:"param_edits"`
		Derived bool                `json:"buffered"`
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != 0 {
		t.Fatalf("code %d, %v: %s", code, err, out)
	}
	if said.Level != record.LevelTokens || said.Stream == nil || *said.Stream || said.Mode != record.LogprobsRaw || !said.Tools || len(said.Edits) != 0 || !said.Derived {
		t.Errorf("probe says %s", out)
	}
}

// TestLlamaCpp holds a streamed conversation with a real engine that streams no token ids, and refuses logprobs beside tools
// in a stream: the client must not notice, and the document holds what the engine itself says it read and sampled.
func TestLlamaCpp(t *testing.T) {
	engine := llamaCpp(t)
	tap := newTap(t, engine)
	p := serve(t, "--upstream", tap.url+"/v1", "--data", t.TempDir())
	const silent = 3 // the small model ends an answer at once now and then
	var session, said string
	code := silent
	for tries := 0; code == silent && tries < 5; tries++ {
		session = p.session(t)
		said, code = command(t, []string{"OPENAI_BASE_URL=" + p.url + "/v1", "OPENAI_API_KEY=" + session},
			installed(t, "python", "bin", "python"), "testdata/chat.py")
	}
	if code != 0 || strings.TrimSpace(said) != "4" {
		t.Fatalf("the client ended with %d after %q turns", code, said)
	}

	doc := p.close(t, session)
	if doc.Status != record.Completed || doc.RolloutType != export.TypeTrain || doc.CaptureLevel != record.LevelTokens {
		t.Errorf("status %s, type %s, level %s", doc.Status, doc.RolloutType, doc.CaptureLevel)
	}
	if len(doc.Turns) != 4 || len(doc.FailedCalls) > 0 {
		t.Fatalf("%d turns, failed calls: %+v", len(doc.Turns), doc.FailedCalls)
	}
	calls := tap.calls[len(tap.calls)-4:] // those before were the probe's
	whole := 0
	for i, turn := range doc.Turns {
		ids, rows := calls[i].Verbose.Tokens, len(calls[i].Choices[0].Logprobs.Content)
		if turn.PromptSource != record.PromptDerived || turn.NPrompt != calls[i].Usage.Prompt || turn.NSampled != len(ids) {
			t.Errorf("turn %d: prompt %s, %d + %d ids; the engine says %d + %d", i, turn.PromptSource, turn.NPrompt, turn.NSampled, calls[i].Usage.Prompt, len(ids))
		}
		// A character split over tokens, or a stop string, leaves fewer rows than ids.
		if want := rows != len(ids); (turn.Outcome == record.IncompleteCapture) != want {
			t.Errorf("turn %d: outcome %s with %d ids and %d rows", i, turn.Outcome, len(ids), rows)
			continue
		} else if want || turn.Discarded { // its answer came back in other tokens than it was sampled in, and the next turn went past it
			continue
		}
		whole++
		read := append(tap.tokens(t, calls[i].sent), ids...)
		if !slices.ContainsFunc(doc.Sequences, func(r export.Row) bool {
			return len(r.InputIDs) >= len(read) && slices.Equal(r.InputIDs[:len(read)], read)
		}) {
			t.Errorf("turn %d: no row begins with the ids that the engine read and sampled", i)
		}
	}
	if whole == 0 || !doc.Trainable {
		t.Errorf("%d turns are whole, trainable %v: %+v", whole, doc.Trainable, doc.Validation)
	}
}

// tap stands before an engine and keeps what it answered.
type tap struct {
	url, engine string
	mu          sync.Mutex
	calls       []llamaCall
}

// llamaCall is a whole answer of llama.cpp's, and the request for it.
type llamaCall struct {
	sent    []byte
	Choices []struct {
		Logprobs struct {
			Content []struct{} `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage struct {
		Prompt int `json:"prompt_tokens"`
	} `json:"usage"`
	Verbose struct {
		Tokens []int32 `json:"tokens"`
	} `json:"__verbose"`
}

func newTap(t *testing.T, engine string) *tap {
	t.Helper()
	target, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{engine: engine}
	type sent struct{}
	reverse := httputil.NewSingleHostReverseProxy(target)
	reverse.Transport = &http.Transport{DisableKeepAlives: true} // it ends connections after streams, unannounced
	reverse.ModifyResponse = func(res *http.Response) error {
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		var c llamaCall
		if json.Unmarshal(body, &c) == nil && len(c.Verbose.Tokens) > 0 {
			c.sent, _ = res.Request.Context().Value(sent{}).([]byte)
			x.mu.Lock()
			x.calls = append(x.calls, c)
			x.mu.Unlock()
		}
		return nil
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		reverse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sent{}, body)))
	}))
	t.Cleanup(srv.Close)
	x.url = srv.URL
	return x
}

// tokens asks the engine itself how it spells the prompt of a request.
func (x *tap) tokens(t *testing.T, request []byte) []int32 {
	t.Helper()
	var rendered struct {
		Prompt string `json:"prompt"`
	}
	x.ask(t, "/apply-template", request, &rendered)
	text, err := json.Marshal(map[string]any{"content": rendered.Prompt, "add_special": true, "parse_special": true})
	if err != nil {
		t.Fatal(err)
	}
	var spelled struct {
		Tokens []int32 `json:"tokens"`
	}
	x.ask(t, "/tokenize", text, &spelled)
	return spelled.Tokens
}

func (x *tap) ask(t *testing.T, path string, body []byte, answer any) {
	t.Helper()
	res, err := http.Post(x.engine+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v", path, res.StatusCode, err)
	}
}

// llamaCpp starts the engine and waits until its model is loaded.
func llamaCpp(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + free.Addr().String()
	_, port, err := net.SplitHostPort(free.Addr().String())
	if err := errors.Join(err, free.Close()); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, wiretest.Shared(t, "engines", "llamacpp.sh"), installed(t, "llamacpp"), port)
	go io.Copy(io.Discard, p.stdout) //nolint:errcheck // so that it never blocks
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		select {
		case <-p.ended:
			t.Fatal("llama.cpp ended before it answered")
		default:
		}
		if res, err := http.Get(url + "/health"); err == nil {
			res.Body.Close() //nolint:errcheck // only the status matters
			if res.StatusCode == http.StatusOK {
				return url
			}
		}
	}
	t.Fatal("llama.cpp does not answer")
	return ""
}

// TestLlamaCppIncomplete: a character split over tokens and a cut stop string have fewer logprob rows than ids. The client gets
// its answer, the turn says what is missing, and nothing of it is trained.
func TestLlamaCppIncomplete(t *testing.T) {
	engine := llamaCpp(t)
	p := serve(t, "--upstream", engine, "--data", t.TempDir())
	ask := func(session, more string) string {
		t.Helper()
		body := `{"messages":[{"role":"user","content":"Count from one to ten in words."}],"temperature":0,"max_tokens":40` + more + `}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+session)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var answer struct {
			Choices []struct {
				Message struct {
					Content string `json:"content"`
				} `json:"message"`
			} `json:"choices"`
		}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK || len(answer.Choices) != 1 {
			t.Fatalf("%d %v", res.StatusCode, err)
		}
		return answer.Choices[0].Message.Content
	}
	check := func(name, session string) {
		t.Helper()
		doc := p.close(t, session)
		if doc.Trainable || len(doc.Turns) != 1 || doc.Turns[0].Outcome != record.IncompleteCapture {
			t.Errorf("%s: trainable %v, turns %+v", name, doc.Trainable, doc.Turns)
		}
	}

	// A grammar leaves the engine one text: what it would choose by itself depends on the processor and on what it has cached.
	cut := p.session(t)
	if got := ask(cut, `,"grammar":"root ::= \"one two three four\"","stop":["o th"]`); got != "one tw" {
		t.Errorf("stopped at %q it says %q", "o th", got)
	}
	check("stop string", cut)

	split := p.session(t)
	if got := ask(split, `,"grammar":"root ::= \"ab🧿🧿\""`); got != "ab🧿🧿" {
		t.Errorf("with a grammar it says %q", got)
	}
	check("split character", split)
}
