package dialect

import (
	"encoding/json"
	"errors"
	"testing"

	"captureproxy/internal/record"
)

// wellDecoded checks what any decoder of requests must keep to: a refusal is the caller's fault and says why, and what is taken
// is JSON throughout.
func wellDecoded(t *testing.T, r *Request, err error) {
	var refused *Error
	if err != nil {
		if !errors.As(err, &refused) || refused.Status < 400 || refused.Status > 499 || refused.Text == "" {
			t.Fatalf("%v", err)
		}
		return
	}
	for _, m := range append(append([]json.RawMessage{}, r.Messages...), r.Tools...) {
		if !json.Valid(m) {
			t.Fatalf("no JSON: %s", m)
		}
	}
	for i, cut := range r.Cuts {
		if cut < 0 || cut > len(r.Doc.Bytes) || i > 0 && cut < r.Cuts[i-1] {
			t.Fatalf("cuts %v in %d bytes", r.Cuts, len(r.Doc.Bytes))
		}
	}
}

func FuzzDecodeChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{}],"tool_choice":"auto","n":2,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"messages":[1,null,"x"],"messages":[],"temperature":"hot","max_tokens":-1,"stop":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeChat(body)
		wellDecoded(t, r, err)
	})
}

func FuzzDecodeCompletions(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"a\ud83d","max_tokens":3}`))
	f.Add([]byte(`{"prompt":[[1,2],"x",null],"stream":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeCompletions(body)
		wellDecoded(t, r, err)
	})
}

// readNatively reads data as events of a stream and as a whole answer. What comes out is a chat chunk.
func readNatively(t *testing.T, d record.Dialect, first, second []byte) {
	r := NewReader(d)
	for _, data := range [][]byte{first, second, first} {
		if chunk, _ := r.Event(data); chunk != nil && !json.Valid(chunk) {
			t.Fatalf("event %q: %s", data, chunk)
		}
	}
	if chunk := NewReader(d).Whole(first); chunk != nil && !json.Valid(chunk) {
		t.Fatalf("whole %q: %s", first, chunk)
	}
}

func FuzzNativeAnthropic(f *testing.F) {
	f.Add([]byte(`{"type":"message_start","message":{"id":"m","model":"c","usage":{"input_tokens":3}}}`), []byte(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}`))
	f.Add([]byte(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`), []byte(`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":-1}}`))
	f.Add([]byte(`{"type":"message","id":"m","content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"b"}],"stop_reason":"end_turn","usage":{"input_tokens":1e30}}`), []byte(`{"type":"error","error":7}`))
	f.Fuzz(func(t *testing.T, first, second []byte) { readNatively(t, record.AnthropicMessages, first, second) })
}

func FuzzNativeResponses(f *testing.F) {
	f.Add([]byte(`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"n","arguments":""}}`), []byte(`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{"}`))
	f.Add([]byte(`{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":2}}}`), []byte(`{"type":"response.failed","response":{"error":null}}`))
	f.Add([]byte(`{"object":"response","id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, first, second []byte) { readNatively(t, record.OpenAIResponses, first, second) })
}

func FuzzNativeGoogle(f *testing.F) {
	f.Add([]byte(`{"candidates":[{"index":0,"content":{"parts":[{"text":"a"},{"functionCall":{"name":"n","args":{}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1}}`), []byte(`{"error":{"code":500}}`))
	f.Add([]byte(`{"candidates":[{"index":-5,"content":{"parts":[1]}}],"usageMetadata":7}`), []byte(`{"promptFeedback":{"blockReason":"SAFETY"}}`))
	f.Fuzz(func(t *testing.T, first, second []byte) { readNatively(t, record.Google, first, second) })
}

// A whole answer is replayed as a stream, whatever it is.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a b","tool_calls":[{"id":"x","function":{"name":"n","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{}}`), true)
	f.Add([]byte(`{"choices":[{"text":"a","finish_reason":7},null]}`), false)
	f.Fuzz(func(t *testing.T, body []byte, usage bool) {
		for _, d := range []record.Dialect{record.OpenAIChat, record.OpenAICompletions} {
			_, terminal, ok := Replay(d, body, usage)
			if ok && string(terminal) == "" {
				t.Fatalf("%s: a stream without an end", d)
			}
		}
	})
}
