package fakeengine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/tidwall/gjson"
)

// startWire starts an engine for a test.
func startWire(t *testing.T, opts Options) *Server {
	t.Helper()
	srv, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// closeStream lets go of a stream's connection, which an error within it leaves open.
func closeStream(t *testing.T, stream io.Closer) {
	t.Helper()
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

func anthropicClient(srv *Server) anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithBaseURL(srv.URL), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
}

func anthropicTask() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "fake-model", MaxTokens: 2000, Temperature: anthropic.Float(0),
		Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("go 👋🏽"))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: "bash", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"command": map[string]any{"type": "string"}}},
		}}},
	}
}

// The official SDK drives a whole task, whole and streamed, sending everything back as it came; each prompt extends the one
// before and what was sampled for it.
func TestAnthropicSDKTask(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		srv := startWire(t, Options{Wire: WireAnthropic, Reasoning: true, Key: "k"})
		client, params := anthropicClient(srv), anthropicTask()
		var before []int32
		steps := 0
		for {
			var m anthropic.Message
			if streaming {
				stream := client.Messages.NewStreaming(context.Background(), params)
				for stream.Next() {
					if err := m.Accumulate(stream.Current()); err != nil {
						t.Fatal(err)
					}
				}
				closeStream(t, stream)
				if err := stream.Err(); err != nil {
					t.Fatal(err)
				}
			} else {
				answer, err := client.Messages.New(context.Background(), params)
				if err != nil {
					t.Fatal(err)
				}
				m = *answer
			}
			truth := truthOf(t, srv.Engine, m.ID)
			if !strings.HasPrefix(spelled(truth.Prompt), strings.TrimSuffix(spelled(before), "]")) {
				t.Errorf("step %d: the prompt does not extend the one before", steps)
			}
			before = append(append([]int32(nil), truth.Prompt...), truth.Sampled[0]...)
			if m.Content[0].Type != "thinking" || m.Usage.OutputTokens != int64(len(truth.Sampled[0])) || m.Usage.InputTokens != int64(len(truth.Prompt)) {
				t.Errorf("message %+v", m)
			}
			params.Messages = append(params.Messages, m.ToParam())
			if m.StopReason != "tool_use" {
				break
			}
			steps++
			for _, b := range m.Content {
				if b.Type == "tool_use" {
					if gjson.GetBytes(b.Input, "command").String() == "" {
						t.Errorf("input %s", b.Input)
					}
					params.Messages = append(params.Messages, anthropic.NewUserMessage(anthropic.NewToolResultBlock(b.ID, "ok", false)))
				}
			}
		}
		if steps != DefaultSteps {
			t.Errorf("%d steps", steps)
		}
	}
}

const messagesPath = "/v1/messages"

