package proxy

import (
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// hear reads a native stream as the line does, and says what was understood.
func hearNative(t *testing.T, d record.Dialect, events []string) (*engine.Answer, bool) {
	t.Helper()
	r, ended := dialect.NewReader(d), false
	var a engine.Answer
	for _, ev := range events {
		chunk, last := r.Event([]byte(ev))
		ended = ended || last
		if chunk != nil {
			a.Chunk(chunk, &engine.Strip{})
		}
	}
	if a.Garbled > 0 {
		t.Fatalf("%d chunks are no JSON", a.Garbled)
	}
	return &a, ended
}

func hearWhole(t *testing.T, d record.Dialect, body string) *engine.Answer {
	t.Helper()
	var a engine.Answer
	chunk := dialect.NewReader(d).Whole([]byte(body))
	if chunk == nil {
		t.Fatal("taken for no answer")
	}
	a.Chunk(chunk, &engine.Strip{})
	return &a
}

const nativeUsage = `"prompt_tokens":12,"completion_tokens":7,"total_tokens":19`

var nativeAnswers = []struct {
	name    string
	dialect record.Dialect
	events  []string
	whole   string
	message string
	finish  string
}{
	{
		name: "anthropic", dialect: record.AnthropicMessages,
		events: []string{
			`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":2,"output_tokens":1}}}`,
			`{"type":"ping"}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I lo"}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ok \ud83d\ude00"}}`,
			`{"type":"content_block_stop","index":1}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"ls","input":{}}}`,
			`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
			`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"p\": "}}`,
			`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1.50}"}}`,
			`{"type":"content_block_stop","index":2}`,
			`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"pwd","input":{}}}`,
			`{"type":"content_block_stop","index":3}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7}}`,
			`{"type":"message_stop"}`,
		},
		whole: `{"id":"msg_1","type":"message","role":"assistant","model":"claude","stop_reason":"tool_use","stop_sequence":null,
			"content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"I look 😀"},
			{"type":"tool_use","id":"toolu_1","name":"ls","input":{"p": 1.50}},{"type":"tool_use","id":"toolu_2","name":"pwd","input":{}}],
			"usage":{"input_tokens":10,"cache_read_input_tokens":2,"output_tokens":7}}`,
		message: `{"role":"assistant","content":"I look 😀","reasoning_content":"hm","tool_calls":[` +
			`{"id":"toolu_1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1.50}"}},` +
			`{"id":"toolu_2","type":"function","function":{"name":"pwd","arguments":"{}"}}]}`,
		finish: "tool_use",
	},
	{
		name: "responses", dialect: record.OpenAIResponses,
		events: []string{
			`{"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress","model":"gpt"}}`,
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}`,
			`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"hm"}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}}`,
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"message","role":"assistant","content":[]}}`,
			`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"I look "}`,
			`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"😀"}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look 😀"}]}}`,
			`{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"p\": 1.50}"}`,
			`{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"toolu_1","name":"ls","arguments":"{\"p\": 1.50}"}}`,
			`{"type":"response.output_item.done","output_index":3,"item":{"type":"function_call","call_id":"toolu_2","name":"pwd","arguments":"{}"}}`,
			`{"type":"response.completed","response":{"id":"resp_1","object":"response","status":"completed","model":"gpt","error":null,"usage":{"input_tokens":12,"output_tokens":7}}}`,
		},
		whole: `{"id":"resp_1","object":"response","status":"completed","model":"gpt","error":null,"output":[
			{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"I look 😀"}]},
			{"type":"function_call","call_id":"toolu_1","name":"ls","arguments":"{\"p\": 1.50}"},{"type":"function_call","call_id":"toolu_2","name":"pwd","arguments":"{}"}],
			"usage":{"input_tokens":12,"output_tokens":7}}`,
		message: `{"role":"assistant","content":"I look 😀","reasoning_content":"hm","tool_calls":[` +
			`{"id":"toolu_1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1.50}"}},` +
			`{"id":"toolu_2","type":"function","function":{"name":"pwd","arguments":"{}"}}]}`,
		finish: "completed",
	},
	{
		name: "google", dialect: record.Google,
		events: []string{
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true}]},"index":0}],"responseId":"r1","modelVersion":"gemini","usageMetadata":{"promptTokenCount":12}}`,
			`{"candidates":[{"content":{"role":"model","parts":[{"text":"I look 😀"}]},"index":0}],"responseId":"r1"}`,
			`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"id":"toolu_1","name":"ls","args":{"p": 1.50}},"thoughtSignature":"c2ln"},{"functionCall":{"id":"toolu_2","name":"pwd"}}]},"finishReason":"STOP","index":0}],` +
				`"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":4,"thoughtsTokenCount":3}}`,
		},
		whole: `{"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true},{"text":"I look 😀"},{"functionCall":{"id":"toolu_1","name":"ls","args":{"p": 1.50}}},
			{"functionCall":{"id":"toolu_2","name":"pwd","args":{}}}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":4,"thoughtsTokenCount":3}}`,
		message: `{"role":"assistant","content":"I look 😀","reasoning_content":"hm","tool_calls":[` +
			`{"id":"toolu_1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1.50}"}},` +
			`{"id":"toolu_2","type":"function","function":{"name":"pwd","arguments":"{}"}}]}`,
		finish: "STOP",
	},
}

