package dialect

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/record"
)

func decodeGoogle(t testing.TB, body string, stream bool) *Request {
	t.Helper()
	r, err := DecodeGoogle([]byte(body), "m", stream)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	wellTranslated(t, r)
	return r
}

func TestDecodeGoogle(t *testing.T) {
	seal := base64.StdEncoding.EncodeToString([]byte(Seal([]byte("I \"see\".\n"))))
	for _, c := range []struct {
		name, body, chat   string
		edits, constraints []string
	}{
		{
			name: "text", body: `{"contents":[{"role":"user","parts":[{"text":"h\u00e9"},{"text":"b"}]},{"parts":[{"text":"c"}]}]}`,
			chat: `{"messages":[{"role":"user","content":"h\u00e9\nb"},{"role":"user","content":"c"}],"model":"m"}`,
		},
		{
			name: "system instruction, underscores, media",
			body: `{"system_instruction":{"role":"user","parts":[{"text":"s"},{"text":"t"}]},"contents":[{"role":"user","parts":[{"text":"see"},
				{"inline_data":{"mime_type":"image/png","data":"AA=="}},{"fileData":{"mimeType":"image/jpeg","fileUri":"https://x/y.jpg"}},
				{"inlineData":{"mimeType":"video/mp4","data":"AA=="}},{"hologram":{}}]}]}`,
			chat: `{"messages":[{"role":"system","content":"s\nt"},{"role":"user","content":[{"type":"text","text":"see"},` +
				`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"image_url","image_url":{"url":"https://x/y.jpg"}}]}],"model":"m"}`,
			edits: []string{"contents[].parts[].inlineData", "contents[].parts[].hologram"},
		},
		{
			name: "system instruction as a string", body: `{"systemInstruction":"s","contents":{"parts":{"text":"a"}}}`,
			chat: `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}],"model":"m"}`,
		},
		{
			name: "BC49: parallel calls of one name without ids, a foreign signature",
			body: `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"read","args":{"p":"a"}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"read","args":{"p": "b"}}}]},
				{"role":"user","parts":[{"functionResponse":{"name":"read","response":{"r":1}}},{"functionResponse":{"name":"read","response":{"r":2}}}]}]}`,
			chat: `{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"p\":\"a\"}"}},` +
				`{"id":"call_2","type":"function","function":{"name":"read","arguments":"{\"p\": \"b\"}"}}]},` +
				`{"role":"tool","tool_call_id":"call_1","content":"{\"r\":1}"},{"role":"tool","tool_call_id":"call_2","content":"{\"r\":2}"}],"model":"m"}`,
			edits: []string{"contents[].parts[].thoughtSignature"},
		},
		{
			name: "responses pair by id, else by name, else in order; text beside them is a message",
			body: `{"contents":[{"role":"model","parts":[{"functionCall":{"id":"k1","name":"a"}},{"functionCall":{"id":"k2","name":"b","args":{}}},{"functionCall":{"id":"k3","name":"a","args":{}}},{"functionCall":{"id":"k4","name":"c"}}]},
				{"role":"user","parts":[{"functionResponse":{"id":"k3","name":"a","response":{"output":"3 \u00e9"}}},{"functionResponse":{"name":"a","response":{"output":1}}},
				{"text":"and"},{"functionResponse":{"name":"b","response":{"error":"e"}}},{"functionResponse":{"name":"x","response":{"output":"4"}}},{"functionResponse":{"name":"y"}}]}]}`,
			chat: `{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"k1","type":"function","function":{"name":"a","arguments":"{}"}},{"id":"k2","type":"function","function":{"name":"b","arguments":"{}"}},` +
				`{"id":"k3","type":"function","function":{"name":"a","arguments":"{}"}},{"id":"k4","type":"function","function":{"name":"c","arguments":"{}"}}]},` +
				`{"role":"tool","tool_call_id":"k3","content":"3 \u00e9"},{"role":"tool","tool_call_id":"k1","content":"{\"output\":1}"},{"role":"user","content":"and"},` +
				`{"role":"tool","tool_call_id":"k2","content":"{\"error\":\"e\"}"},{"role":"tool","tool_call_id":"k4","content":"4"},{"role":"tool","tool_call_id":"call_of_y","content":""}],"model":"m"}`,
		},
		{
			name: "thoughts: our seal, plain text, another reply",
			body: `{"contents":[{"role":"user","parts":[{"text":"q"}]},
				{"role":"model","parts":[{"text":"shown otherwise","thought":true}]},
				{"role":"model","parts":[{"text":"le","thoughtSignature":"` + seal + `"},{"text":"t"}]},{"role":"model","parts":[{"text":""},{}]},
				{"role":"user","parts":[{"text":"r"}]},
				{"role":"model","parts":[{"text":"hm","thought":true},{"text":"so"},{"executableCode":{"code":"x"}}]}]}`,
			chat: `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"let","reasoning":"I \"see\".\n"},{"role":"user","content":"r"},` +
				`{"role":"assistant","content":"so","reasoning":"hm"}],"model":"m"}`,
			edits: []string{"contents[].parts[].executableCode"},
		},
		{
			name: "functions with either schema, built-in tools, choices",
			body: `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"read","description":"d","parameters":{"type":"OBJECT","properties":{"p":{"type":"STRING","nullable":true},"min_items":{"type":"ARRAY","items":{"type":"INTEGER"},"min_items":"1"}},"propertyOrdering":["p"],"required":["p"]},"behavior":"BLOCKING"},
				{"name":"write","parametersJsonSchema":{"type":"object"}},{"name":"other"}]},{"googleSearch":{}}],
				"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["read","write"]}}}`,
			chat: `{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"read","description":"d","parameters":{"type":"object","properties":{"p":{"type":["string","null"]},"min_items":{"type":"array","items":{"type":"integer"},"minItems":1}},"required":["p"]}}},` +
				`{"type":"function","function":{"name":"write","parameters":{"type":"object"}}}],"model":"m","tool_choice":"required"}`,
			edits:       []string{"toolConfig.functionCallingConfig.allowedFunctionNames", "tools[].functionDeclarations[].behavior", "tools[].googleSearch"},
			constraints: []string{"toolConfig"},
		},
		{
			name: "one forced function", body: `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"function_declarations":[{"name":"f"}]}],"tool_config":{"function_calling_config":{"mode":"ANY","allowed_function_names":["f"]}}}`,
			chat: `{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f"}}],"model":"m","tool_choice":{"type":"function","function":{"name":"f"}}}`, constraints: []string{"toolConfig"},
		},
		{
			name: "a choice without tools", body: `{"contents":[{"parts":[{"text":"q"}]}],"tools":[],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}`,
			chat: `{"messages":[{"role":"user","content":"q"}],"model":"m"}`,
		},
		{
			name: "parameters",
			body: `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"temperature":0.70,"topP":0.95,"top_k":64,"maxOutputTokens":"1024","stopSequences":["x"],"candidateCount":2,"seed":7,"presencePenalty":0.5,"frequencyPenalty":1,
				"responseMimeType":"application/json","responseSchema":{"type":"ARRAY","items":{"type":"STRING","enum":["A"]}},"thinkingConfig":{"thinkingBudget":-1,"includeThoughts":true},"responseLogprobs":true,"audioTimestamp":true,"speechConfig":null},
				"safetySettings":[],"labels":{"a":"b"},"who":1}`,
			chat: `{"messages":[{"role":"user","content":"q"}],"model":"m","temperature":0.70,"top_p":0.95,"top_k":64,"max_tokens":1024,"stop":["x"],"n":2,"seed":7,"presence_penalty":0.5,"frequency_penalty":1,` +
				`"response_format":{"type":"json_schema","json_schema":{"name":"response","schema":{"type":"array","items":{"type":"string","enum":["A"]}}}}}`,
			edits: []string{
				"generationConfig.thinkingConfig.thinkingBudget", "generationConfig.responseLogprobs", "generationConfig.audioTimestamp", "safetySettings", "labels", "who",
			},
			constraints: []string{"generationConfig.responseSchema"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := decodeGoogle(t, c.body, false)
			if got := string(r.Doc.Bytes); got != c.chat {
				t.Errorf("got  %s\nwant %s", got, c.chat)
			}
			if d := cmp.Diff(c.edits, editParams(r.Edits)); d != "" {
				t.Errorf("edits: %s", d)
			}
			if d := cmp.Diff(c.constraints, r.Constraints); d != "" {
				t.Errorf("constraints: %s", d)
			}
		})
	}
}