func anthropicHeaders() []string {
	return []string{"X-Api-Key", "k", "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "some-beta-2026"}
}

func messagesTask(more string) string {
	return `{"model":"m","max_tokens":900,"thinking":{"type":"adaptive"},"tools":[{"name":"bash","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],` + more + `}`
}

// A thought that was changed, or whose signature is missing or changed, or that was left out, is refused in Anthropic's words.
func TestAnthropicChecksThoughts(t *testing.T) {
	e := New(Options{Wire: WireAnthropic, Reasoning: true})
	const user = `{"role":"user","content":"go"}`
	first := gjson.Parse(answered(t, e, messagesPath, messagesTask(`"messages":[`+user+`]`), anthropicHeaders()...))
	content := first.Get("content").Raw
	thought := first.Get("content.0")
	again := func(content string) (int, string) {
		w := askFor(e, messagesPath, messagesTask(`"messages":[`+user+`,{"role":"assistant","content":`+content+
			`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"ok"}]}]`), anthropicHeaders()...)
		return w.Code, gjson.Get(w.Body.String(), "error.message").String()
	}
	signature := thought.Get("signature").String()
	for _, c := range []struct{ name, content, message string }{
		{"as it came", content, ""},
		{"changed text", strings.Replace(content, "Let me think", "Let me  think", 1), "messages.1.content.0: Invalid `signature` in `thinking` block"},
		{"changed signature", strings.Replace(content, signature, "A"+signature[1:], 1), "messages.1.content.0: Invalid `signature` in `thinking` block"},
		{"missing signature", strings.Replace(content, `,"signature":"`+signature+`"`, "", 1), "messages.1.content.0.thinking.signature: Field required"},
		{"left out", strings.Replace(content, thought.Raw+",", "", 1), "Expected `thinking` or `redacted_thinking`, but found `text`"},
	} {
		status, message := again(c.content)
		if want := 400; c.message != "" && (status != want || !strings.Contains(message, c.message)) || c.message == "" && status != 200 {
			t.Errorf("%s: %d %s", c.name, status, message)
		}
	}
	received := e.Requests()
	if got := received[0]; got.Header.Get("Anthropic-Beta") != "some-beta-2026" || got.Path != messagesPath || string(got.Body) != messagesTask(`"messages":[`+user+`]`) {
		t.Errorf("remembered %+v", got)
	}
}

func TestAnthropicRefusals(t *testing.T) {
	e := New(Options{Wire: WireAnthropic, Key: "k"})
	say := messagesTask(`"messages":[{"role":"user","content":"hi"}]`)
	good := anthropicHeaders()
	for _, c := range []struct {
		name, path, body string
		header           []string
		status           int
		kind, message    string
	}{
		{"bearer", "/v1/models", "", []string{"Authorization", "Bearer k"}, 401, "authentication_error", "x-api-key header is required"},
		{"wrong key", messagesPath, say, []string{"X-Api-Key", "no", "Anthropic-Version", "v"}, 401, "authentication_error", "invalid x-api-key"},
		{"no version", messagesPath, say, []string{"X-Api-Key", "k"}, 400, "invalid_request_error", "anthropic-version: header is required"},
		{"foreign parameter", messagesPath, strings.Replace(say, `{"model"`, `{"return_token_ids":true,"model"`, 1), good, 400, "invalid_request_error", "return_token_ids: Extra inputs are not permitted"},
		{"no bound", messagesPath, strings.Replace(say, `"max_tokens":900,`, ``, 1), good, 400, "invalid_request_error", "max_tokens: Field required"},
		{"overloaded", messagesPath, say, append([]string{"X-Fake-Fault", "status 529 3"}, good...), 529, "overloaded_error", "Overloaded"},
		{"path", "/v1/completions", say, good, 404, "not_found_error", "Not Found"},
	} {
		w := askFor(e, c.path, c.body, c.header...)
		bad := gjson.Get(w.Body.String(), "error")
		if w.Code != c.status || bad.Get("type").String() != c.kind || bad.Get("message").String() != c.message || gjson.Get(w.Body.String(), "type").String() != "error" {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	if w := askFor(e, chatPath, `{"model":"m","messages":[{"role":"user","content":"hi"}],"logprobs":true}`, "Authorization", "Bearer k"); w.Code != 200 || gjson.Get(w.Body.String(), "choices.0.logprobs").Raw != "null" {
		t.Errorf("chat: %d %s", w.Code, w.Body)
	}
	if w := askFor(e, chatPath, `{}`); gjson.Get(w.Body.String(), "error.type").String() != "invalid_request_error" {
		t.Errorf("chat without a key: %d %s", w.Code, w.Body)
	}
}

func TestAnthropicCountsAndModels(t *testing.T) {
	srv := startWire(t, Options{Wire: WireAnthropic})
	client, params := anthropicClient(srv), anthropicTask()
	m, err := client.Messages.New(context.Background(), params)
	if err != nil {
		t.Fatal(err)
	}
	tools := []anthropic.MessageCountTokensToolUnionParam{{OfTool: params.Tools[0].OfTool}}
	n, err := client.Messages.CountTokens(context.Background(), anthropic.MessageCountTokensParams{Model: params.Model, Messages: params.Messages, Tools: tools, Thinking: params.Thinking})
	if err != nil || n.InputTokens != m.Usage.InputTokens {
		t.Errorf("counted %v, used %d, %v", n, m.Usage.InputTokens, err)
	}
	models, err := client.Models.List(context.Background(), anthropic.ModelListParams{})
	if err != nil || models.Data[0].ID != "fake-model" {
		t.Errorf("models %v, %v", models, err)
	}
}

// Cut by its bound or overloaded in the middle, a stream says so.
func TestAnthropicStreamEnds(t *testing.T) {
	srv := startWire(t, Options{Wire: WireAnthropic, Reasoning: true})
	client := anthropicClient(srv)
	for fault, want := range map[string]string{"error-event 5": "overloaded_error", "cut 5": ""} {
		stream := client.Messages.NewStreaming(context.Background(), anthropicTask(), anthropicoption.WithHeader("X-Fake-Fault", fault))
		for stream.Next() {
		}
		closeStream(t, stream)
		if err := stream.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fault, err)
		}
	}
	whole, err := client.Messages.New(context.Background(), anthropicTask())
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole.Usage.OutputTokens - 1 {
		params := anthropicTask()
		params.MaxTokens = n + 1
		var m anthropic.Message
		stream := client.Messages.NewStreaming(context.Background(), params)
		for stream.Next() {
			var syntax *json.SyntaxError
			if err := m.Accumulate(stream.Current()); err != nil && !errors.As(err, &syntax) {
				t.Fatal(err)
			}
		}
		closeStream(t, stream)
		if err := stream.Err(); err != nil || m.StopReason != "max_tokens" || m.Usage.OutputTokens != n+1 {
			t.Fatalf("%d: %v, %+v", n+1, err, m)
		}
	}
}
