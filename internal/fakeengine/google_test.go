package fakeengine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"google.golang.org/genai"
)

// The official SDK drives a whole task, whole and streamed, sending everything back as it came; each prompt extends the one
// before and what was sampled for it.
func TestGoogleSDKTask(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		srv := startWire(t, Options{Wire: WireGoogle, Reasoning: true, Key: "k"})
		client, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: srv.URL}})
		if err != nil {
			t.Fatal(err)
		}
		config := &genai.GenerateContentConfig{
			Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "run_shell_command", Parameters: &genai.Schema{
				Type: genai.TypeObject, Properties: map[string]*genai.Schema{"command": {Type: genai.TypeString}}, Required: []string{"command"}}}}}},
		}
		contents := genai.Text("go 👋🏽")
		var before []int32
		steps := 0
		for {
			reply := &genai.Content{Role: genai.RoleModel}
			var last *genai.GenerateContentResponse
			if streaming {
				for chunk, err := range client.Models.GenerateContentStream(t.Context(), "gemini-x", contents, config) {
					if err != nil {
						t.Fatal(err)
					}
					reply.Parts = append(reply.Parts, chunk.Candidates[0].Content.Parts...)
					last = chunk
				}
			} else {
				if last, err = client.Models.GenerateContent(t.Context(), "gemini-x", contents, config); err != nil {
					t.Fatal(err)
				}
				reply = last.Candidates[0].Content
			}
			truth := truthOf(t, srv.Engine, last.ResponseID)
			if !strings.HasPrefix(spelled(truth.Prompt), strings.TrimSuffix(spelled(before), "]")) {
				t.Errorf("step %d: the prompt does not extend the one before", steps)
			}
			before = append(append([]int32(nil), truth.Prompt...), truth.Sampled[0]...)
			usage := last.UsageMetadata
			if last.Candidates[0].FinishReason != genai.FinishReasonStop || int(usage.CandidatesTokenCount+usage.ThoughtsTokenCount) != len(truth.Sampled[0]) || int(usage.PromptTokenCount) != len(truth.Prompt) {
				t.Errorf("%+v %+v", last.Candidates[0], usage)
			}
			contents = append(contents, reply)
			results := &genai.Content{Role: genai.RoleUser}
			for _, p := range reply.Parts {
				if p.FunctionCall != nil {
					if len(p.ThoughtSignature) == 0 || p.FunctionCall.Args["command"] == "" {
						t.Errorf("call %+v", p)
					}
					results.Parts = append(results.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{Name: p.FunctionCall.Name, Response: map[string]any{"output": "done"}}})
				}
			}
			if len(results.Parts) == 0 {
				break
			}
			contents = append(contents, results)
			steps++
		}
		if steps != DefaultSteps {
			t.Errorf("%d steps", steps)
		}
		n, err := client.Models.CountTokens(t.Context(), "gemini-x", genai.Text("hi"), nil)
		if err != nil || n.TotalTokens == 0 {
			t.Errorf("count %v, %v", n, err)
		}
	}
}

const googlePath = googleModels + "/gemini-x:"

const googleTools = `"tools":[{"functionDeclarations":[{"name":"bash","parameters":{"type":"OBJECT","properties":{"command":{"type":"STRING"}}}}]}]`

func googleTask(contents string) string { return `{"contents":[` + contents + `],` + googleTools + `}` }

