package dialect

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/record"
)

func decodeResponses(t *testing.T, body string, previous Previous) *Request {
	t.Helper()
	r, err := DecodeResponses([]byte(body), previous)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	wellTranslated(t, r)
	return r
}

func editParams(edits []record.Edit) []string {
	var out []string
	for _, e := range edits {
		out = append(out, e.Param)
	}
	return out
}

func TestDecodeResponses(t *testing.T) {
	seal := Seal([]byte("I \"see\".\n"))
	for _, c := range []struct {
		name, body, chat string
		edits            []string
		constraints      []string
	}{
		{
			name: "a string", body: `{"model":"m","input":"hi \u00e9"}`,
			chat: `{"messages":[{"role":"user","content":"hi \u00e9"}],"model":"m"}`,
		},
		{
			name: "leading system text becomes one message, later system messages stay",
			body: `{"model":"m","instructions":"base","input":[
				{"type":"message","role":"developer","content":[{"type":"input_text","text":"be brief"}]},
				{"role":"user","content":"a"},
				{"role":"developer","content":"mode: plan"},
				{"role":"user","content":[{"type":"input_text","text":"b"},{"type":"input_text","text":"c"}]}],"stream":true}`,
			chat: `{"messages":[{"role":"system","content":"base\nbe brief"},{"role":"user","content":"a"},{"role":"system","content":"mode: plan"},` +
				`{"role":"user","content":"b\nc"}],"model":"m","stream":true}`,
		},
		{
			name: "BC45: developer, custom calls, a namespace, a custom tool",
			body: `{"model":"m","instructions":"base","input":[
				{"type":"message","role":"developer","content":[{"type":"input_text","text":"be brief"}]},
				{"type":"custom_tool_call","call_id":"k","name":"apply_patch","input":"*** x\n\u00e9"},
				{"type":"custom_tool_call_output","call_id":"k","output":"ok"}],
				"tools":[{"type":"namespace","name":"mcp","tools":[]},{"type":"custom","name":"apply_patch"},{"type":"function","name":"f","parameters":{"type":"object"}}]}`,
			chat: `{"messages":[{"role":"system","content":"base\nbe brief"},` +
				`{"role":"assistant","content":"","tool_calls":[{"id":"k","type":"function","function":{"name":"apply_patch","arguments":"{\"input\": \"*** x\\n\\u00e9\"}"}}]},` +
				`{"role":"tool","tool_call_id":"k","content":"ok"}],` +
				`"tools":[{"type":"function","function":{"name":"apply_patch","parameters":` + customParameters + `}},` +
				`{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"model":"m"}`,
		},
		{
			name: "a reply is one message again; sealed reasoning, foreign reasoning, plain reasoning",
			body: `{"input":[{"role":"user","content":"q"},
				{"type":"reasoning","summary":[],"encrypted_content":"` + seal + `"},
				{"type":"message","role":"assistant","content":[{"type":"output_text","text":"let me"}]},
				{"type":"function_call","call_id":"a","name":"f","arguments":"{\"x\": 1.50}"},
				{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},
				{"type":"function_call_output","call_id":"a","output":"1"},
				{"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"2"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"high"}]},
				{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAAA"},
				{"type":"message","role":"assistant","content":"one"},
				{"type":"message","role":"assistant","content":"two"},
				{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
				{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]}`,
			chat: `{"messages":[{"role":"user","content":"q"},` +
				`{"role":"assistant","content":"let me","reasoning":"I \"see\".\n","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1.50}"}},` +
				`{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
				`{"role":"tool","tool_call_id":"a","content":"1"},` +
				`{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"2"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"high"}}]},` +
				`{"role":"assistant","content":"one"},{"role":"assistant","content":"two"},` +
				`{"role":"assistant","content":"","reasoning":"hm","refusal":"no"}]}`,
			edits: []string{"input[].encrypted_content", "input[].summary"},
		},
		{
			name: "ids of ours tell replies apart",
			body: `{"input":[{"type":"reasoning","id":"rs_a_0","content":[{"type":"reasoning_text","text":"1"}]},{"type":"message","id":"msg_a_1","role":"assistant","content":"x"},
				{"type":"reasoning","id":"rs_a_2","content":[{"type":"reasoning_text","text":"2"}]},{"type":"message","id":"msg_a_3","role":"assistant","content":"y"},
				{"type":"function_call","id":"fc_b_0","call_id":"k","name":"f","arguments":"{}"},{"type":"message","id":"msg_c_0","role":"assistant","content":"z"}]}`,
			chat: `{"messages":[{"role":"assistant","content":"xy","reasoning":"12"},` +
				`{"role":"assistant","content":"","tool_calls":[{"id":"k","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"assistant","content":"z"}]}`,
		},
		{
			name: "a namespace's functions, its calls, a name that is taken",
			body: `{"model":"m","input":[{"role":"user","content":"q"},
				{"type":"function_call","call_id":"a","namespace":"mcp__files","name":"read","arguments":"{}"},
				{"type":"function_call","call_id":"b","namespace":"gone","name":"f","arguments":""}],
				"tools":[{"type":"namespace","name":"mcp__files","description":"","tools":[{"type":"function","name":"read","description":"r","strict":false,"parameters":{"type":"object"}}]},
				{"type":"function","name":"mcp__files__read","strict":true}]}`,
			chat: `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[` +
				`{"id":"a","type":"function","function":{"name":"mcp__files__read_","arguments":"{}"}},` +
				`{"id":"b","type":"function","function":{"name":"gone__f","arguments":""}}]}],` +
				`"tools":[{"type":"function","function":{"name":"mcp__files__read_","description":"r","parameters":{"type":"object"}}},` +
				`{"type":"function","function":{"name":"mcp__files__read","strict":true}}],"model":"m"}`,
		},
		{
			name: "parameters",
			body: `{"model":"m","input":"x","max_output_tokens":64,"temperature":0.70,"top_p":null,"seed":7,"parallel_tool_calls":false,"tool_choice":"auto","tools":[],
				"reasoning":{"effort":"high","summary":"auto"},"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}},
				"include":["reasoning.encrypted_content","message.output_text.logprobs"],"store":false,"truncation":"auto","metadata":{"a":"b"},
				"prompt_cache_key":"k","client_metadata":{},"stream_options":{"include_obfuscation":false},"background":false,"who":1}`,
			chat: `{"messages":[{"role":"user","content":"x"}],"model":"m","max_tokens":64,"temperature":0.70,"seed":7,"reasoning_effort":"high","verbosity":"low",` +
				`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}}`,
			edits:       []string{"reasoning.summary", "include[]", "truncation", "metadata", "prompt_cache_key", "client_metadata", "who"},
			constraints: []string{"text.format"},
		},
		{
			name: "a forced tool of a namespace",
			body: `{"model":"m","input":"x","tool_choice":{"type":"function","name":"read"},"tools":[{"type":"namespace","name":"mcp","tools":[{"type":"function","name":"read"}]},{"type":"web_search"}]}`,
			chat: `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"mcp__read"}}],"model":"m",` +
				`"tool_choice":{"type":"function","function":{"name":"mcp__read"}}}`,
			edits: []string{"tools[]"}, constraints: []string{"tool_choice"},
		},
		{
			name: "allowed tools",
			body: `{"model":"m","input":"x","tools":[{"type":"function","name":"f"},{"type":"custom","name":"g","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}}],` +
				`"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"g"}]}}`,
			chat: `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"g","description":"d\n\nThe input follows this grammar (lark):\nstart: \"x\"",` +
				`"parameters":` + customParameters + `}}],"model":"m","tool_choice":"required"}`,
			edits: []string{"tool_choice", "tools[].format"}, constraints: []string{"tool_choice"},
		},
		{
			name: "known items that chat has in another form, and unknown ones",
			body: `{"input":[{"role":"user","content":[{"type":"input_text","text":"q"},{"type":"input_image","file_id":"f"},{"type":"hologram"}]},
				{"type":"local_shell_call","call_id":"s","status":"completed","action":{"type":"exec","command":["ls"]}},
				{"type":"local_shell_call_output","id":"s","output":"a b"},
				{"type":"web_search_call","status":"completed","action":{"type":"search","query":"w"}},
				{"type":"compaction","encrypted_content":"zz"},{"type":"ghost_snapshot","ghost_commit":{}},
				{"type":"function_call_output","call_id":"t","output":{"content":"c"}},
				{"type":"function_call_output","call_id":"u","output":null}]}`,
			chat: `{"messages":[{"role":"user","content":"q"},` +
				`{"role":"assistant","content":"","tool_calls":[{"id":"s","type":"function","function":{"name":"local_shell","arguments":"{\"type\":\"exec\",\"command\":[\"ls\"]}"}}]},` +
				`{"role":"tool","tool_call_id":"s","content":"a b"},` +
				`{"role":"tool","tool_call_id":"t","content":"{\"content\":\"c\"}"},{"role":"tool","tool_call_id":"u","content":""}]}`,
			edits: []string{"input[].content[].input_image", "input[].content[].hologram", "input[].local_shell_call", "input[].web_search_call", "input[].compaction", "input[].ghost_snapshot"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := decodeResponses(t, c.body, nil)
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

func TestResponsesParameters(t *testing.T) {
	r := decodeResponses(t, `{"model":"m","input":[{"role":"user","content":"x"}],"stream":true,"max_output_tokens":64,"temperature":0.70,"tools":[{"type":"function","name":"f"}]}`, nil)
	if r.Model != "m" || !r.Stream || r.MaxTokens == nil || *r.MaxTokens != 64 || r.CapKey != "max_tokens" || r.Dialect != record.OpenAIResponses {
		t.Errorf("%+v", r)
	}
	if string(r.Sampling) != `{"max_output_tokens":64,"temperature":0.70}` {
		t.Errorf("sampling %s", r.Sampling)
	}
	var parts []string
	for i := 0; i+1 < len(r.Cuts); i += 2 {
		parts = append(parts, string(r.Original[r.Cuts[i]:r.Cuts[i+1]]))
	}
	if d := cmp.Diff([]string{`{"role":"user","content":"x"}`, `{"type":"function","name":"f"}`}, parts); d != "" {
		t.Error(d)
	}
	if len(r.Tools) != 1 || string(r.Tools[0]) != `{"type":"function","function":{"name":"f"}}` {
		t.Errorf("tools %s", r.Tools)
	}
}

func TestResponsesRefused(t *testing.T) {
	for body, want := range map[string]string{
		`[]`: "no JSON object", `{"model":"m"}`: "no input", `{"input":7}`: "a string or a list", `{"input":["x"]}`: "must be an object",
		`{"input":"x","background":true}`: "background", `{"input":"x","conversation":"c"}`: "conversation", `{"input":"x","prompt":{"id":"p"}}`: "prompt",
		`{"input":"x","previous_response_id":"r_missing"}`:                           "no response r_missing is known",
		`{"input":[{"type":"item_reference","id":"msg_1"}]}`:                         "no item msg_1 is known",
		`{"input":"x","text":{"format":{"type":"grammar"}}}`:                         "cannot be forced",
		`{"input":"x","tool_choice":{"type":"web_search"}}`:                          "web_search",
		`{"input":[{"role":"tool","content":"x"}]}`:                                  "role",
		`{"input":[{"role":"user","content":"long"},{"type":"compaction_trigger"}]}`: "compact", // BC44 C
		strings.Repeat(`{"a":`, 2000):                                                "too deeply",
	} {
		_, err := DecodeResponses([]byte(body), nil)
		var bad *Error
		if !errors.As(err, &bad) || bad.Status != 400 || !strings.Contains(bad.Text, want) {
			t.Errorf("%.80s: %v, want a 400 about %q", body, err, want)
		}
	}
}

// BC43: the next request holds only what is new; the call that it answers is in the record.
func TestBC43PreviousResponse(t *testing.T) {
	first := decodeResponses(t, `{"model":"m","store":true,"instructions":"old","input":"call f"}`, nil)
	a := Answer{ID: "r-1", Created: 5}
	said := &Said{Reasoning: []byte("think"), Calls: []SaidCall{{ID: "k1", Name: "f", Arguments: []byte(`{}`)}}, Finish: "tool_calls"}
	turn, err := ReadResponsesTurn(first.Original)
	if err != nil || turn.Previous != "" {
		t.Fatal(turn, err)
	}
	earlier, err := turn.Input(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	earlier = append(earlier, turn.Output(a, said)...)
	previous := func(id string) ([]json.RawMessage, bool) {
		return earlier, id == "resp_r-1"
	}
	const want = `{"messages":[{"role":"system","content":"new"},{"role":"user","content":"call f"},` +
		`{"role":"assistant","content":"","reasoning":"think","tool_calls":[{"id":"k1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"k1","content":"3"}],"model":"m"}`
	body := `{"model":"m","previous_response_id":"resp_r-1","instructions":"new","input":[{"type":"function_call_output","call_id":"k1","output":"3"}]}`
	r := decodeResponses(t, body, previous)
	if string(r.Doc.Bytes) != want {
		t.Errorf("got  %s\nwant %s", r.Doc.Bytes, want)
	}
	if turn, err = ReadResponsesTurn([]byte(body)); err != nil || turn.Previous != "resp_r-1" {
		t.Errorf("%+v, %v", turn, err)
	}
	if all, err := turn.Input(earlier, previous); err != nil || len(all) != 4 {
		t.Errorf("%d items, %v", len(all), err)
	}
	// A reference alone names the same items.
	body = `{"model":"m","instructions":"new","input":["call f",{"type":"item_reference","id":"rs_r-1_0"},{"type":"item_reference","id":"fc_r-1_1"},
		{"type":"function_call_output","call_id":"k1","output":"3"}]}`
	body = strings.Replace(body, `"call f"`, `{"role":"user","content":"call f"}`, 1)
	if r = decodeResponses(t, body, previous); string(r.Doc.Bytes) != want {
		t.Errorf("got  %s\nwant %s", r.Doc.Bytes, want)
	}
	if _, err := DecodeResponses([]byte(`{"previous_response_id":"resp_x","input":"x"}`), previous); err == nil {
		t.Error("an unknown response is a fresh start")
	}
}

func TestAnswerOf(t *testing.T) {
	for id, want := range map[string]string{
		"msg_abc_0": "abc", "rs_a_b_12": "a_b", "fc_68aabb": "", "msg_": "", "": "", "msg__1": "", "x_abc_": "", "msg_abc_d": "",
	} {
		if got := answerOf(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}

func FuzzDecodeResponses(f *testing.F) {
	f.Add([]byte(`{"model":"m","instructions":["x"],"input":[{"type":"message","role":"user","content":[{"type":"input_text"}]},{"type":"reasoning","content":[{"text":1}]}],"tools":[1,{"type":"namespace","tools":[{}]}]}`))
	f.Add([]byte(`{"input":[{"type":"function_call","arguments":{"a":"\ud800"},"call_id":1},{"type":"function_call_output","output":[{"a":1}]}],"input":"x","tool_choice":{"type":"allowed_tools","tools":[{}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeResponses(body, nil)
		var bad *Error
		if err != nil {
			if !errors.As(err, &bad) || bad.Status != 400 || bad.Text == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		wellTranslated(t, r)
		if out := ResponsesWhole(r, Answer{ID: "x"}, &Said{Text: []byte("t"), Finish: "stop"}); !json.Valid(out) {
			t.Fatalf("the answer is no JSON: %s", out)
		}
	})
}