func TestGoogleRequestFields(t *testing.T) {
	r := decodeGoogle(t, `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"max_output_tokens":64,"topK":40,"thinkingConfig":{"includeThoughts":false}}}`, true)
	if r.Model != "m" || !r.Stream || r.MaxTokens == nil || *r.MaxTokens != 64 || r.CapKey != "max_tokens" || r.Dialect != record.Google || !r.google.hideThoughts {
		t.Errorf("%+v", r)
	}
	if got := string(r.Sampling); got != `{"max_output_tokens":64,"topK":40,"thinkingConfig":{"includeThoughts":false}}` {
		t.Errorf("sampling %s", got)
	}
	if got := string(r.Doc.Get("stream")); got != "true" {
		t.Errorf("stream %s", got)
	}
	var parts []string
	for i := 0; i+1 < len(r.Cuts); i += 2 {
		parts = append(parts, string(r.Original[r.Cuts[i]:r.Cuts[i+1]]))
	}
	if d := cmp.Diff([]string{`{"parts":[{"text":"q"}]}`, `{"functionDeclarations":[{"name":"f"}]}`}, parts); d != "" {
		t.Error(d)
	}
}

func TestGoogleRefused(t *testing.T) {
	const q = `"contents":[{"parts":[{"text":"q"}]}]`
	for body, want := range map[string]string{
		`[]`: "no JSON object", `{}`: "no contents", `{"contents":[]}`: "no contents", `{"contents":["x"]}`: "must be an object", `{"contents":[{"parts":["x"]}]}`: "must be an object",
		`{"contents":[{"role":"alien","parts":[{"text":"x"}]}]}`:                                            "alien",
		`{` + q + `,"cachedContent":"cachedContents/1"}`:                                                    "cached content",
		`{` + q + `,"generationConfig":{"responseMimeType":"text/x.enum","responseSchema":{"enum":["A"]}}}`: "text/x.enum",
		`{` + q + `,"generationConfig":{"candidateCount":2}}`:                                               "without streaming",
		`{` + q + `,"generationConfig":7}`:                                                                  "must be an object",
		`{` + q + `,"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}}`:                                "SOME",
		`{` + q + `,"tools":[{"functionDeclarations":[{"name":"f","parameters":7}]}]}`:                      "no schema",
		strings.Repeat(`{"a":`, 2000):                                                                       "too deeply",
	} {
		_, err := DecodeGoogle([]byte(body), "m", true)
		var refused *Error
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Text, want) {
			t.Errorf("%.80s: %v, want a 400 about %q", body, err, want)
		}
	}
}

