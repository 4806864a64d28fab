package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/record"
)

// params are the edits' parameters, each with what it was.
func params(edits []record.Edit) []string {
	var out []string
	for _, e := range edits {
		out = append(out, e.Param+" "+string(e.From))
	}
	return out
}

func TestDecodeAnthropicMessages(t *testing.T) {
	signature := Seal([]byte("I should list.\n"))
	for _, c := range []struct {
		name, body string
		want       []string // messages
		edits      []string
	}{
		{
			name: "text", body: `{"model":"m","messages":[{"role":"user","content":"h\u00e9 \/"}]}`,
			want: []string{`{"role":"user","content":"h\u00e9 \/"}`},
		},
		{
			name: "system text", body: `{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}]}`,
			want: []string{`{"role":"system","content":"s"}`, `{"role":"user","content":"a\nb"}`},
		},
		{
			name: "leading system text is one message, later system text keeps its place",
			body: `{"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],"messages":[
				{"role":"system","content":"c"},{"role":"developer","content":[{"type":"text","text":"d"}]},{"role":"user","content":"u"},{"role":"system","content":[{"type":"text","text":"e"}]},
				{"role":"system","content":"f"},{"role":"user","content":"v"}]}`,
			want: []string{`{"role":"system","content":"a\nb\nc\nd"}`, `{"role":"user","content":"u"}`, `{"role":"system","content":"e"}`, `{"role":"system","content":"f"}`,
				`{"role":"user","content":"v"}`},
			edits: []string{`cache_control {"type":"ephemeral"}`},
		},
		{
			name:  "billing line as a block",
			body:  `{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=a1;"},{"type":"text","text":"s"}],"messages":[]}`,
			want:  []string{`{"role":"system","content":"s"}`},
			edits: []string{`system[0] "x-anthropic-billing-header: cc_version=2; cch=a1;"`},
		},
		{
			name:  "billing line at the top of a text",
			body:  `{"system":"x-anthropic-billing-header: C:\\new;\ns\nt","messages":[]}`,
			want:  []string{`{"role":"system","content":"s\nt"}`},
			edits: []string{`system "x-anthropic-billing-header: C:\\new;"`},
		},
		{
			name: "a billing line elsewhere is text",
			body: `{"system":[{"type":"text","text":"s"},{"type":"text","text":"x-anthropic-billing-header: 1"}],"messages":[{"role":"user","content":"x-anthropic-billing-header: 2"}]}`,
			want: []string{`{"role":"system","content":"s\nx-anthropic-billing-header: 1"}`, `{"role":"user","content":"x-anthropic-billing-header: 2"}`},
		},
		{
			name: "images",
			body: `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO\/w=="}},
				{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},{"type":"image","source":{"type":"file","file_id":"f1"}}]}]}`,
			want: []string{`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO\/w=="}},` +
				`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`},
			edits: []string{`messages[].content[] {"type":"image","source":{"type":"file","file_id":"f1"}}`},
		},
		{
			name: "documents",
			body: `{"messages":[{"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"d"}},
				{"type":"document","source":{"type":"content","content":[{"type":"text","text":"e"}]}},{"type":"document","source":{"type":"base64","data":"JVBERi0="}}]}]}`,
			want:  []string{`{"role":"user","content":"d\ne"}`},
			edits: []string{`messages[].content[].title "T"`, `messages[].content[] {"type":"document","source":{"type":"base64","data":"JVBERi0="}}`},
		},
		{
			name: "calls and results",
			body: `{"messages":[{"role":"assistant","content":[{"type":"text","text":"I "},{"type":"text","text":"look."},
				{"type":"tool_use","id":"k1","name":"bash","input":{"command": "ls", "n": 1.50, "big":9007199254740993}},{"type":"tool_use","id":"k2","name":"now","input":{}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"k2","content":"noon"},{"type":"tool_result","tool_use_id":"k1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
				{"type":"text","text":"go on"}]}]}`,
			want: []string{`{"role":"assistant","content":"I look.","tool_calls":[{"id":"k1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\", \"n\": 1.50, \"big\":9007199254740993}"}},` +
				`{"id":"k2","type":"function","function":{"name":"now","arguments":"{}"}}]}`,
				`{"role":"tool","tool_call_id":"k2","content":"noon"}`, `{"role":"tool","tool_call_id":"k1","content":"a\nb"}`, `{"role":"user","content":"go on"}`},
		},
		{
			name: "failed calls, an image as a result, results behind text",
			body: `{"messages":[{"role":"user","content":[{"type":"text","text":"hm"},{"type":"tool_result","tool_use_id":"k1","is_error":true,"content":"no such file"},
				{"type":"tool_result","tool_use_id":"k2","is_error":true},{"type":"tool_result","tool_use_id":"k3","is_error":false},
				{"type":"tool_result","tool_use_id":"k4","content":[{"type":"image","source":{"type":"url","url":"u"}},{"type":"tool_reference","tool_name":"x"}]}]}]}`,
			want: []string{`{"role":"tool","tool_call_id":"k1","content":"no such file"}`, `{"role":"tool","tool_call_id":"k2","content":"error"}`, `{"role":"tool","tool_call_id":"k3","content":""}`,
				`{"role":"tool","tool_call_id":"k4","content":[{"type":"image_url","image_url":{"url":"u"}}]}`, `{"role":"user","content":"hm"}`},
			edits: []string{`messages[].content null`, `messages[].content[].is_error true`, `messages[].content[].content[] {"type":"tool_reference","tool_name":"x"}`},
		},
		{
			name: "our thinking, whatever became of its text",
			body: `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + signature + `"},{"type":"text","text":"ok"}]},{"role":"user","content":"u"}]}`,
			want: []string{`{"role":"assistant","content":"ok","reasoning":"I should list.\n"}`, `{"role":"user","content":"u"}`},
		},
		{
			name: "another provider's thinking",
			body: `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"c2ln"},{"type":"redacted_thinking","data":"ZGF0YQ=="},
				{"type":"thinking","thinking":"b"}]},{"role":"user","content":"u"}]}`,
			want:  []string{`{"role":"assistant","content":"","reasoning":"a\nb"}`, `{"role":"user","content":"u"}`},
			edits: []string{`messages[].content[].signature "c2ln"`, `messages[].content[] {"type":"redacted_thinking","data":"ZGF0YQ=="}`},
		},
		{
			name: "an answer in pieces is one message",
			body: `{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"` + signature + `"}]},{"role":"assistant","content":"b"},
				{"role":"assistant","content":[{"type":"tool_use","id":"k","name":"f","input":{"__unparsed_arguments":"{\"a\":"}}]},{"role":"user","content":"u"},{"role":"user","content":"v"}]}`,
			want: []string{`{"role":"assistant","content":"b","reasoning":"I should list.\n","tool_calls":[{"id":"k","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}`,
				`{"role":"user","content":"u"}`, `{"role":"user","content":"v"}`},
		},
		{
			name: "the provider's own tools in the history",
			body: `{"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},
				{"type":"text","text":"t","citations":[{"a":1}]}]},{"role":"user","name":"bob","content":[{"type":"container_upload","file_id":"f"},"bare"]}]}`,
			want: []string{`{"role":"assistant","content":"t"}`, `{"role":"user","content":""}`},
			edits: []string{`messages[].content[] {"type":"server_tool_use","id":"s","name":"web_search","input":{}}`, `messages[].content[] {"type":"web_search_tool_result","tool_use_id":"s","content":[]}`,
				`messages[].content[].citations [{"a":1}]`, `messages[].name "bob"`, `messages[].content[] {"type":"container_upload","file_id":"f"}`, `messages[].content[] "bare"`},
		},
		{
			name:  "the assistant has the last word",
			body:  `{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"{"}]}`,
			want:  []string{`{"role":"user","content":"u"}`, `{"role":"assistant","content":"{"}`},
			edits: []string{`messages null`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := DecodeAnthropic([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range r.Messages {
				got = append(got, string(m))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.edits, params(r.Edits)); d != "" {
				t.Error(d)
			}
			wellTranslated(t, r)
		})
	}
}

// wellTranslated checks what holds for every request that was decoded.
func wellTranslated(t testing.TB, r *Request) {
	t.Helper()
	if !json.Valid(r.Doc.Bytes) {
		t.Fatalf("not JSON: %s", r.Doc.Bytes)
	}
	var body struct{ Messages, Tools []json.RawMessage }
	if err := json.Unmarshal(r.Doc.Bytes, &body); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(body.Messages, append([]json.RawMessage{}, r.Messages...)); d != "" {
		t.Error("Messages are not those of the body: " + d)
	}
	if d := cmp.Diff(body.Tools, r.Tools); d != "" {
		t.Error("Tools are not those of the body: " + d)
	}
	if !json.Valid(r.Sampling) {
		t.Errorf("sampling %s", r.Sampling)
	}
	for i, cut := range r.Cuts {
		if cut < 0 || cut > len(r.Original) || i > 0 && cut < r.Cuts[i-1] {
			t.Errorf("cuts %v of %d bytes", r.Cuts, len(r.Original))
		}
	}
	for _, e := range r.Edits {
		if e.Kind != record.EditTranslate || e.Why == "" || !json.Valid(e.From) || !json.Valid(e.To) {
			t.Errorf("edit %+v", e)
		}
	}
	if r.Asks != (Asks{}) {
		t.Errorf("token data is never this harness's: %+v", r.Asks)
	}
}

func TestDecodeAnthropicParameters(t *testing.T) {
	const tools = `"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"},"defer_loading":true},` +
		`{"type":"custom","name":"g","description":null},{"type":"web_search_20250305","name":"web_search","max_uses":2}]`
	const inChat = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g"}}]`
	left := []string{`cache_control {"type":"ephemeral"}`, `tools[].defer_loading true`, `tools[] {"type":"web_search_20250305","name":"web_search","max_uses":2}`}
	for _, c := range []struct {
		name, body, want string // without messages
		sampling         string
		edits            []string
		constraints      []string
	}{
		{
			name: "sampling", body: `"model":"m","max_tokens":64,"stream":true,"temperature":0.70,"top_p":1,"top_k":40,"stop_sequences":["\u00e9"]`,
			want:     `"model":"m","max_tokens":64,"stream":true,"temperature":0.70,"top_p":1,"top_k":40,"stop":["\u00e9"]`,
			sampling: `{"max_tokens":64,"temperature":0.70,"top_p":1,"top_k":40,"stop_sequences":["\u00e9"]}`,
		},
		{
			name: "what says nothing", body: `"model":"m","temperature":null,"stop_sequences":[],"system":null,"tools":null,"tool_choice":null,"thinking":null,"stream":false`,
			want: `"model":"m","stream":false`, sampling: `{}`,
		},
		{
			name: "what chat has not", want: `"model":"m"`, sampling: `{}`,
			body: `"model":"m","thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"context_management":{"edits":[]},"output_config":{"effort":"high","format":null},` +
				`"service_tier":"auto","cache_control":{"type":"ephemeral"},"mcp_servers":[{"url":"u"}]`,
			edits: []string{`thinking {"type":"enabled","budget_tokens":1024}`, `metadata {"user_id":"u"}`, `context_management {"edits":[]}`, `output_config.effort "high"`, `service_tier "auto"`,
				`cache_control {"type":"ephemeral"}`, `mcp_servers [{"url":"u"}]`},
		},
		{
			name: "of a repeated key the last one counts", body: `"temperature":0,"model":"a","temperature":1,"model":"b"`, want: `"temperature":1,"model":"b"`, sampling: `{"temperature":1}`,
		},
		{name: "tools", body: tools, want: inChat, sampling: `{}`, edits: left},
		{name: "auto", body: tools + `,"tool_choice":{"type":"auto"}`, want: inChat + `,"tool_choice":"auto"`, sampling: `{}`, edits: left},
		{name: "none", body: tools + `,"tool_choice":{"type":"none"}`, want: inChat + `,"tool_choice":"none"`, sampling: `{}`, edits: left},
		{
			name: "any", body: tools + `,"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, want: inChat + `,"tool_choice":"required","parallel_tool_calls":false`, sampling: `{}`, edits: left,
			constraints: []string{"tool_choice"},
		},
		{
			name: "one tool", body: tools + `,"tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":false}`, want: inChat + `,"tool_choice":{"type":"function","function":{"name":"g"}}`, sampling: `{}`, edits: left,
			constraints: []string{"tool_choice"},
		},
		{name: "no tools", body: `"tools":[],"tool_choice":{"type":"auto"}`, sampling: `{}`, edits: []string{`tools []`, `tool_choice {"type":"auto"}`}},
		{name: "nothing to choose from", body: `"tool_choice":{"type":"any"}`, sampling: `{}`, edits: []string{`tool_choice {"type":"any"}`}},
		{
			name: "a forced format", body: `"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`, sampling: `{}`,
			want: `"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{"type":"object"}}}`, constraints: []string{"output_config.format"},
		},
		{
			name: "a forced format, older spelling", body: `"output_format":{"type":"json_schema","schema":{}}`, sampling: `{}`,
			want: `"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{}}}`, constraints: []string{"output_format"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := DecodeAnthropic([]byte(`{"messages":[],` + c.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"messages":[],` + c.want + `}`
			if c.want == "" {
				want = `{"messages":[]}`
			}
			if got := string(r.Doc.Bytes); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := string(r.Sampling); got != c.sampling {
				t.Errorf("sampling %s, want %s", got, c.sampling)
			}
			if d := cmp.Diff(c.edits, params(r.Edits)); d != "" {
				t.Error(d)
			}
			if !slices.Equal(r.Constraints, c.constraints) {
				t.Errorf("constraints %v", r.Constraints)
			}
			wellTranslated(t, r)
		})
	}
}

func TestAnthropicRequestFields(t *testing.T) {
	body := `{"model":"claude-x","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"u"}],"tools":[{"name":"f"}]}`
	r, err := DecodeAnthropic([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Dialect != record.AnthropicMessages || string(r.Original) != body || r.Model != "claude-x" || !r.Stream || r.MaxTokens == nil || *r.MaxTokens != 32000 || r.CapKey != "max_tokens" {
		t.Errorf("got %+v", r)
	}
	var pieces []string
	for i := 0; i+1 < len(r.Cuts); i += 2 {
		pieces = append(pieces, body[r.Cuts[i]:r.Cuts[i+1]])
	}
	if d := cmp.Diff([]string{`{"type":"text","text":"s"}`, `{"role":"user","content":"u"}`, `{"name":"f"}`}, pieces); d != "" {
		t.Error(d)
	}
}

func TestAnthropicRefusals(t *testing.T) {
	for body, param := range map[string]string{
		``: "", `[]`: "", `{"messages":[}`: "", `{"messages":` + strings.Repeat("[", 2000): "",
		`{}`: "messages", `{"messages":"hi"}`: "messages", `{"messages":["hi"]}`: "messages[0]", `{"messages":[{"content":"x"}]}`: "messages[0].role",
		`{"messages":[{"role":"user","content":"a"},{"role":"user","content":7}]}`: "messages[1].content", `{"messages":[],"system":{}}`: "system", `{"messages":[],"tools":{}}`: "tools",
		`{"messages":[],"tools":["f"]}`: "tools[0]", `{"messages":[],"tools":[{}]}`: "tools[0].name", `{"messages":[],"tools":[{"name":"f"}],"tool_choice":"auto"}`: "tool_choice.type",
		`{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}}`:                                   "tool_choice",
		`{"messages":[],"tools":[{"name":"f"},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}}`: "tool_choice",
		`{"messages":[],"output_config":{"format":{"type":"xml"}}}`:                                                                                   "output_config.format", `{"messages":[],"output_format":{"type":"json_schema"}}`: "output_format",
	} {
		_, err := DecodeAnthropic([]byte(body))
		var refused *Error
		if !errors.As(err, &refused) {
			t.Errorf("%.80s: %v", body, err)
			continue
		}
		if refused.Status != 400 || refused.Param != param || refused.Text == "" {
			t.Errorf("%.80s: %+v", body, refused)
		}
	}
}

// What nests at the limit of what is read nests one deeper as a chat tool: refused, as deeper bodies are.
func TestAnthropicDepth(t *testing.T) {
	body := func(deep int) []byte {
		return fmt.Appendf(nil, `{"messages":[],"tools":[{"name":"f","input_schema":%s%s}]}`, strings.Repeat(`{"a":`, deep)+"{}", strings.Repeat("}", deep))
	}
	for deep, ok := range map[int]bool{900: true, 995: true, 996: false, 997: false} {
		_, err := DecodeAnthropic(body(deep))
		var refused *Error
		if ok != (err == nil) || !ok && !errors.As(err, &refused) {
			t.Errorf("%d deep: %v", deep, err)
		}
	}
}

// claude-code's next request: other cache marks, another nonce, a system entry that turned from blocks into a string, the
// answer in between. The messages of the first one begin those of the second, byte for byte.
func TestAnthropicNextPromptExtends(t *testing.T) {
	signature := Seal([]byte("Look first."))
	const tools = `"tools":[{"name":"Bash","input_schema":{"type":"object"}%s}]`
	first := `{"model":"m","max_tokens":32000,"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],
		"messages":[{"role":"user","content":[{"type":"text","text":"<system-reminder>r</system-reminder>"},{"type":"text","text":"fix it","cache_control":{"type":"ephemeral"}}]},
		{"role":"system","content":[{"type":"text","text":"mode: plan","cache_control":{"type":"ephemeral"}}]}],` + fmt.Sprintf(tools, `,"cache_control":{"type":"ephemeral"}`) + `}`
	second := `{"model":"m","max_tokens":32000,"system":[{"type":"text","text":"x-anthropic-billing-header: cch=2;"},{"type":"text","text":"You are an agent."}],
		"messages":[{"role":"user","content":[{"type":"text","text":"<system-reminder>r</system-reminder>"},{"type":"text","text":"fix it"}]},
		{"role":"system","content":"mode: plan"},{"role":"assistant","content":[{"type":"thinking","thinking":"Look first.","signature":"` + signature + `"},
		{"type":"tool_use","id":"k","name":"Bash","input":{"command":"ls"}}]},{"role":"user","content":[{"tool_use_id":"k","type":"tool_result","content":"a.go","cache_control":{"type":"ephemeral"}}]}],` + fmt.Sprintf(tools, "") + `}`
	one, err := DecodeAnthropic([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	two, err := DecodeAnthropic([]byte(second))
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Messages) != 3 || len(two.Messages) != 5 {
		t.Fatalf("messages %s, then %s", one.Messages, two.Messages)
	}
	if d := cmp.Diff(one.Messages, two.Messages[:3]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(one.Tools, two.Tools); d != "" {
		t.Error(d)
	}
	if got, want := string(two.Messages[3]), `{"role":"assistant","content":"","reasoning":"Look first.","tool_calls":[{"id":"k","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"ls\"}"}}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A long history repeats no edit, and quotes no long value.
func TestAnthropicEditsStayShort(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"messages":[`)
	for i := range 200 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"assistant","content":[{"type":"redacted_thinking","data":"%s"}]}`, strings.Repeat("é", 500))
	}
	b.WriteString(`,{"role":"user","content":"u"}]}`)
	r, err := DecodeAnthropic([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Edits) != 1 || len(r.Edits[0].From) > 2*maxFrom || !strings.Contains(string(r.Edits[0].From), "redacted_thinking") || !strings.Contains(r.Edits[0].Why, "200") {
		t.Errorf("edits %+v", r.Edits)
	}
	wellTranslated(t, r)
}
