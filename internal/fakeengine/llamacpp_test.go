package fakeengine

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"captureproxy/internal/wiretest"
)

// settings differ with every option of a request; that is no matter of shape.
var settings = regexp.MustCompile(`"generation_settings":\{.*?"lora":\[\]\}`)

func llamaShape(t *testing.T, text string) string {
	t.Helper()
	return shape(t, settings.ReplaceAllString(text, `"generation_settings":{}`))
}

// Whole answers, chunks and refusals have the shape that the real server gave them.
func TestLlamaMatchesRecordings(t *testing.T) {
	skipped := map[string]bool{
		"a_eos0":                 true, // a biased empty answer, which no script gives
		"b_usage":                true, // timings_per_token, which is not played
		"f_ctx_mid":              true, // an answer that fills the window, as TestLlamaWindow has it
		"c_toolcall_st_1":        true, // a model that talks nonsense
		"f_401":                  true, // needs a key, as TestLlamaRoutes has it
		"c_grammar":              true, // the end among the alternatives, by chance
		"c_ns_requiredNone_qwen": true, // the recorder cut the answer short
		"f_overflow":             true, // the recorder cut the requests short; TestLlamaWindow has them
		"f_overflow_stream":      true,
		"h_grammar_post":         true, // post_sampling_probs, which is not played
	}
	compared := 0
	for _, x := range wiretest.All(t, "llamacpp") {
		if x.Path != chatPath || skipped[x.Name] {
			continue
		}
		compared++
		t.Run(x.Name, func(t *testing.T) {
			r := recording{name: x.Name, method: x.Method, path: x.Path, request: string(x.Request), header: http.Header{"Content-Type": {x.Header["content-type"]}}, body: string(x.Body)}
			e := New(Options{Wire: WireLlamaCpp, MaxModelLen: 4096, Script: func(*Request, uint64) Reply {
				reply := r.reply()
				if stop := gjson.Get(r.request, "stop.0"); stop.Exists() {
					reply = Reply{Content: "The capital of France is Paris."}
				}
				if strings.Contains(r.body, `"finish_reason":"length"`) { // other tokens, but cut off as well
					reply.Content += strings.Repeat(" and more", 60)
				}
				return reply
			}})
			w := r.play(e)
			if w.Code != x.Status {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if !r.streamed() {
				if got, want := llamaShape(t, w.Body.String()), llamaShape(t, r.body); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				return
			}
			want := map[string]bool{}
			for _, ev := range events(r.body) {
				if ev != "[DONE]" {
					want[llamaShape(t, ev)] = true
				}
			}
			for _, ev := range events(w.Body.String()) {
				if ev == "[DONE]" {
					continue
				}
				if s := llamaShape(t, ev); !want[s] {
					t.Errorf("a chunk that llama.cpp never sent: %s", s)
				}
			}
		})
	}
	if compared < 14 {
		t.Errorf("only %d recordings compared", compared)
	}
}

const llamaAll = `,"logprobs":true,"top_logprobs":1,"verbose":true,"return_tokens":true`

// __verbose holds every sampled id; there are rows for all of them but the parts of a character and what a stop string cut.
func TestLlamaIDs(t *testing.T) {
	for _, c := range []struct {
		name, content, more string
		rows                func(ids int) bool
	}{
		{"plain", "Plain words.", "", func(ids int) bool { return false }},
		{"split character", "A 👋🏽 hand.", "", func(ids int) bool { return true }},
		{"stop string", "Plain words.", `,"stop":["in wo"]`, func(ids int) bool { return true }},
	} {
		e := New(Options{Wire: WireLlamaCpp, Script: func(*Request, uint64) Reply { return Reply{Content: c.content} }})
		whole := gjson.Parse(answered(t, e, chatPath, toolTask(llamaAll+c.more)))
		truth := truthOf(t, e, whole.Get("id").String())
		ids, rows := whole.Get("__verbose.tokens"), whole.Get("choices.0.logprobs.content").Array()
		if ids.Raw != spelled(truth.Sampled[0]) {
			t.Errorf("%s: ids %s", c.name, ids.Raw)
		}
		if n := len(truth.Sampled[0]); c.rows(n) != (len(rows) < n) {
			t.Errorf("%s: %d rows for %d ids", c.name, len(rows), n)
		}
		if got := whole.Get("usage.completion_tokens").Int(); got != int64(len(truth.Sampled[0])) {
			t.Errorf("%s: usage %d", c.name, got)
		}
	}
}

// The template and tokenizer routes give the prompt that chat uses, special tokens spelled in messages included.
func TestLlamaPromptIsDerivable(t *testing.T) {
	e := New(Options{Wire: WireLlamaCpp, Reasoning: true})
	for _, body := range []string{
		toolTask(""), `{"messages":[{"role":"system","content":"\n\nBe terse."},{"role":"user","content":"say <|im_end|> now 👋🏽"}]}`,
	} {
		text := gjson.Get(answered(t, e, "/apply-template", body), "prompt").String()
		ids := gjson.Get(answered(t, e, "/tokenize", string(appendString([]byte(`{"add_special":true,"parse_special":true,"content":`), text))+"}"), "tokens").Raw
		truth := truthOf(t, e, gjson.Get(answered(t, e, chatPath, body), "id").String())
		if ids != spelled(truth.Prompt) {
			t.Errorf("derived %s, used %v", ids, truth.Prompt)
		}
		if got := gjson.Get(answered(t, e, "/detokenize", `{"tokens":`+ids+`}`), "content").String(); got != text {
			t.Errorf("detokenized %q", got)
		}
	}
}

// A conversation that comes back unbroken extends what was sampled.
func TestLlamaPromptExtends(t *testing.T) {
	e := New(Options{Wire: WireLlamaCpp, Reasoning: true, Steps: 4})
	messages := `{"role":"user","content":"go"}`
	var before []int32
	for range 5 {
		whole := gjson.Parse(answered(t, e, chatPath, `{"tools":[`+bashTool+`],"messages":[`+messages+`]}`))
		truth := truthOf(t, e, whole.Get("id").String())
		if !strings.HasPrefix(spelled(truth.Prompt), strings.TrimSuffix(spelled(before), "]")) {
			t.Fatalf("%v does not extend %v", truth.Prompt, before)
		}
		before = append(append([]int32(nil), truth.Prompt...), truth.Sampled[0]...)
		messages += "," + whole.Get("choices.0.message").Raw + `,{"role":"tool","content":"ok"}`
	}
}

func TestLlamaWindow(t *testing.T) {
	e := New(Options{Wire: WireLlamaCpp, MaxModelLen: 60})
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 100) + `"}]`
	for _, more := range []string{"}", streamed + "}"} {
		got := askFor(e, chatPath, body+more)
		problem := gjson.Get(got.Body.String(), "error")
		if got.Code != 400 || problem.Get("type").String() != "exceed_context_size_error" || problem.Get("n_ctx").Int() != 60 || problem.Get("n_prompt_tokens").Int() < 100 {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
	whole := answered(t, e, chatPath, `{"messages":[{"role":"user","content":"`+strings.Repeat("word ", 45)+`"}]}`)
	if got := gjson.Get(whole, "choices.0.finish_reason").String(); got != "length" {
		t.Errorf("finish %s", got)
	}
}

func TestLlamaRoutes(t *testing.T) {
	e := New(Options{Wire: WireLlamaCpp, Key: "k", Model: "lab-model"})
	for _, name := range []string{"f_401", "j_v1_models", "j_health", "d_pieces"} {
		x := wiretest.Load(t, "llamacpp", name)
		header := []string{"Authorization", "Bearer k"}
		if x.Status == 401 {
			header = nil
		}
		got := askFor(e, x.Path, strings.TrimSpace(string(x.Request)), header...)
		if got.Code != x.Status {
			t.Errorf("%s: status %d: %s", name, got.Code, got.Body)
		}
		for key := range gjson.ParseBytes(x.Body).Map() {
			if !gjson.Get(got.Body.String(), key).Exists() {
				t.Errorf("%s: no %s in %s", name, key, got.Body)
			}
		}
	}
}
