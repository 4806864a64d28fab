package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/store"
)

// oneRow checks that a session is one trainable agent row of so many turns without a failed call.
func (r *rig) oneRow(turns int, dialect record.Dialect) {
	r.t.Helper()
	doc := r.document(export.Options{})
	if !doc.Trainable || len(doc.Sequences) != 1 || doc.Sequences[0].NTurns != turns || len(doc.FailedCalls) != 0 {
		for _, turn := range doc.Turns {
			r.t.Logf("%s parent %v, break %+v, %v", turn.NodeID, turn.ParentID, turn.Break, turn.Validation)
		}
		r.t.Fatalf("trainable %v, %d rows, failed %+v, %v", doc.Trainable, len(doc.Sequences), doc.FailedCalls, doc.Validation)
	}
	for _, turn := range doc.Turns {
		if turn.Dialect != dialect {
			r.t.Errorf("dialect %s", turn.Dialect)
		}
	}
}

func (r *rig) httpClient() *http.Client {
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// An agent on Anthropic's own SDK, streaming, against the chat-only engine that thinks before every answer: its
// conversation is one row.
func TestAnthropicAgent(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{Reasoning: true})
	client := anthropic.NewClient(anthropicoption.WithBaseURL(r.url), anthropicoption.WithAPIKey("s1"), anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(r.httpClient()))
	params := anthropic.MessageNewParams{
		Model: "claude-x", MaxTokens: 2000,
		System: []anthropic.TextBlockParam{{Text: "x-anthropic-billing-header: cch=1;"}, {Text: "You are a coding agent."}},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "Bash", InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"command": map[string]any{"type": "string"}}, Required: []string{"command"}}}}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("List the files."))},
	}
	turns := 0
	for turns < 10 {
		params.System[0].Text = strings.Replace(params.System[0].Text, ";", "1;", 1) // a nonce, as claude-code sends it
		stream := client.Messages.NewStreaming(t.Context(), params)
		var message anthropic.Message
		for stream.Next() {
			if err := message.Accumulate(stream.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		turns++
		params.Messages = append(params.Messages, message.ToParam())
		var results []anthropic.ContentBlockParamUnion
		thought := false
		for _, block := range message.Content {
			switch b := block.AsAny().(type) {
			case anthropic.ThinkingBlock:
				thought = b.Thinking != "" && b.Signature != ""
			case anthropic.ToolUseBlock:
				results = append(results, anthropic.NewToolResultBlock(b.ID, "done", false))
			}
		}
		if !thought || message.Usage.OutputTokens == 0 || message.Model != "claude-x" {
			t.Errorf("thinking %v, usage %+v, model %s", thought, message.Usage, message.Model)
		}
		if len(results) == 0 {
			if message.StopReason != anthropic.StopReasonEndTurn {
				t.Errorf("stop reason %s", message.StopReason)
			}
			break
		}
		if message.StopReason != anthropic.StopReasonToolUse {
			t.Errorf("stop reason %s", message.StopReason)
		}
		params.Messages = append(params.Messages, anthropic.NewUserMessage(results...))
	}
	r.oneRow(4, record.AnthropicMessages)
	// The same conversation, not streamed.
	params.Messages = params.Messages[:1]
	whole, err := client.Messages.New(t.Context(), params)
	if err != nil || len(whole.Content) == 0 {
		t.Fatalf("%v %+v", err, whole)
	}
	count, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "claude-x", Messages: params.Messages})
	if err != nil || count.InputTokens == 0 {
		t.Errorf("%v %+v", err, count)
	}
	if n := len(r.calls()); n != 5 {
		t.Errorf("%d calls: a count is a turn", n)
	}
}

