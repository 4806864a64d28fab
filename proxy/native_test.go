package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// newNativeRig is a proxy in front of a hosted provider's wire.
func newNativeRig(t *testing.T, wire fakeengine.Wire, provider string) (*rig, *fakeengine.Server) {
	t.Helper()
	e, err := fakeengine.Start(fakeengine.Options{Wire: wire, Key: "upstream-secret", Reasoning: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, strings.TrimSuffix(e.URL, "/v1"), rigOptions{engine: func(c *engine.Config) { c.Provider = provider }})
	return r, e
}

// wiretap is a client's transport that keeps what it sent and got, so that both can be compared with what the engine saw and said.
type wiretap struct {
	inner          http.RoundTripper
	sent, received [][]byte
}

func (w *wiretap) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	w.sent, w.received = append(w.sent, body), append(w.received, answer)
	return resp, nil
}

// Anthropic's own API with signed thinking: the official SDK plays a whole task, every byte of its requests reaches the
// engine, and the document has the conversation as one root.
func TestAnthropicNatively(t *testing.T) {
	for _, streamed := range []bool{true, false} {
		name := "whole"
		if streamed {
			name = "streamed"
		}
		t.Run(name, func(t *testing.T) {
			r, e := newNativeRig(t, fakeengine.WireAnthropic, "anthropic")
			tap := &wiretap{inner: &http.Transport{DisableKeepAlives: true}}
			client := anthropic.NewClient(anthropicoption.WithBaseURL(r.url), anthropicoption.WithAPIKey("s1"), anthropicoption.WithMaxRetries(0),
				anthropicoption.WithHTTPClient(&http.Client{Transport: tap}), anthropicoption.WithHeader("anthropic-beta", "interleaved-thinking-2025-05-14"))
			r.anthropicAgent(client, streamed)
			doc := r.document(export.Options{IncludeMessages: true})
			if doc.RolloutType != "eval" || doc.CaptureLevel != record.LevelText || doc.Stats.Roots != 1 || doc.Stats.Turns < 3 || doc.Stats.FailedCalls != 0 {
				t.Errorf("%s, %s: %d roots, %d turns, %d failed calls", doc.RolloutType, doc.CaptureLevel, doc.Stats.Roots, doc.Stats.Turns, doc.Stats.FailedCalls)
			}
			var asked [][]byte
			for _, req := range e.Requests() {
				if req.Path == "/v1/messages" && req.Header.Get("User-Agent") != "" { // not the probe
					asked = append(asked, req.Body)
					if req.Header.Get("Anthropic-Beta") == "" || req.Header.Get("X-Api-Key") != "upstream-secret" || req.Header.Get("Authorization") != "" {
						t.Errorf("headers %v", req.Header)
					}
				}
			}
			if len(asked) != len(tap.sent) {
				t.Fatalf("the engine got %d requests of %d", len(asked), len(tap.sent))
			}
			for i := range asked {
				if !bytes.Equal(asked[i], tap.sent[i]) {
					t.Errorf("request %d was changed:\n%.300s\n%.300s", i, tap.sent[i], asked[i])
				}
			}
			for _, turn := range doc.Turns {
				if len(turn.Edits) != 0 || turn.Usage == nil || !strings.Contains(string(turn.ResponseMessage), "reasoning_content") {
					t.Errorf("turn %d: edits %v, usage %s, message %s", turn.Index, turn.Edits, turn.Usage, turn.ResponseMessage)
				}
			}
			if last := doc.Turns[len(doc.Turns)-1]; last.FinishReason != "stop" || doc.Turns[0].FinishReason != "tool_calls" {
				t.Errorf("finish reasons %s, %s", doc.Turns[0].FinishReason, last.FinishReason)
			}
		})
	}
}