func TestNativeAnswers(t *testing.T) {
	for _, c := range nativeAnswers {
		for _, how := range []string{"streamed", "whole"} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				var a *engine.Answer
				if how == "whole" {
					a = hearWhole(t, c.dialect, c.whole)
				} else {
					var ended bool
					if a, ended = hearNative(t, c.dialect, c.events); !ended {
						t.Error("its end was not seen")
					}
					if _, early := hearNative(t, c.dialect, c.events[:len(c.events)-1]); early {
						t.Error("taken for ended before its last event")
					}
				}
				if len(a.Choices) != 1 || !a.Finished() {
					t.Fatalf("%d choices, finished %v", len(a.Choices), a.Finished())
				}
				if got := string(a.Choices[0].Message()); got != c.message {
					t.Errorf("message\n%s, want\n%s", got, c.message)
				}
				if got := a.Choices[0].Finish; got != c.finish {
					t.Errorf("finish %q, want %q", got, c.finish)
				}
				if !strings.HasPrefix(string(a.Usage.Raw), "{"+nativeUsage) {
					t.Errorf("usage %s", a.Usage.Raw)
				}
			})
		}
	}
}

func TestNativeErrors(t *testing.T) {
	for _, c := range []struct {
		dialect record.Dialect
		event   string
	}{
		{record.AnthropicMessages, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
		{record.OpenAIResponses, `{"type":"error","code":"server_error","message":"Overloaded"}`},
		{record.OpenAIResponses, `{"type":"response.failed","response":{"id":"r","object":"response","status":"failed","error":{"message":"Overloaded"}}}`},
		{record.Google, `{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}`},
	} {
		a, _ := hearNative(t, c.dialect, []string{c.event})
		if !strings.Contains(string(a.Error), "Overloaded") || a.Finished() {
			t.Errorf("%s: error %s, finished %v", c.event, a.Error, a.Finished())
		}
	}
	a, ended := hearNative(t, record.Google, []string{`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}`})
	if !ended || a.Choices[0].Finish != "content_filter" {
		t.Error("a blocked prompt is no refusal")
	}
}

// What is no answer of the dialect is not taken for one, and nothing makes a reader fall over.
func FuzzNativeReaders(f *testing.F) {
	for _, c := range nativeAnswers {
		for _, ev := range c.events {
			f.Add([]byte(ev))
		}
		f.Add([]byte(c.whole))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range []record.Dialect{record.AnthropicMessages, record.OpenAIResponses, record.Google} {
			var a engine.Answer
			r := dialect.NewReader(d)
			for range 2 {
				if chunk, _ := r.Event(data); chunk != nil {
					a.Chunk(chunk, &engine.Strip{})
				}
			}
			if chunk := dialect.NewReader(d).Whole(data); chunk != nil {
				a.Chunk(chunk, &engine.Strip{})
			}
			if a.Garbled > 0 {
				t.Fatalf("%s made a chunk that is no JSON of %q", d, data)
			}
		}
	})
}