// A signature that was changed or left out is refused in Google's words, and so is one on another call.
func TestGoogleChecksSignatures(t *testing.T) {
	e := New(Options{Wire: WireGoogle, Reasoning: true})
	const user = `{"role":"user","parts":[{"text":"go"}]}`
	content := gjson.Get(answered(t, e, googlePath+"generateContent", googleTask(user), "X-Goog-Api-Key", "k"), "candidates.0.content").Raw
	signature := gjson.Get(content, "parts.#(functionCall).thoughtSignature").String()
	for _, c := range []struct{ name, content, message string }{
		{"as it came", content, ""},
		{"changed", strings.Replace(content, signature, "A"+signature[1:], 1), "Thought signature is not valid."},
		{"on another call", strings.Replace(content, "echo step 1", "echo step 2", 1), "Thought signature is not valid."},
		{"left out", strings.Replace(content, `,"thoughtSignature":"`+signature+`"`, "", 1), "Function call is missing a thought_signature in functionCall parts."},
		{"excused", strings.Replace(content, signature, "skip_thought_signature_validator", 1), ""},
	} {
		if signature == "" {
			t.Fatalf("no signature in %s", content)
		}
		w := askFor(e, googlePath+"generateContent", googleTask(user+","+c.content+`,{"role":"user","parts":[{"functionResponse":{"name":"bash","response":{"output":"ok"}}}]}`), "X-Goog-Api-Key", "k")
		bad := gjson.Get(w.Body.String(), "error")
		if (c.message == "") != (w.Code == 200) || !strings.HasPrefix(bad.Get("message").String(), c.message) || w.Code != 200 && bad.Get("status").String() != "INVALID_ARGUMENT" {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
}

// Without alt=sse a stream is one array; with it there are events that end with the last chunk.
func TestGoogleStreamForms(t *testing.T) {
	e := New(Options{Wire: WireGoogle, Reasoning: true})
	body := googleTask(`{"parts":[{"text":"go"}]}`)
	array := askFor(e, googlePath+"streamGenerateContent", body, "X-Goog-Api-Key", "k")
	var list []json.RawMessage
	if err := json.Unmarshal(array.Body.Bytes(), &list); err != nil || len(list) < 3 || !strings.HasPrefix(array.Header().Get("Content-Type"), "application/json") {
		t.Errorf("%v %s", err, array.Body)
	}
	sse := askFor(e, googlePath+"streamGenerateContent?alt=sse", body, "X-Goog-Api-Key", "k").Body.String()
	chunks := strings.Split(strings.TrimSuffix(sse, "\r\n\r\n"), "\r\n\r\n")
	last := strings.TrimPrefix(chunks[len(chunks)-1], "data: ")
	if len(chunks) < 3 || gjson.Get(last, "candidates.0.finishReason").String() != "STOP" || strings.Contains(sse, "[DONE]") {
		t.Errorf("stream %q", sse)
	}
}

func TestGoogleRefusals(t *testing.T) {
	e := New(Options{Wire: WireGoogle, Key: "k"})
	say := googleTask(`{"parts":[{"text":"hi"}]}`)
	for _, c := range []struct {
		name, path, body string
		header           []string
		code             int
		status, message  string
	}{
		{"no key", googlePath + "generateContent", say, nil, 403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers"},
		{"wrong key", googlePath + "generateContent?key=no", say, nil, 400, "INVALID_ARGUMENT", "API key not valid."},
		{"foreign", googlePath + "generateContent?key=k", `{"return_token_ids":true,"contents":[]}`, nil, 400, "INVALID_ARGUMENT", `Invalid JSON payload received. Unknown name "return_token_ids": Cannot find field.`},
		{"overloaded", googlePath + "generateContent?key=k", say, []string{"X-Fake-Fault", "status 503"}, 503, "UNAVAILABLE", "The model is overloaded."},
		{"path", googlePath + "embedContent?key=k", say, nil, 404, "NOT_FOUND", ""},
	} {
		w := askFor(e, c.path, c.body, c.header...)
		bad := gjson.Get(w.Body.String(), "error")
		if w.Code != c.code || bad.Get("status").String() != c.status || !strings.HasPrefix(bad.Get("message").String(), c.message) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	w := askFor(e, googleChat+"chat/completions", `{"messages":[{"role":"user","content":"hi"}],"return_token_ids":true}`, "Authorization", "Bearer k")
	if w.Code != 400 || !strings.HasPrefix(gjson.Get(w.Body.String(), "0.error.message").String(), "Invalid JSON payload") {
		t.Errorf("chat: %d %s", w.Code, w.Body)
	}
}

// The ids of Google's logprobs are those of the visible text.
func TestGoogleLogprobs(t *testing.T) {
	e := New(Options{Wire: WireGoogle})
	whole := gjson.Parse(answered(t, e, googlePath+"generateContent?key=k", `{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"responseLogprobs":true,"temperature":0}}`))
	truth := truthOf(t, e, whole.Get("responseId").String())
	chosen := whole.Get("candidates.0.logprobsResult.chosenCandidates").Array()
	if len(chosen) != len(truth.Sampled[0])-1 {
		t.Fatalf("%d candidates of %d ids", len(chosen), len(truth.Sampled[0]))
	}
	for i, c := range chosen {
		if c.Get("tokenId").Int() != int64(truth.Sampled[0][i]) || c.Get("logProbability").Num != truth.Logprobs[0][i] {
			t.Errorf("candidate %s", c.Raw)
		}
	}
}
