package fakeengine

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// askFor posts a body to an engine, with headers as name and value in turn.
func askFor(e *Engine, path, body string, header ...string) *httptest.ResponseRecorder {
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

// answered is askFor with a 200.
func answered(t *testing.T, e *Engine, path, body string, header ...string) string {
	t.Helper()
	w := askFor(e, path, body, header...)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// truthOf returns what an answer really was.
func truthOf(t *testing.T, e *Engine, id string) Truth {
	t.Helper()
	truth, ok := e.Truth(id)
	if !ok {
		t.Fatalf("no truth of %q", id)
	}
	return truth
}

func spelled(ids []int32) string { return string(appendIDs(nil, ids)) }

const chatPath = "/v1/chat/completions"

// toolTask is a chat body whose answer is a thought, a text and a call.
func toolTask(more string) string {
	return `{"model":"fake-model","messages":[{"role":"user","content":"go 👋🏽"}],"seed":5,"tools":[` + bashTool + `]` + more + `}`
}

func rowLogprobs(rows gjson.Result) string {
	var b []byte
	for _, row := range rows.Array() {
		b = appendLogprob(append(b, ' '), row.Get("logprob").Num)
	}
	return string(b)
}

func trueLogprobs(logprobs []float64) string {
	var b []byte
	for _, v := range logprobs {
		b = appendLogprob(append(b, ' '), v)
	}
	return string(b)
}

// SGLang gives the ids of a stream in one late chunk, under a name of its own where that was asked for; whole answers give
// them in the choice. Both are what was sampled.
func TestSGLangIDs(t *testing.T) {
	e := New(Options{Wire: WireSGLang, Reasoning: true})
	const ids = `,"logprobs":true,"return_input_ids_in_sglext":true,"return_output_ids_in_sglext":true`
	for _, framed := range []string{"", "1"} {
		stream := answered(t, e, chatPath, toolTask(ids+streamed), "X-Sglext-Ids-Framed", framed)
		if got := strings.Contains(stream, "event: sglext_ids\ndata: {"); got != (framed == "1") {
			t.Errorf("framed %q: %s", framed, stream)
		}
		all := events(stream)
		late := gjson.Parse(all[len(all)-3])
		truth := truthOf(t, e, late.Get("id").String())
		if late.Get("choices.#").Int() != 0 || late.Get("sglext.input_ids").Raw != spelled(truth.Prompt) || late.Get("sglext.output_ids.0").Raw != spelled(truth.Sampled[0]) {
			t.Errorf("late chunk %s", late.Raw)
		}
		logprobs, finishes := "", 0
		for _, ev := range all[:len(all)-1] {
			choice := gjson.Get(ev, "choices.0")
			logprobs += rowLogprobs(choice.Get("logprobs.content"))
			if choice.Exists() && !choice.Get("delta.reasoning_content").Exists() {
				t.Errorf("a delta without reasoning_content: %s", ev)
			}
			if choice.Get("finish_reason").String() != "" {
				finishes++
			}
			if choice.Get("token_ids").Exists() {
				t.Errorf("ids in a chunk: %s", ev)
			}
		}
		if want := trueLogprobs(truth.Logprobs[0]); logprobs != want || finishes != 1 {
			t.Errorf("%d finishes, logprobs %s, want %s", finishes, logprobs, want)
		}
	}
	whole := gjson.Parse(answered(t, e, chatPath, toolTask(ids+`,"return_token_ids":true,"return_meta_info":true`)))
	truth, choice := truthOf(t, e, whole.Get("id").String()), whole.Get("choices.0")
	for path, want := range map[string][]int32{"prompt_token_ids": truth.Prompt, "response_token_ids": truth.Sampled[0]} {
		if got := choice.Get(path).Raw; got != spelled(want) {
			t.Errorf("%s is %s", path, got)
		}
	}
	if whole.Get("sglext.output_ids.0").Raw != spelled(truth.Sampled[0]) || choice.Get("message.tool_calls.0.function.name").String() != "bash" {
		t.Errorf("answer %s", whole.Raw)
	}
}

// The older version gives ids of whole answers only, as rows of the meta information, and has no other way.
func TestSGLangOld(t *testing.T) {
	e := New(Options{Wire: WireSGLangOld, Reasoning: true})
	const all = `,"logprobs":true,"return_token_ids":true,"return_input_ids_in_sglext":true,"return_output_ids_in_sglext":true,"input_ids":[1,2]`
	whole := gjson.Parse(answered(t, e, chatPath, toolTask(all+`,"return_prompt_token_ids":true,"return_meta_info":true`)))
	truth := truthOf(t, e, whole.Get("id").String())
	var ids []int32
	for _, row := range whole.Get("choices.0.meta_info.output_token_logprobs").Array() {
		ids = append(ids, int32(row.Get("1").Int()))
	}
	if spelled(ids) != spelled(truth.Sampled[0]) || whole.Get("choices.0.prompt_token_ids").Raw != spelled(truth.Prompt) {
		t.Errorf("answer %s", whole.Raw)
	}
	if whole.Get("sglext").Exists() || whole.Get("choices.0.response_token_ids").Exists() || len(truth.Prompt) == 2 {
		t.Errorf("it knows too much: %s", whole.Raw)
	}
	rows := 0
	stream := answered(t, e, chatPath, toolTask(`,"logprobs":true`+streamed))
	for _, ev := range events(stream) {
		rows += len(gjson.Get(ev, "choices.0.logprobs.content").Array())
	}
	if n := len(truth.Sampled[0]); rows == 0 || rows >= n {
		t.Errorf("%d rows streamed of %d: those that the parser holds should be lost", rows, n)
	}
}

func TestSGLangRefusesWholeOnlyParametersInAStream(t *testing.T) {
	for _, w := range []Wire{WireSGLang, WireSGLangOld} {
		e := New(Options{Wire: w})
		for _, name := range wholeOnly {
			got := askFor(e, chatPath, toolTask(`,"`+name+`":true`+streamed))
			body := gjson.Parse(got.Body.String())
			if got.Code != 400 || body.Get("object").String() != "error" || !strings.Contains(body.Get("message").String(), name) {
				t.Errorf("%s %s: %d %s", w, name, got.Code, got.Body)
			}
		}
	}
}

func TestSGLangForcedPrompt(t *testing.T) {
	e := New(Options{Wire: WireSGLang})
	body := toolTask(`,"input_ids":[5,200100,7],"return_token_ids":true`)
	if got := gjson.Get(answered(t, e, chatPath, body), "choices.0.prompt_token_ids").Raw; got != "[5,200100,7]" {
		t.Errorf("prompt %s", got)
	}
}

// A prompt that does not fit is refused, and so is one that would not with its answer: SGLang does not clamp.
func TestSGLangWindow(t *testing.T) {
	e := New(Options{Wire: WireSGLang, MaxModelLen: 60})
	for text, want := range map[string]string{strings.Repeat("word ", 100): "is longer than the model's context length", "hi": "Requested token count exceeds"} {
		got := askFor(e, chatPath, fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":59}`, text))
		if got.Code != 400 || !strings.Contains(gjson.Get(got.Body.String(), "message").String(), want) {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
}

func TestSGLangRoutes(t *testing.T) {
	e := New(Options{Wire: WireSGLang})
	if got := gjson.Get(answered(t, e, "/model_info", ""), "weight_version").String(); got != "default" {
		t.Errorf("weights %q", got)
	}
	if got := gjson.Get(answered(t, e, "/v1/models", ""), "data.0.owned_by").String(); got != "sglang" {
		t.Errorf("owner %q", got)
	}
	prompt := gjson.Get(answered(t, e, chatPath, toolTask(`,"return_token_ids":true`)), "choices.0.prompt_token_ids").Raw
	if got := gjson.Get(answered(t, e, "/tokenize", toolTask("")), "tokens").Raw; got != prompt {
		t.Errorf("tokenize says %s, chat %s", got, prompt)
	}
	text := gjson.Get(answered(t, e, "/detokenize", `{"tokens":`+prompt+`}`), "text").String()
	if strings.Contains(text, "<|im_start|>") || !strings.Contains(text, "go 👋🏽") {
		t.Errorf("text %q", text)
	}
	if got := askFor(New(Options{Wire: WireSGLang, Key: "k"}), chatPath, toolTask("")); got.Code != 401 || got.Body.String() != `{"error":"Unauthorized"}` {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// Before 0.13 vLLM lost the ids that a parser held back, and gave rows only where a number of alternatives was named.
func TestOldVLLM(t *testing.T) {
	e := New(Options{Wire: WireVLLMOld, Reasoning: true})
	whole := gjson.Parse(answered(t, e, chatPath, toolTask(`,"return_token_ids":true,"logprobs":true,"kv_transfer_params":{"prompt_token_ids":[1]}`)))
	truth := truthOf(t, e, whole.Get("id").String())
	choice := whole.Get("choices.0")
	if choice.Get("token_ids").Raw != spelled(truth.Sampled[0]) || choice.Get("logprobs").Raw != "null" || choice.Get("message.reasoning_content").String() == "" || len(truth.Prompt) == 1 {
		t.Errorf("answer %s", whole.Raw)
	}
	stream := answered(t, e, chatPath, toolTask(`,"return_token_ids":true,"logprobs":true,"top_logprobs":0`+streamed))
	if ids, rows, _, _ := count(stream); ids == 0 || ids >= len(truth.Sampled[0]) || rows != ids {
		t.Errorf("%d ids and %d rows streamed of %d", ids, rows, len(truth.Sampled[0]))
	}
	if got := askFor(e, chatPath, `{"model":"other","messages":[{"role":"user","content":"hi"}]}`); got.Code != 404 || gjson.Get(got.Body.String(), "object").String() != "error" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// Completions give ids in the choice, from 0.5.17 on, streamed too.
func TestSGLangCompletions(t *testing.T) {
	const body = `{"model":"any","prompt":[5,200100,7],"return_token_ids":true,"logprobs":1`
	for wire, want := range map[Wire]string{WireSGLang: "[5,200100,7]", WireSGLangOld: "null"} {
		e := New(Options{Wire: wire})
		if got := gjson.Get(answered(t, e, "/v1/completions", body+"}"), "choices.0.prompt_token_ids").Raw; got != want {
			t.Errorf("%s: prompt %s", wire, got)
		}
		first := events(answered(t, e, "/v1/completions", body+streamed+"}"))[0]
		if got := gjson.Get(first, "choices.0.prompt_token_ids").Raw; got != want {
			t.Errorf("%s: streamed prompt %s", wire, got)
		}
	}
}
