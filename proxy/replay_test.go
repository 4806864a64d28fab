package proxy

import (
	"bytes"
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

func readWhole(t *testing.T, body []byte) *engine.Answer {
	t.Helper()
	var a engine.Answer
	if _, ok := a.Whole(body, &engine.Strip{}); !ok {
		t.Fatal("no answer")
	}
	return &a
}

func readReplayed(t *testing.T, events, terminal []byte) *engine.Answer {
	t.Helper()
	var a engine.Answer
	r := engine.NewEventReader(bytes.NewReader(append(events, terminal...)), nil)
	for ev, err := r.Next(); err == nil; ev, err = r.Next() {
		a.Chunk(ev.Data, &engine.Strip{})
	}
	if a.Garbled > 0 || !a.Done {
		t.Fatalf("garbled %d, done %v", a.Garbled, a.Done)
	}
	return &a
}

// A replayed answer says what the whole one said: text, thinking, calls, ids, logprobs, finish reason and usage.
func TestReplaySaysTheSame(t *testing.T) {
	long := strings.Repeat(`a \"quoted\" word \\ and \n lines, é and 😀 `, 20)
	for name, c := range map[string]struct {
		dialect record.Dialect
		body    string
	}{
		"text":       {record.OpenAIChat, `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + long + `","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`},
		"surrogates": {record.OpenAIChat, `{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("x", 200) + `\ud83d\ude00"},"finish_reason":"length"}]}`},
		"calls": {record.OpenAIChat, `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"` + long + `","tool_calls":[` +
			`{"id":"a","type":"function","function":{"name":"f","arguments":"{\"p\": 1.50, \"q\": \"` + strings.Repeat(`\\n x`, 60) + `\"}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":"tool_calls"}]}`},
		"ids and logprobs that were asked for": {record.OpenAIChat, `{"id":"c1","prompt_token_ids":[1,2],"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"token_ids":[3,4],` +
			`"logprobs":{"content":[{"token":"h","logprob":-0.5},{"token":"i","logprob":-0.25}]},"finish_reason":"stop","stop_reason":7},` +
			`{"index":1,"message":{"role":"assistant","content":""},"token_ids":[5],"logprobs":{"content":[{"token":"","logprob":-1}]},"finish_reason":"stop"}]}`},
		"completions": {record.OpenAICompletions, `{"id":"c1","object":"text_completion","choices":[{"index":0,"text":"` + long + `","prompt_token_ids":[1],"token_ids":[2],"logprobs":{"tokens":["a"],"token_logprobs":[-0.1]},"finish_reason":"length"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			events, terminal, ok := dialect.Replay(c.dialect, []byte(c.body), true)
			if !ok {
				t.Fatal("taken for no answer")
			}
			want, got := readWhole(t, []byte(c.body)), readReplayed(t, events, terminal)
			if len(want.Choices) != len(got.Choices) || !got.Finished() || want.ID != got.ID || string(want.Usage.Raw) != string(got.Usage.Raw) {
				t.Fatalf("%d choices, finished %v, id %q, usage %s", len(got.Choices), got.Finished(), got.ID, got.Usage.Raw)
			}
			for i, w := range want.Choices {
				g := got.Choices[i]
				if string(w.Text()) != string(g.Text()) || string(w.Reasoning()) != string(g.Reasoning()) || w.Finish != g.Finish || string(w.StopReason) != string(g.StopReason) {
					t.Errorf("choice %d: %q %q %q, want %q %q %q", i, g.Text(), g.Reasoning(), g.Finish, w.Text(), w.Reasoning(), w.Finish)
				}
				if len(w.SampledIDs) != len(g.SampledIDs) || len(w.Logprobs) != len(g.Logprobs) || len(want.Prompt(w)) != len(got.Prompt(g)) {
					t.Errorf("choice %d: %v %v %v, want %v %v %v", i, g.SampledIDs, g.Logprobs, got.Prompt(g), w.SampledIDs, w.Logprobs, want.Prompt(w))
				}
				var a, b []string
				w.Calls(func(id, name string, arguments []byte) { a = append(a, id+name+string(arguments)) })
				g.Calls(func(id, name string, arguments []byte) { b = append(b, id+name+string(arguments)) })
				if strings.Join(a, "|") != strings.Join(b, "|") {
					t.Errorf("calls %q, want %q", b, a)
				}
			}
		})
	}
	if _, _, ok := dialect.Replay(record.OpenAIChat, []byte(`{"error":{}}`), false); ok {
		t.Error("an error was replayed as an answer")
	}
}

// A harness that asked for no usage gets none; a long text comes in pieces.
func TestReplayLooksLive(t *testing.T) {
	body := `{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 100) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`
	events, _, _ := dialect.Replay(record.OpenAIChat, []byte(body), false)
	if bytes.Contains(events, []byte("usage")) {
		t.Error("usage was not asked for")
	}
	if n := bytes.Count(events, []byte("data: ")); n < 5 {
		t.Errorf("500 characters in %d chunks", n)
	}
}
