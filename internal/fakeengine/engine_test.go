package fakeengine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"
)

// Cut by max_tokens, an answer ends with length; in the middle of a call the whole answer is raw text and the stream
// partial arguments.
func TestLength(t *testing.T) {
	e := New(Options{Reasoning: true, ChunkTokens: 2})
	body := func(n int, extra string) []byte {
		return fmt.Appendf(nil, `{"messages":[{"role":"user","content":"go"}],"tools":[%s],"seed":1,"max_completion_tokens":%d,"return_token_ids":true,"logprobs":true%s}`, bashTool, n, extra)
	}
	full := post(t, e, body(1000, ""))
	all := len(gjson.Get(full, "choices.0.token_ids").Array())
	sawRaw := false
	for n := 1; n < all; n++ {
		whole, stream := post(t, e, body(n, "")), post(t, e, body(n, streamed))
		choice := gjson.Get(whole, "choices.0")
		if got := len(choice.Get("token_ids").Array()); got != n || choice.Get("finish_reason").String() != "length" {
			t.Fatalf("%d of %d ids, %s", got, n, choice.Get("finish_reason"))
		}
		if ids, rows, usage, finish := count(stream); ids != n || rows != n || usage != fmt.Sprint(n) || finish != "length" {
			t.Fatalf("streamed %d ids, %d rows, usage %s, finish %s for %d", ids, rows, usage, finish, n)
		}
		reply := recording{body: stream, header: http.Header{"Content-Type": {"text/event-stream"}}}.reply()
		if content := choice.Get("message.content").String(); strings.Contains(content, "<tool_call>") {
			sawRaw = true
			if strings.Contains(reply.Content, "<tool_call>") {
				t.Fatalf("streamed raw: %+v", reply)
			}
		}
	}
	if !sawRaw {
		t.Error("never cut in a call")
	}
}

// A stop string is cut from the text, its ids stay; the stream says the same text.
func TestStopStrings(t *testing.T) {
	e := New(Options{})
	for _, c := range []struct{ extra, want, reason string }{
		{`"stop":"help"`, "Hello! How can I ", "help"},
		{`"stop":["zzz","w can I he"]`, "Hello! Ho", "w can I he"},
		{`"stop":["help"],"include_stop_str_in_output":true`, "Hello! How can I help", "help"},
		{`"stop":["nowhere"]`, "Hello! How can I help you today?", ""},
	} {
		body := func(extra string) []byte {
			return []byte(`{"messages":[{"role":"user","content":"hi"}],"temperature":0,"return_token_ids":true,` + c.extra + extra + `}`)
		}
		choice := gjson.Get(post(t, e, body("")), "choices.0")
		if got := choice.Get("message.content").String(); got != c.want || choice.Get("stop_reason").String() != c.reason {
			t.Errorf("%s: %q, %s", c.extra, got, choice.Get("stop_reason"))
		}
		stream := post(t, e, body(streamed))
		reply := recording{body: stream, header: http.Header{"Content-Type": {"text/event-stream"}}}.reply()
		if ids, _, _, _ := count(stream); reply.Content != c.want || ids != len(choice.Get("token_ids").Array()) {
			t.Errorf("%s: streamed %q with %d ids", c.extra, reply.Content, ids)
		}
	}
}