// anthropicAgent plays one task until the model calls no tool any more.
func (r *rig) anthropicAgent(client anthropic.Client, streamed bool) {
	r.t.Helper()
	params := anthropic.MessageNewParams{
		Model: "claude", MaxTokens: 4000, Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
		System:   []anthropic.TextBlockParam{{Text: "You are a coding agent."}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("List the files."))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "bash", InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"command": map[string]any{"type": "string"}}, Required: []string{"command"}}}}},
	}
	for range 10 {
		var reply anthropic.Message
		if streamed {
			stream := client.Messages.NewStreaming(r.t.Context(), params)
			for stream.Next() {
				if err := reply.Accumulate(stream.Current()); err != nil {
					r.t.Fatal(err)
				}
			}
			if err := stream.Err(); err != nil {
				r.t.Fatal(err)
			}
		} else {
			whole, err := client.Messages.New(r.t.Context(), params)
			if err != nil {
				r.t.Fatal(err)
			}
			reply = *whole
		}
		params.Messages = append(params.Messages, reply.ToParam())
		var results []anthropic.ContentBlockParamUnion
		for _, block := range reply.Content {
			if block.Type == "tool_use" {
				results = append(results, anthropic.NewToolResultBlock(block.ID, "done", false))
			}
		}
		if len(results) == 0 {
			return
		}
		params.Messages = append(params.Messages, anthropic.NewUserMessage(results...))
	}
	r.t.Fatal("the agent does not end")
}

// The provider's own errors and its patience are the harness's too: its bytes and status as they came.
func TestNativeErrorsAreTheProviders(t *testing.T) {
	const refusal = `{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid signature in thinking block"},"request_id":"req_1"}`
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		switch n {
		case 0:
			w.Header().Set("Retry-After", "0")
			answers(529, "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)(w, r, n)
		default:
			answers(400, "application/json", refusal)(w, r, n)
		}
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, engine: func(c *engine.Config) { c.Provider = "anthropic" }})
	r.up.Assume(engine.Profile{Level: record.LevelText, Native: []record.Dialect{record.AnthropicMessages}})
	resp, body := r.post("/v1/messages?beta=true", `{"model":"claude","max_tokens":5,"messages":[]}`, "Anthropic-Version", "2023-06-01")
	if resp.StatusCode != 400 || string(body) != refusal || up.count() != 2 {
		t.Errorf("%d after %d requests: %s", resp.StatusCode, up.count(), body)
	}
	if got := up.got(1); got.path != "/v1/messages?beta=true" || got.header.Get("Anthropic-Version") != "2023-06-01" {
		t.Errorf("asked %s with %v", got.path, got.header)
	}
	if call := r.only(); call.Outcome != record.Rejected {
		t.Errorf("outcome %s", call.Outcome)
	}
}

