package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

var goodStream = chunks(`"delta":{"role":"assistant","content":"5"},"finish_reason":null`, `"delta":{},"finish_reason":"stop"`)

const goodWhole = `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"5"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`

// Outside of the listed edits the request's bytes reach the engine as they came.
func TestRequestBytesStay(t *testing.T) {
	body := "{ \"messages\" : [ {\"role\":\"user\",\"content\":\"caf\\u00e9 \\/ \\ud83d\\ude00 <b>\", \"x\" : 9007199254740993} ],\n\t\"temperature\":0.70,\"unknown\":{\"b\":1,\"a\":[1.50, 2e+3]},\"model\":\"gpt\",\"seed\":9007199254740993 }"
	up := newScript(t, answers(200, "application/json", goodWhole))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "served"})
	r.post("/v1/chat/completions", body)
	sent := string(up.got(0).body)
	want := strings.Replace(body, `"gpt"`, `"served"`, 1)
	i := strings.LastIndex(want, " }")
	if !strings.HasPrefix(sent, want[:i]) || !strings.HasSuffix(sent, " }") {
		t.Fatalf("sent %s", sent)
	}
	added := "{" + strings.TrimPrefix(strings.TrimSuffix(sent[i:], " }"), ",") + "}"
	var extra map[string]json.RawMessage
	if err := json.Unmarshal([]byte(added), &extra); err != nil {
		t.Fatalf("%v: %s", err, added)
	}
	call := r.only()
	listed := map[string]string{}
	for _, e := range call.Edits {
		listed[e.Param] = string(e.To)
		if e.Why == "" {
			t.Errorf("no reason for %s", e.Param)
		}
	}
	delete(listed, "model")
	for k, v := range extra {
		if listed[k] != string(v) {
			t.Errorf("%s: %s was added, listed is %s", k, v, listed[k])
		}
		delete(listed, k)
	}
	if len(listed) > 0 {
		t.Errorf("listed and not done: %v", listed)
	}
	if stored, err := r.store.Body(t.Context(), "s1", 1); err != nil || string(stored) != body {
		t.Errorf("stored %q, %v", stored, err)
	}
}

// The model has the harness's spelling in the answer and the served name upstream.
func TestModelName(t *testing.T) {
	up := newScript(t, answers(200, "application/json", strings.Replace(goodWhole, `"model":"m"`, `"model":"served"`, 1)))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "served"})
	_, body := r.post("/v1/chat/completions", simple)
	if string(body) != goodWhole || !strings.Contains(string(up.got(0).body), `"model":"served"`) {
		t.Errorf("sent %s, got %s", up.got(0).body, body)
	}
	if c := r.only(); c.Model != "m" || c.Served != "served" {
		t.Errorf("%s %s", c.Model, c.Served)
	}
}

// What is whole reaches the harness while the engine is still generating, also when the beginning of the next event came with it.
func TestLive(t *testing.T) {
	first, rest, _ := strings.Cut(goodStream, "\n\n")
	for name, ahead := range map[string]int{"an event": 0, "an event and a half": 20, "an event and all but the last byte of another": strings.Index(rest, "\n\n") + 1} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Type", sse)
				io.WriteString(w, first+"\n\n"+rest[:ahead])
				w.(http.Flusher).Flush()
				<-release
				io.WriteString(w, rest[ahead:])
			})
			r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
			req, _ := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(simpleStream))
			req.Header.Set("Authorization", "Bearer s1")
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			all := bufio.NewReader(resp.Body)
			line, err := all.ReadString('\n')
			if err != nil || !strings.Contains(line, `"content":"5"`) {
				t.Fatalf("%q, %v", line, err)
			}
			close(release) // only now does the engine go on
			if after, err := io.ReadAll(all); err != nil || !strings.HasSuffix(string(after), "data: [DONE]\n\n") {
				t.Errorf("%q, %v", after, err)
			}
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		})
	}
}