// The same on the Responses API, as codex uses it: nothing stored, the reasoning comes back sealed.
func TestResponsesAgent(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{Reasoning: true})
	client := r.client()
	params := responses.ResponseNewParams{
		Model: "gpt-x", Store: param.NewOpt(false), Include: []responses.ResponseIncludable{"reasoning.encrypted_content"}, Instructions: param.NewOpt("You are a coding agent."),
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "shell", Parameters: map[string]any{
			"type": "object", "properties": map[string]any{"command": map[string]any{"type": "array", "items": map[string]any{"type": "string"}}}, "required": []string{"command"}}}}},
	}
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("List the files.", responses.EasyInputMessageRoleUser)}
	for range 10 {
		params.Input.OfInputItemList = input
		stream := client.Responses.NewStreaming(t.Context(), params)
		var final *responses.Response
		for stream.Next() {
			if e, ok := stream.Current().AsAny().(responses.ResponseCompletedEvent); ok {
				final = &e.Response
			}
		}
		if err := stream.Err(); err != nil || final == nil {
			t.Fatalf("%v %v", err, final)
		}
		if final.Usage.OutputTokens == 0 || final.Model != "gpt-x" || final.Status != "completed" {
			t.Errorf("%+v %s %s", final.Usage, final.Model, final.Status)
		}
		called := false
		for _, item := range final.Output {
			var echo responses.ResponseInputItemUnionParam
			if err := json.Unmarshal([]byte(item.RawJSON()), &echo); err != nil {
				t.Fatal(err)
			}
			input = append(input, echo)
			if call, ok := item.AsAny().(responses.ResponseFunctionToolCall); ok {
				called = true
				input = append(input, functionOutput(call.CallID))
			}
		}
		if !called {
			break
		}
	}
	r.oneRow(4, record.OpenAIResponses)
}

func functionOutput(callID string) responses.ResponseInputItemUnionParam {
	var item responses.ResponseInputItemUnionParam
	if err := json.Unmarshal([]byte(`{"type":"function_call_output","call_id":"`+callID+`","output":"done"}`), &item); err != nil {
		panic(err)
	}
	return item
}

// previous_response_id names an answer of this session; the items before it come from the record.
func TestBC43_previous_response(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{})
	client := r.client()
	tools := []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "shell", Parameters: map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}}}}}
	ask := responses.ResponseNewParams{Model: "gpt-x", Tools: tools}
	ask.Input.OfString = param.NewOpt("List the files.")
	for range 10 {
		answer, err := client.Responses.New(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		var results responses.ResponseInputParam
		for _, item := range answer.Output {
			if call, ok := item.AsAny().(responses.ResponseFunctionToolCall); ok {
				results = append(results, functionOutput(call.CallID))
			}
		}
		if results == nil {
			break
		}
		ask = responses.ResponseNewParams{Model: "gpt-x", Tools: tools, PreviousResponseID: param.NewOpt(answer.ID)}
		ask.Input.OfInputItemList = results
	}
	r.oneRow(4, record.OpenAIResponses)
	resp, body := r.post("/v1/responses", `{"model":"m","previous_response_id":"resp_missing","input":"x"}`)
	if resp.StatusCode != 400 || !strings.Contains(string(body), "resp_missing") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestGoogleAgent(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{Reasoning: true})
	client, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "s1", Backend: genai.BackendGeminiAPI, HTTPClient: r.httpClient(), HTTPOptions: genai.HTTPOptions{BaseURL: r.url}})
	if err != nil {
		t.Fatal(err)
	}
	config := &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText("You are a coding agent.", genai.RoleUser),
		Tools: []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "run_shell_command", Parameters: &genai.Schema{
			Type: genai.TypeObject, Properties: map[string]*genai.Schema{"command": {Type: genai.TypeString}}, Required: []string{"command"}}}}}},
		ThinkingConfig: &genai.ThinkingConfig{IncludeThoughts: true},
	}
	contents := genai.Text("List the files.")
	for range 10 {
		reply := &genai.Content{Role: genai.RoleModel}
		finish := genai.FinishReason("")
		for chunk, err := range client.Models.GenerateContentStream(t.Context(), "gemini-x", contents, config) {
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range chunk.Candidates {
				if c.Content != nil {
					reply.Parts = append(reply.Parts, c.Content.Parts...)
				}
				if c.FinishReason != "" {
					finish = c.FinishReason
				}
			}
		}
		if finish != genai.FinishReasonStop {
			t.Errorf("finish reason %q", finish)
		}
		contents = append(contents, reply)
		results := &genai.Content{Role: genai.RoleUser}
		for _, p := range reply.Parts {
			if p.FunctionCall != nil {
				results.Parts = append(results.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Response: map[string]any{"output": "done"}}})
			}
		}
		if len(results.Parts) == 0 {
			break
		}
		contents = append(contents, results)
	}
	r.oneRow(4, record.Google)
	whole, err := client.Models.GenerateContent(t.Context(), "gemini-x", genai.Text("Say something."), nil)
	if err != nil || whole.Text() == "" {
		t.Errorf("%v %+v", err, whole)
	}
	count, err := client.Models.CountTokens(t.Context(), "gemini-x", genai.Text("Say something."), nil)
	if err != nil || count.TotalTokens == 0 {
		t.Errorf("%v %+v", err, count)
	}
	// Without alt=sse the stream is one JSON array.
	_, body := r.post("/v1beta/models/gemini-x:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`)
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || len(list) == 0 {
		t.Errorf("%v %s", err, body)
	}
}