// A stream that breaks off is no answer, in any native dialect; its bytes reach the harness and its end does not.
func TestNativeStreamCut(t *testing.T) {
	for _, c := range []struct{ name, path, body, stream string }{
		{"anthropic", "/v1/messages", `{"model":"c","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n" +
				"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"broken\"}}\n\n"},
		{"responses", "/v1/responses", `{"model":"c","stream":true,"input":"hi"}`,
			"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n"},
		{"google", "/v1beta/models/g:streamGenerateContent?alt=sse", `{"contents":[]}`,
			"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hel\"}]}}]}\n\n"},
		{"google array", "/v1beta/models/g:streamGenerateContent", `{"contents":[]}`, `[{"candidates":[{"content":{"parts":[{"text":"hel"}]}}]}` + "\n,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := sse
			if strings.HasSuffix(c.name, "array") {
				kind = "application/json"
			}
			up := newScript(t, answers(200, kind, c.stream))
			r := newRig(t, up.URL, rigOptions{level: record.LevelText})
			r.up.Assume(engine.Profile{Level: record.LevelText, Native: []record.Dialect{record.AnthropicMessages, record.OpenAIResponses, record.Google}})
			_, body, err := r.try(c.path, c.body)
			if err == nil || string(body) != c.stream {
				t.Errorf("%v: %q, want %q", err, body, c.stream)
			}
			if got := r.eventually(1)[0]; got.Outcome != record.UpstreamError {
				t.Errorf("outcome %s", got.Outcome)
			}
		})
	}
}

// The end of a native stream waits for the disk, whole and in order.
func TestNativeStreamsAreWhole(t *testing.T) {
	for _, c := range []struct{ name, path, body, stream, finish string }{
		{"google", "/v1beta/models/g:streamGenerateContent?alt=sse", `{"contents":[]}`,
			"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hel\"}]}}]}\r\n\r\ndata: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"lo\"}]},\"finishReason\":\"MAX_TOKENS\"}]}\r\n\r\n" +
				"data: {\"usageMetadata\":{\"promptTokenCount\":1,\"candidatesTokenCount\":2}}\r\n\r\n", "length"},
		{"google array", "/v1beta/models/g:streamGenerateContent", `{"contents":[]}`,
			`[{"candidates":[{"content":{"parts":[{"text":"hel"}]}}]}` + "\n,\r\n" + `{"candidates":[{"content":{"parts":[{"text":"lo"}]},"finishReason":"STOP"}]}` + "\n]\n", "stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := sse
			if strings.HasSuffix(c.name, "array") {
				kind = "application/json"
			}
			up := newScript(t, answers(200, kind, c.stream))
			r := newRig(t, up.URL, rigOptions{level: record.LevelText})
			r.up.Assume(engine.Profile{Level: record.LevelText, Native: []record.Dialect{record.Google}})
			resp, body := r.post(c.path, c.body)
			if string(body) != c.stream || resp.Header.Get("Content-Type") != kind {
				t.Errorf("%q, want %q", body, c.stream)
			}
			got := r.only()
			if got.Outcome != record.Complete && c.finish == "stop" || got.Choices[0].FinishReason != c.finish || !strings.Contains(string(got.Choices[0].Message), `"hello"`) {
				t.Errorf("outcome %s, %s, %s", got.Outcome, got.Choices[0].FinishReason, got.Choices[0].Message)
			}
			if got.Timing.FirstToken.IsZero() || got.Timing.Recorded.Before(got.Timing.Received.Add(-time.Second)) {
				t.Errorf("timing %+v", got.Timing)
			}
		})
	}
}

// Whatever a harness writes, in whatever spelling, reaches the provider of its dialect so, also what could not be translated;
// and a session's caps and sampling are the only things that change it.
func TestNativeRequestBytes(t *testing.T) {
	const whole = `{"id":"x","type":"message","object":"response","status":"completed","candidates":[],"content":[],"output":[],"error":null}`
	for _, c := range []struct {
		dialect                    record.Dialect
		path, body, upPath, capped string
	}{
		{record.AnthropicMessages, "/v1/messages?beta=true", "{ \"model\" : \"c\",\"max_tokens\":9e2, \"container\":{\"skills\":[1.50]}, \"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"new_thing\",\"x\":\"\\u00e9\"}]}]}\n", "/v1/messages?beta=true",
			"{ \"model\" : \"c\",\"max_tokens\":7, \"container\":{\"skills\":[1.50]}, \"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"new_thing\",\"x\":\"\\u00e9\"}]}],\"temperature\":0.5}\n"},
		{record.OpenAIResponses, "/responses", `{"model":"c", "input":[{"type":"item_reference","id":"rs_unknown"}],"previous_response_id":"resp_unknown","tools":[{"type":"computer_use"}]}`, "/v1/responses",
			`{"model":"c", "input":[{"type":"item_reference","id":"rs_unknown"}],"previous_response_id":"resp_unknown","tools":[{"type":"computer_use"}],"temperature":0.5,"max_output_tokens":7}`},
		{record.Google, "/v1beta/models/gem:generateContent?key=s1", `{"contents":[{"parts":[{"new_part":{"a":1.0}}]}],"generationConfig":{"max_output_tokens" : 900}, "cachedContent":"x"}`, "/v1/models/gem:generateContent",
			`{"contents":[{"parts":[{"new_part":{"a":1.0}}]}],"generationConfig":{"max_output_tokens" : 7,"temperature":0.5}, "cachedContent":"x"}`},
	} {
		for _, capped := range []bool{false, true} {
			up := newScript(t, answers(200, "application/json", whole))
			limit := 7
			r := newRig(t, up.URL, rigOptions{level: record.LevelText, session: func(s *record.Session) {
				if capped {
					s.Spec.Purpose, s.Spec.MaxOutputTokens, s.Spec.EvalSampling = record.PurposeEval, &limit, []byte(`{"temperature":0.5}`)
				}
			}})
			r.up.Assume(engine.Profile{Level: record.LevelText, Native: []record.Dialect{c.dialect}})
			r.post(c.path, c.body)
			want := c.body
			if capped {
				want = c.capped
			}
			if got := up.got(0); string(got.body) != want || got.path != c.upPath {
				t.Errorf("%s, capped %v: %s got\n%q, want\n%q", c.dialect, capped, got.path, got.body, want)
			}
		}
	}
}
