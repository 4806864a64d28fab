package dialect

import (
	"encoding/json"
	"fmt"
	"testing"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// The last of several equal keys counts, as in the parsers of engines (Python's, nlohmann's): what is recorded, planned and
// sent is what a request says without the earlier ones. Two readers that disagree here would let a harness record one
// thing and be answered another.
func TestLastOfEqualKeysCounts(t *testing.T) {
	none := func(string) ([]json.RawMessage, bool) { return nil, false }
	decoders := map[string]struct {
		decode func([]byte) (*Request, error)
		body   string
	}{
		"chat": {DecodeChat, `{"model":"m","stream":false,"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto",
			"n":1,"temperature":0.5,"top_p":0.9,"max_tokens":5,"max_completion_tokens":6,"logprobs":false,"top_logprobs":null,"response_format":{"type":"text"},"logit_bias":null,
			"return_token_ids":false,"stream_options":{"include_usage":false},"stop":["x"],"seed":1,"min_tokens":0}`},
		"completions": {DecodeCompletions, `{"model":"m","stream":false,"prompt":"a","n":1,"temperature":0.5,"max_tokens":5,"logprobs":null,"echo":false,"stop":"x"}`},
		"responses": {func(b []byte) (*Request, error) { return DecodeResponses(b, none) },
			`{"model":"m","stream":false,"input":"a","instructions":"be","tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":"auto","temperature":0.5,"top_p":0.9,
			"max_output_tokens":5,"text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},"store":false,"parallel_tool_calls":true}`},
		"anthropic": {DecodeAnthropic, `{"model":"m","stream":false,"max_tokens":5,"system":"be","messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":{}}],
			"tool_choice":{"type":"auto"},"temperature":0.5,"top_p":0.9,"top_k":5,"stop_sequences":["x"],"thinking":{"type":"disabled"},"metadata":{"user_id":"u"}}`},
		"google": {func(b []byte) (*Request, error) { return DecodeGoogle(b, "m", false) },
			`{"contents":[{"role":"user","parts":[{"text":"a"}]}],"systemInstruction":{"parts":[{"text":"be"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],
			"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},"generationConfig":{"temperature":0.5,"maxOutputTokens":5}}`},
		"native anthropic": {func(b []byte) (*Request, error) { return Native(record.AnthropicMessages, b, "", false, nil) },
			`{"model":"m","stream":false,"max_tokens":5,"system":"be","messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":{}}],"temperature":0.5}`},
		"native responses": {func(b []byte) (*Request, error) { return Native(record.OpenAIResponses, b, "", false, none) },
			`{"model":"m","stream":false,"input":"a","instructions":"be","tools":[{"type":"function","name":"f","parameters":{}}],"temperature":0.5,"max_output_tokens":5}`},
		"native google": {func(b []byte) (*Request, error) { return Native(record.Google, b, "m", false, nil) },
			`{"contents":[{"role":"user","parts":[{"text":"a"}]}],"systemInstruction":{"parts":[{"text":"be"}]},"generationConfig":{"temperature":0.5,"maxOutputTokens":5}}`},
	}
	others := []string{`true`, `null`, `7`, `"required"`, `"z"`, `[]`, `{}`, `{"type":"json_object"}`, `{"include_usage":true}`, `[{"role":"user","content":"z"}]`, `[{"role":"user","parts":[{"text":"z"}]}]`,
		`{"temperature":1.5,"maxOutputTokens":99}`, `{"type":"any"}`, `[{"type":"function","function":{"name":"z","strict":true}}]`}
	for name, d := range decoders {
		t.Run(name, func(t *testing.T) {
			want := saidBy(d.decode([]byte(d.body)))
			doc, err := jsonscan.ParseDoc([]byte(d.body))
			if err != nil {
				t.Fatal(err)
			}
			for i := range doc.Members {
				key := doc.Members[i].Key
				for _, other := range others {
					for _, spelling := range []string{key, fmt.Sprintf(`\u%04x%s`, key[0], key[1:])} {
						twice := fmt.Sprintf(`{"%s":%s,%s`, spelling, other, d.body[1:])
						if got := saidBy(d.decode([]byte(twice))); got != want && !t.Failed() {
							t.Errorf("%s: %s with %s before it reads\n%s\nwant\n%s", name, key, other, got, want)
						}
					}
				}
			}
		})
	}
}

// saidBy is all that a decoder makes of a request, but for where it found it and what it hands on as it came.
func saidBy(r *Request, err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	sent := ""
	if r.Translated() {
		sent = string(r.Doc.Bytes)
	}
	said, err := json.Marshal([]any{r.Dialect, r.Stream, r.Model, r.Messages, r.Tools, r.Sampling, r.Constraints, r.MaxTokens, r.CapKey, r.Asks, r.Edits, sent})
	if err != nil {
		return err.Error()
	}
	return string(said)
}