var bodies = map[string]string{
	"/v1/messages":                                   `{"model":"m","max_tokens":9,"stream":STREAM,"messages":[{"role":"user","content":"hi FAULT"}]}`,
	"/v1/responses":                                  `{"model":"m","stream":STREAM,"input":"hi FAULT"}`,
	"/v1beta/models/m:generateContent":               `{"contents":[{"role":"user","parts":[{"text":"hi FAULT"}]}]}`,
	"/v1beta/models/m:streamGenerateContent?alt=sse": `{"contents":[{"role":"user","parts":[{"text":"hi FAULT"}]}]}`,
}

func body(path, fault string, stream bool) string {
	s := "false"
	if stream {
		s = "true"
	}
	return strings.NewReplacer("STREAM", s, "FAULT", fault).Replace(bodies[path])
}

// shape says whether an error body is in the dialect of a path.
func shape(path string, body []byte) bool {
	var e struct {
		Type  string
		Error struct {
			Message, Type, Status string
			Code                  json.RawMessage
		}
	}
	if json.Unmarshal(body, &e) != nil || e.Error.Message == "" {
		return false
	}
	switch {
	case strings.Contains(path, "messages"):
		return e.Type == "error" && e.Error.Type != ""
	case strings.Contains(path, "v1beta"):
		return e.Error.Status != "" && len(e.Error.Code) == 3
	}
	return e.Error.Type != ""
}

func TestErrorsInTheCallersDialect(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{MaxModelLen: 400})
	zero := 0
	r.create("spent", func(s *record.Session) { s.Spec.MaxModelCalls = &zero })
	for path := range bodies {
		for name, c := range map[string]struct {
			body, key string
			status    int
		}{
			"unknown key":  {body(path, "", false), "nobody", 401},
			"not JSON":     {"{", "s1", 400},
			"engine error": {body(path, "[[fault:status 500]]", false), "s1", 500},
		} {
			resp, got := r.post(path, c.body, "Authorization", "Bearer "+c.key)
			if resp.StatusCode != c.status || !shape(path, got) {
				t.Errorf("%s, %s: %d %s", path, name, resp.StatusCode, got)
			}
		}
		for _, stream := range []bool{false, true} {
			resp, got := r.post(path, body(path, "", stream), "Authorization", "Bearer spent")
			if resp.StatusCode != 200 || !strings.Contains(string(got), "Step budget exhausted; stopping.") {
				t.Errorf("%s, budget: %d %s", path, resp.StatusCode, got)
			}
			resp, got = r.post(path, body(path, strings.Repeat("long ", 500), stream))
			if resp.StatusCode != 200 || !strings.Contains(string(got), contextText) {
				t.Errorf("%s, context window: %d %s", path, resp.StatusCode, got)
			}
		}
		// A failure in mid-stream: the dialect's error event and a cut connection, never a normal ending.
		if strings.Contains(path, ":generateContent") {
			continue
		}
		_, got, err := r.try(path, body(path, "[[fault:error-event 2]]", true))
		if err == nil || !strings.Contains(string(got), "error") || strings.Contains(string(got), "message_stop") || strings.Contains(string(got), "response.completed") || strings.Contains(string(got), `"STOP"`) {
			t.Errorf("%s, error in mid-stream: %v %s", path, err, got)
		}
	}
}