func TestGoogleCountTokens(t *testing.T) {
	for _, body := range append(caseBodies(t, "BC49", "/v1beta/models/m:countTokens"), []byte(`{"generateContentRequest":{"model":"models/m","contents":[{"role":"user","parts":[{"text":"x"}]}]}}`)) {
		r, err := CountTokensGoogle(body, "m")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.Doc.Bytes); got != `{"messages":[{"role":"user","content":"x"}],"model":"m"}` {
			t.Errorf("%s", got)
		}
	}
	if got := string(GoogleCount(7)); got != `{"totalTokens":7}` {
		t.Error(got)
	}
}

func TestJSONSchema(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"OBJECT","properties":{"any_of":{"any_of":[{"type":"NUMBER"},{"type":"TYPE_UNSPECIFIED"}]}},"additional_properties":{"type":"BOOLEAN"}}`: `{"type":"object","properties":{"any_of":{"anyOf":[{"type":"number"},{}]}},"additionalProperties":{"type":"boolean"}}`,
		`{"nullable":true,"type":"STRING","default":"A:B","format":"enum"}`:                                                                               `{"type":["string","null"],"default":"A:B","format":"enum"}`,
		`{"type":["string","null"],"nullable":true,"items":true}`:                                                                                         `{"type":["string","null"],"items":true}`,
		`{"nullable":true,"max_length":"9","example":{"type":"OBJECT"}}`:                                                                                  `{"maxLength":9,"example":{"type":"OBJECT"}}`,
	} {
		got, err := jsonSchema([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", in, err, got, want)
		}
	}
}

func FuzzDecodeGoogle(f *testing.F) {
	for _, body := range caseBodies(f, "BC49", "/v1beta/models") {
		f.Add(body)
	}
	f.Add([]byte(`{"system_instruction":{"parts":[1,"x",{}]},"contents":[{"role":"model","parts":[{"functionCall":7},{"thought":true,"thoughtSignature":""}]},{"parts":[{"functionResponse":{"parts":[{}]}}]}],"tools":[{"functionDeclarations":[{"name":"","parameters":{"properties":[],"anyOf":{}}}]}],"generationConfig":{"topK":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeGoogle(body, "m", false)
		var refused *Error
		if err != nil {
			if !errors.As(err, &refused) || refused.Status != 400 || refused.Text == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		wellTranslated(t, r)
	})
}
