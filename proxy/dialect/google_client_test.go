package dialect

import (
	"encoding/json"
	"strings"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genai"
)

func checkGoogle(t failer, heard []*genai.GenerateContentResponse, said *Said, hidden bool) {
	t.Helper()
	var text, reasoning string
	var calls []*genai.FunctionCall
	signed := ""
	for _, r := range heard {
		if r.ModelVersion != "gemini-x" || r.ResponseID != "7" || r.Candidates[0].Content.Role != "model" {
			t.Fatalf("%+v", r)
		}
		for _, p := range r.Candidates[0].Content.Parts {
			if p.ThoughtSignature != nil {
				own, ok := Unseal(string(p.ThoughtSignature))
				if !ok {
					t.Fatalf("signature %q", p.ThoughtSignature)
				}
				signed = string(own)
			}
			switch {
			case p.Thought:
				reasoning += p.Text
			case p.FunctionCall != nil:
				calls = append(calls, p.FunctionCall)
			default:
				text += p.Text
			}
		}
	}
	if signed != string(said.Reasoning) || hidden != (reasoning == "" && len(said.Reasoning) > 0) && len(said.Reasoning) > 0 || !hidden && reasoning != string(said.Reasoning) {
		t.Fatalf("thought %q, signed %q, want %q", reasoning, signed, said.Reasoning)
	}
	if len(text) != len(said.Text)+len(said.Refusal) || len(said.Refusal) == 0 && text != string(said.Text) {
		t.Fatalf("text %q", text)
	}
	if len(calls) != len(said.Calls) {
		t.Fatalf("%d calls, want %d", len(calls), len(said.Calls))
	}
	for i, c := range said.Calls {
		want := string(c.Arguments)
		if strings.TrimSpace(want) == "" {
			want = "{}"
		}
		if !isObject([]byte(want)) && !strings.HasPrefix(want, "{}{") {
			wrapped, _ := json.Marshal(map[string]string{unparsedArguments: want})
			want = string(wrapped)
		}
		var args map[string]any
		if !strings.HasPrefix(want, "{}{") {
			if err := json.Unmarshal([]byte(want), &args); err != nil {
				t.Fatalf("%v", err)
			}
			if d := cmp.Diff(args, calls[i].Args); d != "" && len(args) > 0 {
				t.Fatalf("%s", d)
			}
		}
		if calls[i].ID != c.ID || calls[i].Name != c.Name {
			t.Fatalf("call %+v, want %+v", calls[i], c)
		}
	}
	last := heard[len(heard)-1]
	if string(last.Candidates[0].FinishReason) != finishReason(said) {
		t.Fatalf("finish reason %s", last.Candidates[0].FinishReason)
	}
	if u := last.UsageMetadata; u == nil || u.PromptTokenCount != 163 || u.CandidatesTokenCount != 23 || u.ThoughtsTokenCount != 8 || u.CachedContentTokenCount != 128 || u.TotalTokenCount != 194 {
		t.Fatalf("usage %+v", u)
	}
}

// checkGoogleEcho decodes a request whose history holds an answer of ours, one content for each chunk, as the client's own
// types spell it.
func checkGoogleEcho(t failer, heard []*genai.GenerateContentResponse, said *Said, thoughts bool) {
	t.Helper()
	var contents []string
	for _, r := range heard {
		content := genai.Content{Role: "model"}
		for _, p := range r.Candidates[0].Content.Parts {
			if thoughts || !p.Thought {
				content.Parts = append(content.Parts, p)
			}
		}
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatalf("%v", err)
		}
		contents = append(contents, string(raw))
	}
	r, err := DecodeGoogle([]byte(`{"contents":[{"parts":[{"text":"u"}]},`+strings.Join(contents, ",")+`,{"parts":[{"text":"v"}]}]}`), "m", false)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if len(said.Text)+len(said.Refusal)+len(said.Reasoning)+len(said.Calls) == 0 {
		return
	}
	if len(r.Messages) != 3 || len(r.Edits) != 0 {
		t.Fatalf("messages %s, edits %+v", r.Messages, r.Edits)
	}
	var m struct {
		Role, Content, Reasoning string
		ToolCalls                []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(r.Messages[1], &m); err != nil {
		t.Fatalf("%v", err)
	}
	if m.Role != "assistant" || m.Reasoning != string(said.Reasoning) || len(said.Refusal) == 0 && m.Content != string(said.Text) || len(m.ToolCalls) != len(said.Calls) {
		t.Fatalf("%s is not %q %q", r.Messages[1], said.Reasoning, said.Text)
	}
	for i, c := range said.Calls {
		got := m.ToolCalls[i]
		if got.ID != c.ID || got.Function.Name != c.Name {
			t.Fatalf("call %+v", got)
		}
		want := string(c.Arguments)
		switch {
		case strings.HasPrefix(want, "{}{"):
		case strings.TrimSpace(want) == "":
			if got.Function.Arguments != "{}" {
				t.Fatalf("arguments %q", got.Function.Arguments)
			}
		case isObject(c.Arguments):
			var sent, back map[string]any // this client writes JSON anew
			if json.Unmarshal(c.Arguments, &sent) != nil || json.Unmarshal([]byte(got.Function.Arguments), &back) != nil || len(sent) > 0 && !cmp.Equal(sent, back) {
				t.Fatalf("arguments %q, want %q", got.Function.Arguments, want)
			}
		case got.Function.Arguments != want:
			t.Fatalf("arguments %q, want %q", got.Function.Arguments, want)
		}
	}
}