func TestEndedSessionAndDownEngineInEachDialect(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:9", rigOptions{level: record.LevelText, model: "m"})
	for path := range bodies {
		if resp, got := r.post(path, body(path, "", false)); resp.StatusCode != 502 || !shape(path, got) {
			t.Errorf("%s, engine down: %d %s", path, resp.StatusCode, got)
		}
	}
	live, err := r.sessions.Get("s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Cancel(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	for path := range bodies {
		if resp, got := r.post(path, body(path, "", false)); resp.StatusCode != 409 || !shape(path, got) {
			t.Errorf("%s, ended: %d %s", path, resp.StatusCode, got)
		}
	}
}

// The WebSocket that codex tries first is refused at once (BC44 A).
func TestBC44_no_WebSocket(t *testing.T) {
	r := newRig(t, "http://127.0.0.1:9", rigOptions{level: record.LevelText, model: "m"})
	req, _ := http.NewRequest(http.MethodGet, r.url+"/v1/responses", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := r.httpClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 426 || !resp.Close {
		t.Errorf("%d, close %v", resp.StatusCode, resp.Close)
	}
}

// The billing nonce goes to no token-capturing engine, so that the conversation stays whole (BC20); what only a
// translation leaves out is named.
func TestBC20_nonce(t *testing.T) {
	r, e := newEngineRig(t, fakeengine.Options{})
	for _, q := range loadCase(t, "BC20").Input.Requests {
		if resp, got := r.post("/v1/messages", string(q.Body)); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
	for _, q := range e.Requests() {
		if strings.Contains(string(q.Body), "billing") {
			t.Errorf("sent %s", q.Body)
		}
	}
	for _, c := range r.calls() {
		named := false
		for _, edit := range c.Edits {
			named = named || edit.Kind == record.EditTranslate
		}
		if !named {
			t.Errorf("call %d: the nonce that was left out is in no edit", c.Number)
		}
	}
}

// In every dialect the turn is in the log before the terminal event reaches the harness.
func TestBC04_durable_before_the_terminal_event(t *testing.T) {
	terminal := map[string]string{
		"/v1/chat/completions": "data: [DONE]", "/v1/messages": "event: message_stop", "/v1/responses": "event: response.completed",
		"/v1beta/models/m:streamGenerateContent?alt=sse": `"finishReason":"STOP"`,
	}
	r, _ := newEngineRig(t, fakeengine.Options{})
	client := r.httpClient()
	number := 0
	for path, event := range terminal {
		request := body(path, "", true)
		if request == "" {
			request = simpleStream
		}
		req, err := http.NewRequest(http.MethodPost, r.url+path, strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer s1")
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		number++
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: no terminal event: %v, %d %s", path, err, resp.StatusCode, line)
			}
			if strings.Contains(line, event) {
				break
			}
		}
		if got := len(r.calls()); got != number {
			t.Errorf("%s: %d calls in the log after the terminal event, want %d", path, got, number)
		}
		resp.Body.Close()
	}
}

// What the engine refuses of the harness's own goes back as the engine said it, and is recorded as rejected (BC46 A, B).
func TestBC46_the_harness_s_own_400(t *testing.T) {
	r, e := newEngineRig(t, fakeengine.Options{})
	for i, q := range loadCase(t, "BC46").Input.Requests[:2] {
		direct, err := http.Post(e.URL+"/v1/chat/completions", "application/json", strings.NewReader(strings.Replace(string(q.Body), `"model":"m"`, `"model":"fake-model"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(direct.Body)
		direct.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		resp, got := r.post("/v1/chat/completions", string(q.Body))
		if resp.StatusCode != direct.StatusCode || resp.StatusCode == 400 && string(got) != string(want) {
			t.Errorf("%d: %d %s, the engine says %d %s", i, resp.StatusCode, got, direct.StatusCode, want)
		}
		if c := r.calls()[i]; (c.Outcome == record.Rejected) != (direct.StatusCode == 400) {
			t.Errorf("%d: outcome %s", i, c.Outcome)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// countingLog counts how often the record is read.
type countingLog struct {
	Log
	reads int
}

func (l *countingLog) Calls(ctx context.Context, id string) ([]*record.Call, error) {
	l.reads++
	return l.Log.Calls(ctx, id)
}

func (l *countingLog) Past(ctx context.Context, id string) (*store.Past, error) {
	l.reads++
	return l.Log.Past(ctx, id)
}

// A long chain of previous_response_id reads the session once for each request: asked link by link it would be read for every
// answer, or double with every answer.
func TestBC43_a_long_chain(t *testing.T) {
	up := newScript(t, answers(200, "application/json", goodWhole))
	log := &countingLog{}
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { log.Log, c.Log = c.Log, log }})
	const length = 24
	previous := ""
	for range length {
		_, got := r.post("/v1/responses", `{"model":"m","input":"x"`+previous+`}`)
		var answer struct{ ID string }
		if err := json.Unmarshal(got, &answer); err != nil || answer.ID == "" {
			t.Fatalf("%v %s", err, got)
		}
		previous = `,"previous_response_id":"` + answer.ID + `"`
	}
	if last := up.got(length - 1).body; strings.Count(string(last), `"role":"user"`) != length || strings.Count(string(last), `"role":"assistant"`) != length-1 {
		t.Errorf("sent %s", last)
	}
	if log.reads != length-1 {
		t.Errorf("%d reads of the session for %d requests", log.reads, length-1)
	}
}

// Two chains go on from one answer: each has its own items behind it, also when both are put together for one request.
func TestBC43_chains_that_fork(t *testing.T) {
	up := newScript(t, answers(200, "application/json", goodWhole))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	ask := func(body string) string {
		t.Helper()
		_, got := r.post("/v1/responses", `{"model":"m",`+body+`}`)
		var answer struct{ ID string }
		if err := json.Unmarshal(got, &answer); err != nil || answer.ID == "" {
			t.Fatalf("%v %s", err, got)
		}
		return answer.ID
	}
	trunk := ask(`"input":"trunk"`)
	for n := range 3 {
		trunk = ask(fmt.Sprintf(`"input":"trunk %d","previous_response_id":%q`, n, trunk))
	}
	left := ask(fmt.Sprintf(`"input":"left","previous_response_id":%q`, trunk))
	right := ask(fmt.Sprintf(`"input":"right","previous_response_id":%q`, trunk))
	// The reference makes the proxy put the left chain together first, and then the right one.
	reference := "msg_" + strings.TrimPrefix(left, "resp_") + "_0"
	ask(fmt.Sprintf(`"input":[{"type":"item_reference","id":%q},{"role":"user","content":"both"}],"previous_response_id":%q`, reference, right))
	ask(fmt.Sprintf(`"input":"last","previous_response_id":%q`, right))
	for n, want := range map[int]string{4: "trunk,trunk 0,trunk 1,trunk 2,left", 5: "trunk,trunk 0,trunk 1,trunk 2,right", 6: "trunk,trunk 0,trunk 1,trunk 2,right,both", 7: "trunk,trunk 0,trunk 1,trunk 2,right,last"} {
		var sent struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(up.got(n).body, &sent); err != nil {
			t.Fatal(err)
		}
		var users []string
		for _, m := range sent.Messages {
			if m.Role == "user" {
				users = append(users, m.Content)
			}
		}
		if got := strings.Join(users, ","); got != want {
			t.Errorf("request %d says %s, want %s", n, got, want)
		}
	}
}