// A document read at once after [DONE] holds the turn.
func TestDurableBeforeDone(t *testing.T) {
	up := newScript(t, answers(200, sse, goodStream))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	for n := 1; n <= 30; n++ {
		req, _ := http.NewRequest(http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(simpleStream))
		req.Header.Set("Authorization", "Bearer s1")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		for br := bufio.NewReader(resp.Body); ; {
			line, err := br.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "data: [DONE]\n" {
				break
			}
		}
		if got := len(r.calls()); got != n {
			t.Fatalf("after [DONE] number %d the log holds %d calls", n, got)
		}
		resp.Body.Close()
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestRefusals(t *testing.T) {
	up := newScript(t, answers(200, "application/json", goodWhole))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { c.MaxBody = 1 << 16 }})
	if _, err := r.create("ended", nil).Close(t.Context(), session.Claim{}, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, body string
		header     []string
		status     int
		kind       string
	}{
		"unknown key":    {"/v1/chat/completions", simple, []string{"Authorization", "Bearer sk-real-secret"}, 401, "authentication_error"},
		"no key":         {"/v1/chat/completions", simple, []string{"Authorization", ""}, 401, "authentication_error"},
		"ended session":  {"/v1/chat/completions", simple, []string{"Authorization", "Bearer ended"}, 409, "invalid_request_error"},
		"malformed JSON": {"/v1/chat/completions", `{"model":"m",`, nil, 400, "invalid_request_error"},
		"no object":      {"/v1/completions", `[1]`, nil, 400, "invalid_request_error"},
		"nested deeply":  {"/v1/chat/completions", `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, nil, 400, "invalid_request_error"},
		"too large":      {"/v1/chat/completions", `{"a":"` + strings.Repeat("x", 1<<17) + `"}`, nil, 413, "invalid_request_error"},
		"bad encoding":   {"/v1/chat/completions", simple, []string{"Content-Encoding", "br"}, 415, "invalid_request_error"},
		"management":     {"/v1/load_lora_adapter", `{}`, nil, 404, "invalid_request_error"},
	} {
		resp, body := r.post(c.path, c.body, c.header...)
		var e struct {
			Error struct{ Message, Type string }
		}
		if err := json.Unmarshal(body, &e); err != nil || resp.StatusCode != c.status || e.Error.Type != c.kind || e.Error.Message == "" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		if strings.Contains(string(body), "sk-real-secret") {
			t.Errorf("%s: the key is in the answer", name)
		}
	}
	if up.count() != 0 {
		t.Errorf("%d requests reached the engine", up.count())
	}
	for _, call := range r.calls() {
		if call.Outcome != record.Rejected || call.Forwarded || len(call.Choices) != 0 {
			t.Errorf("recorded: %s, forwarded %v", call.Outcome, call.Forwarded)
		}
	}
}

func TestEngineErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		body    string
		want    int
		same    bool // the engine's own bytes
		outcome record.Outcome
	}{
		"bad request":     {400, `{"error":{"message":"bad","type":"BadRequestError","param":null,"code":400}}`, 400, true, record.Rejected},
		"not found":       {404, `{"error":{"message":"no model"}}`, 404, true, record.UpstreamError},
		"unprocessable":   {422, `{"error":{"message":"no"}}`, 422, true, record.Rejected},
		"too many":        {429, `{"error":{"message":"slow"}}`, 429, true, record.UpstreamError},
		"server error":    {500, `{"error":{"message":"boom"}}`, 500, true, record.UpstreamError},
		"wrong key":       {401, `{"error":"upstream-secret is wrong"}`, 502, false, record.UpstreamError},
		"redirect":        {307, ``, 502, false, record.UpstreamError},
		"no model answer": {200, `{"hello":1}`, 200, true, record.UpstreamError},
		"error in a 200":  {200, `{"error":{"message":"boom"}}`, 200, true, record.UpstreamError},
		"context window":  {400, `{"error":{"message":"This model's maximum context length is 8 tokens"}}`, 200, false, record.BudgetStop},
	} {
		t.Run(name, func(t *testing.T) {
			up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
				w.Header().Set("Retry-After", "0")
				w.Header().Set("Location", "http://127.0.0.1:1/")
				answers(c.status, "application/json", c.body)(w, r, n)
			})
			r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
			resp, body := r.post("/v1/chat/completions", simple)
			if resp.StatusCode != c.want || (string(body) == c.body) != c.same {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
			call := r.only()
			if call.Outcome != c.outcome || call.Outcome == record.UpstreamError && call.Detail == "" {
				t.Errorf("%s %q", call.Outcome, call.Detail)
			}
			if strings.Contains(string(body), "upstream-secret") {
				t.Error("the credential reached the harness")
			}
			if want := map[int]int{429: 3}[c.status]; want > 0 && up.count() != want {
				t.Errorf("sent %d times, want %d", up.count(), want)
			} else if want == 0 && up.count() != 1 {
				t.Errorf("sent %d times", up.count())
			}
		})
	}
}

func TestUnreachableEngine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	r := newRig(t, url, rigOptions{level: record.LevelText, model: "m"})
	resp, body := r.post("/v1/chat/completions", simple)
	if resp.StatusCode != 502 || !strings.Contains(string(body), "cannot be reached") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if c := r.only(); c.Outcome != record.UpstreamError || c.Forwarded {
		t.Errorf("%s, forwarded %v", c.Outcome, c.Forwarded)
	}
}

// A connection that the engine cuts before it answers is not tried again: the call may have been processed.
func TestNothingIsSentTwice(t *testing.T) {
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) { panic(http.ErrAbortHandler) })
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	if resp, body := r.post("/v1/chat/completions", simple); resp.StatusCode != 502 || up.count() != 1 {
		t.Errorf("%d %s, sent %d times", resp.StatusCode, body, up.count())
	}
}

func TestCutStream(t *testing.T) {
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		first, _, _ := strings.Cut(goodStream, "\n\n")
		io.WriteString(w, first+"\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	_, body, err := r.try("/v1/chat/completions", simpleStream)
	if err == nil || !strings.Contains(string(body), `"content":"5"`) {
		t.Errorf("%q %v", body, err)
	}
	if c := r.eventually(1)[0]; c.Outcome != record.UpstreamError || c.Status != 200 {
		t.Errorf("%s %d", c.Outcome, c.Status)
	}
}

// The bytes decide what an answer is, not its label.
func TestLabels(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, goodWhole)
	z.Close()
	for name, c := range map[string]struct {
		request, label, encoding, answer, want string
		conflict                               bool
	}{
		"stream labelled JSON": {simpleStream, "application/json", "", goodStream, goodStream, true},
		"JSON for a stream":    {simpleStream, "application/json", "", goodWhole, goodWhole, false},
		"JSON labelled stream": {simpleStream, sse, "", goodWhole, goodWhole, true},
		"compressed":           {simple, "application/json", "gzip", zipped.String(), goodWhole, false},
	} {
		up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			answers(200, c.label, c.answer)(w, r, n)
		})
		r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
		_, body := r.post("/v1/chat/completions", c.request)
		call := r.only()
		if string(body) != c.want || call.Outcome != record.Complete || (len(call.Remarks) > 0) != c.conflict {
			t.Errorf("%s: %s %s %v, got %q", name, call.Outcome, call.Detail, call.Remarks, body)
		}
		if string(call.Choices[0].Message) != `{"role":"assistant","content":"5"}` {
			t.Errorf("%s: %s", name, call.Choices[0].Message)
		}
	}
}

func TestBC19_compressed_requests(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, simple)
	z.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	bomb := enc.EncodeAll(make([]byte, 8<<20), nil)
	for name, c := range map[string]struct {
		encoding, body string
		status         int
	}{
		"gzip": {"gzip", zipped.String(), 200}, "zstd": {"zstd", string(enc.EncodeAll([]byte(simple), nil)), 200},
		"stacked": {"gzip, zstd", string(enc.EncodeAll(zipped.Bytes(), nil)), 200},
		"corrupt": {"zstd", "\x28\xb5\x2f\xfd\x00\x01", 400}, "bomb": {"zstd", string(bomb), 413},
	} {
		up := newScript(t, answers(200, "application/json", goodWhole))
		r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { c.MaxBody = 1 << 20 }})
		resp, body := r.post("/v1/chat/completions", c.body, "Content-Encoding", c.encoding)
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		if c.status == 200 && (string(up.got(0).body) != simple || up.got(0).header.Get("Content-Encoding") != "") {
			t.Errorf("%s: sent %q", name, up.got(0).body)
		}
	}
}

// Credentials of either side go nowhere else (BC41).
func TestBC41_credentials_and_identities(t *testing.T) {
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		w.Header().Set("Server", "engine")
		w.Header().Set("X-Request-Id", "upstream-id")
		answers(200, "application/json", goodWhole)(w, r, n)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	r.create("s2", nil)
	resp, _ := r.post("/v1/chat/completions?key=s1&x=1", simple, "X-Api-Key", "other-key", "Cookie", "a=b", "X-Session-Id", "S1", "X-Request-Id", "mine",
		"X-Goog-Api-Key", "s2", "User-Agent", "tool/1.2 (x)")
	got := up.got(0)
	if got.header.Get("Authorization") != "Bearer upstream-secret" || got.header.Get("X-Api-Key") != "" || got.header.Get("X-Goog-Api-Key") != "" || got.header.Get("Cookie") != "" ||
		got.path != "/v1/chat/completions?x=1" || got.header.Get("X-Session-Id") != "S1" || got.header.Get("User-Agent") != "tool/1.2 (x)" {
		t.Errorf("%s %v", got.path, got.header)
	}
	if id := got.header.Get("X-Request-Id"); id == "mine" || id == "" || resp.Header.Get("X-Request-Id") != id {
		t.Errorf("request id %q upstream, %q to the harness", id, resp.Header.Get("X-Request-Id"))
	}
	if len(resp.Header.Values("Server")) > 0 || len(resp.Header.Values("Date")) != 1 {
		t.Errorf("%v", resp.Header)
	}
	c := r.only()
	if c.HarnessSessionID != "S1" || c.Harness.Name != "tool" || c.Harness.Version != "1.2" || len(c.Conflicts) != 2 || c.Conflicts[1] != "s2" || strings.Contains(c.Conflicts[0], "other-key") {
		t.Errorf("%s %v %v", c.HarnessSessionID, c.Harness, c.Conflicts)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, secret := range []string{"upstream-secret", "other-key"} {
		filepath.Walk(r.dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(secret)) {
					found = append(found, secret+" in "+path)
				}
			}
			return nil
		})
	}
	if len(found) > 0 {
		t.Error(found)
	}
}

func TestRoutes(t *testing.T) {
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			answers(200, "application/json", `{"object":"list","data":[{"id":"m"}]}`)(w, r, n)
			return
		}
		answers(200, "application/json", goodWhole)(w, r, n)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { c.Relay = []string{"/v1/audio/speech"} }})
	for _, path := range []string{"/v1/chat/completions", "/chat/completions", "/s/s1/v1/chat/completions", "/s/s1/chat/completions"} {
		header := []string{"Authorization", "Bearer s1"}
		if strings.HasPrefix(path, "/s/") {
			header[1] = "Bearer dummy"
		}
		if resp, body := r.post(path, simple, header...); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if n := len(r.calls()); n != 4 {
		t.Errorf("%d calls recorded", n)
	}
	for _, path := range []string{"/v1/embeddings", "/embeddings", "/v1/rerank", "/v1/audio/speech"} {
		if resp, body := r.post(path, `{}`); resp.StatusCode != 200 || string(body) != goodWhole {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if n := len(r.calls()); n != 4 {
		t.Errorf("a relayed call was recorded: %d", n)
	}
	if resp, _ := r.post("/v1/embeddings", `{}`, "Authorization", "Bearer nobody"); resp.StatusCode != 401 {
		t.Errorf("embeddings without a session: %d", resp.StatusCode)
	}
	for path, want := range map[string]int{"/": 200, "/v1/models": 200, "/models": 200, "/v1/chat/completions": 405, "/v1/unknown": 404, "/s/s1/sessions": 404} {
		resp, err := http.Get(r.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || strings.HasSuffix(path, "models") && !strings.Contains(string(body), `"id":"m"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Two concurrent calls never overspend; what is over budget is answered in the caller's own form and is no turn.
func TestBudget(t *testing.T) {
	up := newScript(t, answers(200, sse, goodStream))
	five := 5
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", session: func(s *record.Session) { s.Spec.MaxModelCalls = &five }})
	var wg sync.WaitGroup
	var mu sync.Mutex
	stopped := 0
	for range 20 {
		wg.Go(func() {
			resp, body := r.post("/v1/chat/completions", simpleStream)
			if resp.StatusCode != 200 || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if strings.Contains(string(body), budgetText) {
				mu.Lock()
				stopped++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if up.count() != 5 || stopped != 15 {
		t.Errorf("%d calls forwarded, %d stopped", up.count(), stopped)
	}
	nodes := 0
	for _, c := range r.calls() {
		if c.Outcome.IsNode() {
			nodes++
		}
	}
	if nodes != 5 {
		t.Errorf("%d turns", nodes)
	}
	if _, body := r.post("/v1/chat/completions", simple); !strings.Contains(string(body), `"content":"Step budget exhausted; stopping."`) || !strings.Contains(string(body), `"finish_reason":"stop"`) {
		t.Errorf("whole: %s", body)
	}
}

func TestOutputCap(t *testing.T) {
	for asked, want := range map[string]string{
		``: `"max_tokens":100`, `,"max_tokens":64000`: `"max_tokens":100`, `,"max_tokens":7`: `"max_tokens":7`,
		`,"max_completion_tokens":200`: `"max_completion_tokens":100`,
	} {
		up := newScript(t, answers(200, "application/json", goodWhole))
		r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { c.MaxOutputTokens = 100 }})
		r.post("/v1/chat/completions", `{"model":"m","messages":[]`+asked+`}`)
		if sent := string(up.got(0).body); !strings.Contains(sent, want) || strings.Contains(sent, "64000") || strings.Count(sent, "tokens") != 1 {
			t.Errorf("asked %s, sent %s", asked, sent)
		}
	}
}

// A session that pins its sampling refuses requests that constrain logits.
func TestPinnedSampling(t *testing.T) {
	up := newScript(t, answers(200, "application/json", goodWhole))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m", session: func(s *record.Session) { s.Spec.Sampling = json.RawMessage(`{"temperature":0.8,"top_p":1}`) }})
	resp, body := r.post("/v1/chat/completions", `{"model":"m","messages":[],"response_format":{"type":"json_object"}}`)
	if resp.StatusCode != 400 || !strings.Contains(string(body), `"param":"response_format"`) || up.count() != 0 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	r.post("/v1/chat/completions", `{"model":"m","messages":[],"temperature":0.2,"response_format":{"type":"text"},"tool_choice":"auto","parallel_tool_calls":false,"tools":[{"type":"function","function":{"strict":true,"name":"f"}},{"type":"function","function":{"name":"g","strict":true}}]}`)
	sent := string(up.got(0).body)
	for _, part := range []string{`"temperature":0.8`, `"top_k":-1`, `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`} {
		if !strings.Contains(sent, part) {
			t.Errorf("no %s in %s", part, sent)
		}
	}
	if strings.Contains(sent, "parallel_tool_calls") {
		t.Errorf("sent %s", sent)
	}
}

// A session that evaluates is sampled as it asks; nothing else is changed.
func TestEvalSampling(t *testing.T) {
	up := newScript(t, answers(200, "application/json", goodWhole))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", session: func(s *record.Session) {
		s.Spec.Purpose, s.Spec.EvalSampling = record.PurposeEval, json.RawMessage(`{"temperature":0,"top_k":20}`)
	}})
	r.post("/v1/chat/completions", `{"model":"m","messages":[],"temperature":0.70,"top_p":0.9}`)
	if sent := string(up.got(0).body); sent != `{"model":"m","messages":[],"temperature":0,"top_p":0.9,"top_k":20}` {
		t.Errorf("sent %s", sent)
	}
}

// The harness hangs up: the engine stops within a second, streaming or not (BC39 A and B).
func TestBC39_hang_up(t *testing.T) {
	for _, body := range []string{simpleStream, simple} {
		stopped := make(chan bool, 1)
		reached := make(chan struct{})
		up := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if body == simpleStream {
				w.Header().Set("Content-Type", sse)
				first, _, _ := strings.Cut(goodStream, "\n\n")
				io.WriteString(w, first+"\n\n")
				w.(http.Flusher).Flush()
			}
			close(reached)
			select {
			case <-r.Context().Done():
				stopped <- true
			case <-time.After(20 * time.Second):
				stopped <- false
			}
		})
		r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
		ctx, hangUp := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer s1")
		transport := &http.Transport{}
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			if resp, err := transport.RoundTrip(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-reached
		time.Sleep(50 * time.Millisecond)
		hangUp()
		if !<-stopped {
			t.Error("the engine went on generating")
		}
		<-finished
		c := r.eventually(1)[0]
		if c.Outcome != record.ClientGone {
			t.Errorf("%s %s", c.Outcome, c.Detail)
		}
		// The same body again is a retry of the one that nobody waited for.
		if body == simpleStream && string(c.Choices[0].Message) != `{"role":"assistant","content":"5"}` {
			t.Errorf("the partial answer is recorded as %s", c.Choices[0].Message)
		}
	}
}

// A half-closed connection is no hang-up: the stream completes (BC39 C).
func TestBC39_half_close(t *testing.T) {
	release := make(chan struct{})
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		first, rest, _ := strings.Cut(goodStream, "\n\n")
		io.WriteString(w, first+"\n\n")
		w.(http.Flusher).Flush()
		<-release
		io.WriteString(w, rest)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s1\r\nContent-Length: %d\r\n\r\n%s", len(simpleStream), simpleStream)
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // the proxy notices, and asks whether somebody still reads
	close(release)
	rest, err := io.ReadAll(body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%q %v", rest, err)
	}
	if c := r.eventually(1)[0]; c.Outcome != record.Complete {
		t.Errorf("%s %s", c.Outcome, c.Detail)
	}
}

// There is no absolute limit; the idle limits roll with each byte (BC40, on a scaled clock).
func TestBC40_idle_limits(t *testing.T) {
	const limit = 400 * time.Millisecond
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		switch n {
		case 0: // longer than any limit in all, never idle for as long
			w.Header().Set("Content-Type", sse)
			for _, e := range strings.SplitAfter(chunks(strings.Split(strings.Repeat(`"delta":{"content":"x"},"finish_reason":null|`, 10)+`"delta":{},"finish_reason":"stop"`, "|")...), "\n\n") {
				io.WriteString(w, e)
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		case 1: // headers at once, then silence for ever
			w.Header().Set("Content-Type", sse)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case 2: // no byte at all
			<-r.Context().Done()
		}
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", engine: idle(limit)})
	if _, body := r.post("/v1/chat/completions", simpleStream); !strings.HasSuffix(string(body), "[DONE]\n\n") {
		t.Errorf("a long stream was cut: %q", body)
	}
	if _, _, err := r.try("/v1/chat/completions", simpleStream); err == nil {
		t.Error("silence ended like a good answer")
	}
	if resp, body, err := r.try("/v1/chat/completions", simple); err != nil || resp.StatusCode != 502 || !strings.Contains(string(body), "idle limit") {
		t.Errorf("%v %s", err, body)
	}
	calls := r.eventually(3)
	if calls[0].Outcome != record.Complete || calls[1].Outcome != record.UpstreamError || calls[2].Outcome != record.UpstreamError {
		t.Errorf("%s %s %s", calls[0].Outcome, calls[1].Outcome, calls[2].Outcome)
	}
}

// A cancelled session aborts its calls upstream at once; later calls get 409.
func TestCancel(t *testing.T) {
	reached := make(chan struct{})
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		first, _, _ := strings.Cut(goodStream, "\n\n")
		io.WriteString(w, first+"\n\n")
		w.(http.Flusher).Flush()
		close(reached)
		<-r.Context().Done()
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	result := make(chan error, 1)
	go func() {
		_, _, err := r.try("/v1/chat/completions", simpleStream)
		result <- err
	}()
	<-reached
	time.Sleep(100 * time.Millisecond) // so that the harness has the beginning of its answer
	live, err := r.sessions.Get("s1")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := live.Cancel(t.Context(), "enough")
	if err != nil || rec.Status != record.SessionCanceled || *rec.Outcome.Error != "enough" {
		t.Errorf("%v %+v", err, rec)
	}
	if err := <-result; err == nil {
		t.Error("a cancelled stream ended like a good one")
	}
	if c := r.only(); c.Outcome != record.Cancelled {
		t.Errorf("%s %s", c.Outcome, c.Detail)
	}
	if resp, _ := r.post("/v1/chat/completions", simple); resp.StatusCode != 409 {
		t.Errorf("%d", resp.StatusCode)
	}
}

// slowLog is a store whose disk hangs, or fails.
type slowLog struct {
	Log
	release chan struct{}
	err     error
}

func (s *slowLog) Append(c *record.Call) <-chan error {
	out := make(chan error, 1)
	go func() {
		<-s.release
		if s.err != nil {
			out <- s.err
			return
		}
		out <- <-s.Log.Append(c)
	}()
	return out
}

// A disk that hangs holds nobody; one that fails marks the session; the harness notices neither.
func TestSlowAndFailingDisk(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no space left on device")} {
		log := &slowLog{release: make(chan struct{}), err: failure}
		up := newScript(t, answers(200, sse, goodStream))
		r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) {
			log.Log, c.Log, c.Patience = c.Log, log, 100*time.Millisecond
		}})
		if _, body := r.post("/v1/chat/completions", simpleStream); string(body) != goodStream {
			t.Errorf("the harness got %q", body)
		}
		if r.server.Late() != 1 {
			t.Errorf("late: %d", r.server.Late())
		}
		close(log.release)
		for r.server.Late() != 0 {
			time.Sleep(5 * time.Millisecond)
		}
		live, err := r.sessions.Get("s1")
		if err != nil {
			t.Fatal(err)
		}
		if marked := live.Record().CaptureFailed; (marked != "") != (failure != nil) {
			t.Errorf("failure %v, marked %q", failure, marked)
		}
		if n := len(r.calls()); (n == 1) != (failure == nil) {
			t.Errorf("failure %v, %d calls recorded", failure, n)
		}
	}
}

// An engine that is down when the session is created is measured when it first answers.
func TestMeasuredLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	r := newRig(t, "http://"+addr, rigOptions{})
	if resp, _ := r.post("/v1/chat/completions", simple); resp.StatusCode != 502 {
		t.Errorf("%d", resp.StatusCode)
	}
	if live, _ := r.sessions.Get("s1"); live.Record().CaptureLevel != "" {
		t.Errorf("level %s before anything was measured", live.Record().CaptureLevel)
	}
	r.startEngine(addr)
	time.Sleep(engine.RetryMeasure)
	if resp, body := r.post("/v1/chat/completions", simple); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if live, _ := r.sessions.Get("s1"); live.Record().CaptureLevel != record.LevelTokens || live.Record().Engine.Model != "fake-model" {
		t.Errorf("%+v", live.Record().Engine)
	}
}