// The gap between the two best tokens halves at temperature 2 when logprobs are processed, and stays when they are raw.
func TestLogprobsMode(t *testing.T) {
	for mode, want := range map[LogprobsMode]float64{Processed: 2, Raw: 1} {
		e := New(Options{LogprobsMode: mode})
		gap := func(temperature string) float64 {
			answer := post(t, e, []byte(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"logprobs":true,"top_logprobs":2,"temperature":`+temperature+`}`))
			top := gjson.Get(answer, "choices.0.logprobs.content.0.top_logprobs")
			return top.Get("0.logprob").Num - top.Get("1.logprob").Num
		}
		if got := gap("1") / gap("2"); math.Abs(got-want) > 1e-5 {
			t.Errorf("%s: the gap shrinks by %v, want %v", mode, got, want)
		}
		if got := gap("0") / gap("1"); math.Abs(got-1) > 1e-5 {
			t.Errorf("%s: temperature 0 differs from 1 by %v", mode, got)
		}
	}
}

// Logprobs are numbers that a sampler could have given: at most 0, some exactly 0, the listed ones distinct tokens whose
// probabilities sum to at most 1.
func TestLogprobs(t *testing.T) {
	e := New(Options{})
	zeros, seconds := 0, 0
	for i := range 30 {
		answer := post(t, e, fmt.Appendf(nil, `{"messages":[{"role":"user","content":"hi %d"}],"logprobs":true,"top_logprobs":5}`, i))
		for _, row := range gjson.Get(answer, "choices.0.logprobs.content").Array() {
			top := row.Get("top_logprobs").Array()
			if len(top) != 5 || top[0].Get("logprob").Raw != row.Get("logprob").Raw {
				t.Fatalf("row %s", row.Raw)
			}
			sum := 0.0
			for _, alt := range top {
				if alt.Get("logprob").Num > 0 {
					t.Fatalf("row %s", row.Raw)
				}
				sum += math.Exp(alt.Get("logprob").Num)
			}
			if sum > 1+1e-6 {
				t.Fatalf("probabilities sum to %v: %s", sum, row.Raw)
			}
			if row.Get("logprob").Raw == "0.0" {
				zeros++
			}
			if top[1].Get("logprob").Num > row.Get("logprob").Num {
				seconds++
			}
		}
	}
	if zeros == 0 || seconds == 0 {
		t.Errorf("%d certain tokens, %d second-best ones", zeros, seconds)
	}
}

func TestContextWindow(t *testing.T) {
	e := New(Options{MaxModelLen: 60, Steps: -1})
	ask := func(text string) (int, string) {
		w := recording{method: "POST", path: "/v1/chat/completions", request: `{"messages":[{"role":"user","content":"` + text + `"}],"max_tokens":50}`}.play(e)
		return w.Code, w.Body.String()
	}
	if status, body := ask(strings.Repeat("word ", 100)); status != 400 || !strings.Contains(body, "maximum context length is 60 tokens") {
		t.Errorf("%d %s", status, body)
	}
	status, body := ask(strings.Repeat("word ", 45)) // prompt + max_tokens beyond the window is clamped
	if got := gjson.Get(body, "usage.total_tokens").Int(); status != 200 || got != 60 || gjson.Get(body, "choices.0.finish_reason").String() != "length" {
		t.Errorf("%d %s", status, body)
	}
}

// Forced prompt ids are used and returned as they are; bad ones are refused by name.
func TestForcedPrompt(t *testing.T) {
	e := New(Options{})
	body := func(forced string) recording {
		return recording{method: "POST", path: "/v1/chat/completions", request: `{"messages":[{"role":"user","content":"hi"}],"return_token_ids":true,"kv_transfer_params":{"prompt_token_ids":` + forced + `}}`}
	}
	if got := gjson.Get(body("[5,200100,7]").play(e).Body.String(), "prompt_token_ids").Raw; got != "[5,200100,7]" {
		t.Errorf("prompt %s", got)
	}
	for _, bad := range []string{"[]", "[-1]", "[9999999]", "[1.5]", `["a"]`, "7"} {
		w := body(bad).play(e)
		if w.Code != 400 || gjson.Get(w.Body.String(), "error.param").String() != "kv_transfer_params.prompt_token_ids" {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
}

// What /tokenize says of messages is the chat prompt, and of text what completions use.
func TestTokenizeAgrees(t *testing.T) {
	e := New(Options{})
	messages := `"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi 👋🏽"}],"tools":[` + bashTool + `]`
	play := func(path, body string) string {
		return recording{method: "POST", path: path, request: body}.play(e).Body.String()
	}
	prompt := gjson.Get(play("/v1/chat/completions", `{`+messages+`,"return_token_ids":true}`), "prompt_token_ids").Raw
	if got := gjson.Get(play("/tokenize", `{`+messages+`}`), "tokens").Raw; got != prompt {
		t.Errorf("tokenize says %s, chat %s", got, prompt)
	}
	text := gjson.Get(play("/detokenize", `{"tokens":`+prompt+`}`), "prompt")
	if !strings.HasPrefix(text.String(), "<|im_start|>system\ns\n\n# Tools") {
		t.Errorf("text %q", text.String())
	}
	for _, p := range []string{`"<|im_start|>user\nhi<|im_end|>"`, `[200100,5]`} {
		answer := play("/v1/completions", `{"prompt":`+p+`,"return_token_ids":true}`)
		if p[0] == '"' {
			p = gjson.Get(play("/tokenize", `{"prompt":`+p+`}`), "tokens").Raw
		}
		if got := gjson.Get(answer, "choices.0.prompt_token_ids").Raw; got != p {
			t.Errorf("completions used %s, want %s", got, p)
		}
	}
}

func TestCompletionsBatchAndStream(t *testing.T) {
	e := New(Options{})
	body := `{"prompt":["a","b c"],"n":2,"seed":3,"logprobs":1,"return_token_ids":true`
	whole := recording{method: "POST", path: "/v1/completions", request: body + `}`}.play(e).Body.String()
	choices := gjson.Get(whole, "choices").Array()
	if len(choices) != 4 || choices[0].Get("prompt_token_ids").Raw == choices[2].Get("prompt_token_ids").Raw {
		t.Fatalf("choices %s", whole)
	}
	stream := recording{method: "POST", path: "/v1/completions", request: body + streamed + `}`}.play(e).Body.String()
	texts, ids, prompts := make([]string, 4), make([][]string, 4), make([]string, 4)
	var usage gjson.Result
	for _, ev := range events(stream) {
		for _, c := range gjson.Get(ev, "choices").Array() {
			i := c.Get("index").Int()
			texts[i] += c.Get("text").String()
			for _, id := range c.Get("token_ids").Array() {
				ids[i] = append(ids[i], id.Raw)
			}
			if p := c.Get("prompt_token_ids"); p.IsArray() {
				prompts[i] += p.Raw
			}
		}
		if u := gjson.Get(ev, "usage"); u.IsObject() {
			usage = u
		}
	}
	for i, c := range choices {
		if texts[i] != c.Get("text").String() || "["+strings.Join(ids[i], ",")+"]" != c.Get("token_ids").Raw || prompts[i] != c.Get("prompt_token_ids").Raw {
			t.Errorf("choice %d: streamed %q %v %s, whole %s", i, texts[i], ids[i], prompts[i], c.Raw)
		}
	}
	if usage.Raw != gjson.Get(whole, "usage").Raw || usage.Get("prompt_tokens").Int() != 3 {
		t.Errorf("usage %s, whole %s", usage.Raw, gjson.Get(whole, "usage").Raw)
	}
}

func TestRequestIDIsEchoed(t *testing.T) {
	s := start(t, Options{})
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("X-Request-Id", "abc")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Truth("chatcmpl-abc"); !ok {
		t.Error("no answer chatcmpl-abc")
	}
}

// OpenAI's own client is content: plain, streamed, with tools through a whole run, with several choices.
func TestOpenAIClient(t *testing.T) {
	s := start(t, Options{Model: "policy", Reasoning: true})
	client := openai.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(0))
	ctx := context.Background()

	models, err := client.Models.List(ctx)
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "policy" {
		t.Fatalf("models %v, %v", models, err)
	}
	plain, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "policy", N: openai.Int(2), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
	})
	if err != nil || len(plain.Choices) != 2 || plain.Choices[0].Message.Content == plain.Choices[1].Message.Content {
		t.Fatalf("%v, %v", plain, err)
	}

	params := openai.ChatCompletionNewParams{
		Model:    "policy",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("s"), openai.UserMessage("go")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "bash", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}},
		})},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	var commands []string
	for turn := 1; ; turn++ {
		stream := client.Chat.Completions.NewStreaming(ctx, params)
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			if !acc.AddChunk(stream.Current()) {
				t.Fatal("the accumulator refused a chunk")
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		message := acc.Choices[0].Message
		if acc.Usage.CompletionTokens == 0 {
			t.Fatal("no usage")
		}
		params.Messages = append(params.Messages, message.ToParam())
		if len(message.ToolCalls) == 0 {
			if acc.Choices[0].FinishReason != "stop" || message.Content == "" {
				t.Fatalf("ended with %+v", acc.Choices[0])
			}
			break
		}
		call := message.ToolCalls[0]
		commands = append(commands, call.Function.Arguments)
		params.Messages = append(params.Messages, openai.ToolMessage("ok", call.ID))
		if turn > 9 {
			t.Fatal("no end")
		}
	}
	want := []string{`{"command": "echo step 1"}`, `{"command": "echo step 2"}`, `{"command": "echo step 3"}`}
	if !slices.Equal(commands, want) {
		t.Errorf("commands %q", commands)
	}
}

func BenchmarkStream(b *testing.B) {
	e := New(Options{})
	body := []byte(`{"messages":[{"role":"system","content":"` + strings.Repeat("You are a careful agent. ", 160) +
		`"},{"role":"user","content":"go"}],"tools":[` + bashTool + `],"return_token_ids":true,"logprobs":true,"stream":true,"stream_options":{"include_usage":true}}`)
	post(b, e, body) // loads the vocabulary
	b.ReportAllocs()
	for b.Loop() {
		post(b, e, body)
	}
}

func BenchmarkWhole(b *testing.B) {
	e := New(Options{})
	body := []byte(`{"messages":[{"role":"system","content":"` + strings.Repeat("You are a careful agent. ", 160) +
		`"},{"role":"user","content":"go"}],"tools":[` + bashTool + `],"return_token_ids":true,"logprobs":true}`)
	post(b, e, body) // loads the vocabulary
	b.ReportAllocs()
	for b.Loop() {
		post(b, e, body)
	}
}

// Whatever is sent, the engine answers: JSON, with a status that blames nobody else.
func FuzzChat(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi"}],"n":2,"seed":1,"stop":["x"],"max_tokens":5}`))
	f.Add([]byte(`{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}],"tools":[` + bashTool + `],"tool_choice":"required"}`))
	f.Add([]byte(`{"messages":"x","prompt":[[1],"a"],"kv_transfer_params":{"prompt_token_ids":[1]},"logprobs":3,"top_logprobs":20}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi"}],"prompt":"hi","n":2,"n":100000000000}`)) // the last one counts, and is refused
	e := New(Options{MaxModelLen: 4096})
	f.Fuzz(func(t *testing.T, body []byte) {
		if samples := samplesOf(body); samples > 64 && samples <= maxN || strings.Contains(string(body), "fault:") {
			return // slow by right
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} {
			w := recording{method: "POST", path: path, request: string(body)}.play(e)
			if w.Code >= 500 {
				t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
			}
			if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: no JSON: %s", path, w.Body)
			}
		}
	})
}

// samplesOf is how many answers a body asks for, each prompt of a list by itself. Of a name that comes twice the engine takes the
// last, so that the first says nothing.
func samplesOf(body []byte) int64 {
	n, prompts := int64(1), int64(1)
	gjson.ParseBytes(body).ForEach(func(key, v gjson.Result) bool {
		switch key.String() {
		case "n":
			n = v.Int()
		case "prompt":
			prompts = max(1, int64(len(v.Array())))
		}
		return true
	})
	if n > maxN {
		return n // refused, whatever else is there
	}
	return min(n*prompts, maxN)
}
