package fakeengine

import (
	"context"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"
)

// Each refusal is in OpenAI's words, one at a time, with the parameter in its own field where OpenAI gives it.
func TestOpenAIRefusals(t *testing.T) {
	const say = `{"model":"fake-model","messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct{ more, param, message string }{
		{`,"return_token_ids":true`, "return_token_ids", "Unknown parameter: 'return_token_ids'."},
		{`,"min_p":0.1`, "", "Unrecognized request argument supplied: min_p"},
		{`,"top_k":5`, "", "Unrecognized request argument supplied: top_k"},
		{`,"repetition_penalty":1`, "", "Unrecognized request argument supplied: repetition_penalty"},
		{`,"max_tokens":5`, "max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."},
		{`,"max_tokens":5,"max_completion_tokens":5`, "max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."},
		{`,"temperature":0.7`, "temperature", "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."},
		{`,"logprobs":true,"return_token_ids":true`, "logprobs", "Unsupported parameter: 'logprobs' is not supported with this model."},
		{`,"tools":[]`, "tools", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{`,"stream_options":{"include_usage":true}`, "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."},
		{`,"temperature":1,"top_p":1,"logprobs":false,"max_completion_tokens":9`, "", ""},
	} {
		got := askFor(New(Options{Wire: WireOpenAI}), chatPath, say+c.more+"}")
		bad := gjson.Get(got.Body.String(), "error")
		if bad.Get("message").String() != c.message || bad.Get("param").String() != c.param || (c.message == "") != (got.Code == 200) {
			t.Errorf("%s: %d %s", c.more, got.Code, got.Body)
		}
	}
	e := New(Options{Wire: WireOpenAI, ToolsNeedNoReasoning: true})
	if got := askFor(e, chatPath, toolTaskFor("")); gjson.Get(got.Body.String(), "error.param").String() != "reasoning_effort" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	answered(t, e, chatPath, toolTaskFor(`,"reasoning_effort":"none"`))
	if got := askFor(New(Options{Wire: WireOpenAI}), chatPath, `{"model":"other","messages":[]}`); got.Code != 404 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// toolTaskFor is toolTask for an endpoint that takes nothing unusual.
func toolTaskFor(more string) string {
	return `{"model":"fake-model","messages":[{"role":"user","content":"go"}],"tools":[` + bashTool + `]` + more + `}`
}

func TestOpenAIKey(t *testing.T) {
	e := New(Options{Wire: WireOpenAI, Key: "sk-right"})
	for key, want := range map[string]int{"": 401, "Bearer sk-wrong": 401, "Bearer sk-right": 200} {
		if got := askFor(e, "/v1/models", "", "Authorization", key); got.Code != want || strings.Contains(got.Body.String(), "sk-") {
			t.Errorf("%q: %d %s", key, got.Code, got.Body)
		}
	}
}

// chatBase is where a wire has its chat endpoint.
func chatBase(w Wire) string {
	if w == WireGoogle {
		return "/v1beta/openai"
	}
	return "/v1"
}

func TestRetryAfter(t *testing.T) {
	for _, w := range Wires() {
		got := askFor(New(Options{Wire: w}), chatBase(w)+"/chat/completions", toolTaskFor(""), "X-Fake-Fault", "status 429 7", "Authorization", "Bearer k")
		if got.Code != 429 || got.Header().Get("Retry-After") != "7" || !gjson.Valid(got.Body.String()) {
			t.Errorf("%s: %d %v %s", w, got.Code, got.Header(), got.Body)
		}
	}
}

// The official SDK reads whole answers and streams of every chat endpoint, and finds the same in both.
func TestOpenAISDKReadsEveryWire(t *testing.T) {
	for _, w := range Wires() {
		t.Run(string(w), func(t *testing.T) {
			srv, err := Start(Options{Wire: w, Reasoning: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := srv.Close(); err != nil {
					t.Error(err)
				}
			}()
			client := openai.NewClient(option.WithBaseURL(srv.URL+chatBase(w)), option.WithAPIKey("k"), option.WithMaxRetries(0))
			seed := openai.Int(3)
			params := openai.ChatCompletionNewParams{
				Model: "fake-model", Seed: seed,
				Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("go 👋🏽")},
				Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
					Name: "bash", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}},
				})},
			}
			call := func(m openai.ChatCompletionMessage) string {
				return m.ToolCalls[0].Function.Name + m.ToolCalls[0].Function.Arguments
			}
			ctx := context.Background()
			whole, err := client.Chat.Completions.New(ctx, params)
			if err != nil {
				t.Fatal(err)
			}
			params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			stream := client.Chat.Completions.NewStreaming(ctx, params)
			var acc openai.ChatCompletionAccumulator
			for stream.Next() {
				if !acc.AddChunk(stream.Current()) {
					t.Fatalf("a chunk that does not fit: %s", stream.Current().RawJSON())
				}
			}
			closeStream(t, stream)
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			a, b := whole.Choices[0], acc.Choices[0]
			if a.Message.Content != b.Message.Content || a.FinishReason != "tool_calls" || b.FinishReason != a.FinishReason {
				t.Errorf("%q and %q, %s and %s", a.Message.Content, b.Message.Content, a.FinishReason, b.FinishReason)
			}
			if len(a.Message.ToolCalls) != 1 || len(b.Message.ToolCalls) != 1 || call(a.Message) != call(b.Message) {
				t.Errorf("calls %+v and %+v", a.Message.ToolCalls, b.Message.ToolCalls)
			}
			if whole.Usage.CompletionTokens == 0 || whole.Usage.CompletionTokens != acc.Usage.CompletionTokens || whole.Usage.PromptTokens != acc.Usage.PromptTokens {
				t.Errorf("usage %+v and %+v", whole.Usage, acc.Usage)
			}
		})
	}
}

// Rows of OpenAI's are those of the visible text; there are no ids anywhere.
func TestOpenAILogprobs(t *testing.T) {
	e := New(Options{Wire: WireOpenAILogprobs, Reasoning: true})
	for _, more := range []string{"", streamed} {
		body := answered(t, e, chatPath, toolTaskFor(`,"logprobs":true,"top_logprobs":2,"max_tokens":400,"temperature":0.5`+more))
		text, content := "", ""
		for _, part := range append(events(body), body) {
			choice := gjson.Get(part, "choices.0")
			content += choice.Get("message.content").String() + choice.Get("delta.content").String()
			for _, row := range choice.Get("logprobs.content").Array() {
				text += row.Get("token").String()
			}
		}
		if text == "" || text != content || strings.Contains(body, "token_id") {
			t.Errorf("rows %q of %q in %s", text, content, body)
		}
	}
}

func TestFireworksIDs(t *testing.T) {
	e := New(Options{Wire: WireFireworks, Reasoning: true})
	const more = `,"logprobs":true,"return_token_ids":true,"temperature":2`
	whole := gjson.Parse(answered(t, e, chatPath, toolTask(more)))
	truth, choice := truthOf(t, e, whole.Get("id").String()), whole.Get("choices.0")
	if choice.Get("token_ids").Raw != spelled(truth.Sampled[0]) || choice.Get("prompt_token_ids").Raw != spelled(truth.Prompt) {
		t.Errorf("answer %s", whole.Raw)
	}
	if got, want := rowLogprobs(choice.Get("logprobs.content")), trueLogprobs(truth.Logprobs[0]); got != want {
		t.Errorf("logprobs %s, want %s", got, want)
	}
	for i, row := range choice.Get("logprobs.content").Array() {
		if row.Get("token_id").Int() != int64(truth.Sampled[0][i]) || i == 0 && row.Get("sampling_logprob").Num == row.Get("logprob").Num {
			t.Errorf("row %s", row.Raw)
		}
	}
	stream := answered(t, e, chatPath, toolTask(more+streamed))
	if ids, rows, _, _ := count(stream); ids != len(truth.Sampled[0]) || rows != ids {
		t.Errorf("%d ids and %d rows streamed of %d", ids, rows, len(truth.Sampled[0]))
	}
}

func TestTogetherIDs(t *testing.T) {
	e := New(Options{Wire: WireTogether})
	whole := gjson.Parse(answered(t, e, chatPath, toolTask(`,"logprobs":1`)))
	truth := truthOf(t, e, whole.Get("id").String())
	if got := whole.Get("choices.0.logprobs.token_ids").Raw; got != spelled(truth.Sampled[0]) || strings.Contains(whole.Raw, "prompt_token_ids") {
		t.Errorf("answer %s", whole.Raw)
	}
	n := 0
	for _, ev := range events(answered(t, e, chatPath, toolTask(`,"logprobs":1`+streamed))) {
		n += len(gjson.Get(ev, "choices.0.logprobs.token_logprobs").Array())
	}
	if n != len(truth.Sampled[0]) {
		t.Errorf("%d streamed of %d", n, len(truth.Sampled[0]))
	}
}
