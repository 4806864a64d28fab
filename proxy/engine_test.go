package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// newEngineRig is a proxy in front of the built-in engine, measured by a real probe.
func newEngineRig(t *testing.T, o fakeengine.Options) (*rig, *fakeengine.Server) {
	t.Helper()
	e, err := fakeengine.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, e.URL, rigOptions{})
	return r, e
}

func (r *rig) client() openai.Client {
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)
	return openai.NewClient(option.WithBaseURL(r.url+"/v1"), option.WithAPIKey("s1"), option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: transport}))
}

// shellTool is a tool that the built-in engine plays.
var shellTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "bash", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}, "required": []string{"command"}},
})

// agent plays one task with the official Go SDK, streaming, until the model calls no tool any more.
func (r *rig) agent(ctx context.Context) []openai.ChatCompletionMessageParamUnion {
	r.t.Helper()
	client := r.client()
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You are a coding agent."), openai.UserMessage("List the files.")}
	for range 10 {
		stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: "gpt", Messages: messages, Tools: []openai.ChatCompletionToolUnionParam{shellTool}})
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			r.t.Fatal(err)
		}
		reply := acc.Choices[0].Message
		messages = append(messages, reply.ToParam())
		if len(reply.ToolCalls) == 0 {
			return messages
		}
		for _, call := range reply.ToolCalls {
			messages = append(messages, openai.ToolMessage("done: "+call.ID, call.ID))
		}
	}
	r.t.Fatal("the agent does not end")
	return nil
}

// The main job: a real client's conversation becomes one trainable row with the ids that the engine truly sampled.
func TestConversationIsOneRow(t *testing.T) {
	r, e := newEngineRig(t, fakeengine.Options{Reasoning: false})
	r.agent(t.Context())
	doc := r.document(export.Options{})
	if !doc.Trainable || len(doc.Sequences) != 1 || doc.Sequences[0].Role != "agent" || doc.Sequences[0].NTurns != 4 || doc.CaptureLevel != record.LevelTokens {
		out, _ := json.MarshalIndent(doc, "", " ")
		t.Fatalf("%.4000s", out)
	}
	for _, f := range append(doc.Validation, doc.Sequences[0].Validation...) {
		if f.Level != "INFO" {
			t.Errorf("finding %s", f)
		}
	}
	for _, req := range e.Requests() {
		if !strings.HasSuffix(req.Path, "/chat/completions") {
			continue
		}
		id := "chatcmpl-" + req.Header.Get("X-Request-Id")
		truth, ok := e.Truth(id)
		i := slices.IndexFunc(r.calls(), func(c *record.Call) bool { return c.RequestID == req.Header.Get("X-Request-Id") })
		if i < 0 { // the probe's
			continue
		}
		ch := r.calls()[i].Choices[0]
		if !ok || !slices.Equal(ch.PromptIDs, truth.Prompt) || !slices.Equal(ch.SampledIDs, truth.Sampled[0]) {
			t.Errorf("%s: recorded ids are not the engine's", id)
		}
	}
}

func TestOpenAIClient(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{})
	client := r.client()
	ask := openai.ChatCompletionNewParams{Model: "gpt", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say something.")}}

	plain, err := client.Chat.Completions.New(t.Context(), ask)
	if err != nil || plain.Choices[0].Message.Content == "" || plain.Usage.CompletionTokens == 0 || plain.Model != "gpt" {
		t.Fatalf("%v %+v", err, plain)
	}
	ask.N = param.NewOpt[int64](2)
	two, err := client.Chat.Completions.New(t.Context(), ask)
	if err != nil || len(two.Choices) != 2 {
		t.Fatalf("%v %+v", err, two)
	}
	ask.Tools = []openai.ChatCompletionToolUnionParam{shellTool}
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || len(acc.Choices) != 2 || len(acc.Choices[1].Message.ToolCalls) != 1 {
		t.Fatalf("%v %+v", err, acc.Choices)
	}
	for _, raw := range []string{plain.RawJSON(), two.RawJSON()} {
		if strings.Contains(raw, "token_ids\":[") || strings.Contains(raw, `"logprobs":{`) {
			t.Errorf("injected fields reach the client: %s", raw)
		}
	}
	calls := r.calls()
	if len(calls) != 3 || len(calls[1].Choices) != 2 || len(calls[2].Choices) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, c := range calls {
		for i, ch := range c.Choices {
			if ch.Outcome != record.Complete || ch.Index != i || len(ch.SampledIDs) == 0 || len(ch.SampledIDs) != len(ch.Logprobs) || !slices.Equal(ch.PromptIDs, c.Choices[0].PromptIDs) {
				t.Errorf("call %d choice %d: %s %s", c.Number, i, ch.Outcome, c.Detail)
			}
		}
	}
	// Each choice is a turn of its own, and the choices of one call are siblings.
	if doc := r.document(export.Options{}); len(doc.Turns) != 5 || doc.Turns[1].Call != 2 || doc.Turns[2].Call != 2 || doc.Turns[1].NodeID == doc.Turns[2].NodeID {
		t.Errorf("%d turns", len(doc.Turns))
	}
}

// Streamed and whole, one request makes the same turn; and a stream replayed at every split point of its bytes too.
func TestStreamedEqualsWhole(t *testing.T) {
	e := fakeengine.New(fakeengine.Options{Reasoning: true})
	engineURL := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) { e.ServeHTTP(w, r) }).URL
	r := newRig(t, engineURL, rigOptions{})
	body := `{"model":"m","temperature":0,"messages":[{"role":"user","content":"List the files"}],"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]`
	r.post("/v1/chat/completions", body+"}")
	r.post("/v1/chat/completions", body+`,"stream":true}`)
	calls := r.calls()
	a, b := calls[0].Choices[0], calls[1].Choices[0]
	if !slices.Equal(a.PromptIDs, b.PromptIDs) || !slices.Equal(a.SampledIDs, b.SampledIDs) || !slices.Equal(a.Logprobs, b.Logprobs) || a.FinishReason != b.FinishReason {
		t.Errorf("whole    %v %v\nstreamed %v %v", a.SampledIDs, a.FinishReason, b.SampledIDs, b.FinishReason)
	}
	if withoutIDs(a.Message) != withoutIDs(b.Message) {
		t.Errorf("whole    %s\nstreamed %s", a.Message, b.Message)
	}
}

// withoutIDs blanks the call ids of a message: the engine draws them anew each time.
func withoutIDs(message []byte) string {
	var m struct {
		Role, Reasoning string
		Content         *string
		Calls           []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return err.Error()
	}
	out, _ := json.Marshal(m)
	return string(out)
}

func TestEverySplitPoint(t *testing.T) {
	e := wiretest.Load(t, "vllm-0.32.0", "b_call_tools_stream")
	body := e.Body
	var cut int
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		w.Write(body[:cut])
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
		w.Write(body[cut:])
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "tiny"})
	var want string
	var first *record.Call
	// Around the ends of events every byte, elsewhere every 41st: package engine's tests take every one of them.
	number := 0
	for cut = 1; cut < len(body); cut++ {
		near := strings.Contains(string(body[max(0, cut-3):min(len(body), cut+3)]), "\n")
		if !near && cut%41 != 0 {
			continue
		}
		_, got := r.post("/v1/chat/completions", simpleStream)
		calls := r.calls()
		c := calls[number]
		number++
		if first == nil {
			want, first = string(got), c
			continue
		}
		if string(got) != want || !slices.Equal(c.Choices[0].SampledIDs, first.Choices[0].SampledIDs) || !slices.Equal(c.Choices[0].Logprobs, first.Choices[0].Logprobs) ||
			string(c.Choices[0].Message) != string(first.Choices[0].Message) || c.Outcome != record.Complete {
			t.Fatalf("split at %d: %s %s", cut, c.Outcome, c.Detail)
		}
	}
}

// Every fault that the engine can play ends as SPEC 3 says, the harness gets what the engine sent, and nothing that is not
// true is trainable.
func TestFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		outcome record.Outcome
		finding string // on the turn, "" for none
		trains  bool
	}{
		"missing-ids":        {record.IncompleteCapture, "id_count_mismatch", false},
		"missing-prompt-ids": {record.IncompleteCapture, "no_prompt_ids", false},
		"short-ids":          {record.IncompleteCapture, "id_count_mismatch", false},
		"missing-logprobs":   {record.IncompleteCapture, "no_logprobs", false},
		"short-logprobs":     {record.IncompleteCapture, "logprob_misalign", false},
		"null-logprob":       {record.IncompleteCapture, "invalid_logprob", false},
		"positive-logprob":   {record.IncompleteCapture, "positive_logprob", false},
		"sentinel-logprob":   {record.IncompleteCapture, "invalid_logprob", false},
		"nan-logprob":        {record.IncompleteCapture, "invalid_logprob", false},
		"wrong-usage":        {record.IncompleteCapture, "id_count_mismatch", false},
		"no-usage":           {record.Complete, "no_usage", true},
		"abort":              {record.Aborted, "not_trainable_outcome", false},
		"content-filter":     {record.Filtered, "not_trainable_outcome", false},
		"json-type":          {record.Complete, "capture_conflict", true},
		"json-answer":        {record.Complete, "", true},
		"gzip":               {record.Complete, "", true},
		"pings":              {record.Complete, "", true},
		"huge-first":         {record.Complete, "", true},
		"garbage 1":          {record.Complete, "capture_conflict", true},
		"error-event 2":      {record.UpstreamError, "", false},
		"done-early":         {record.UpstreamError, "", false},
		"cut 2":              {record.UpstreamError, "", false},
		"status 500":         {record.UpstreamError, "", false},
		"stall 2 100":        {record.Complete, "", true},
		"slow 100":           {record.Complete, "", true},
	} {
		for _, stream := range []bool{true, false} {
			if !stream && (strings.HasPrefix(fault, "error-event") || strings.HasPrefix(fault, "done-early") || strings.HasPrefix(fault, "garbage") || strings.HasPrefix(fault, "json-type")) {
				continue // faults of a stream
			}
			t.Run(fmt.Sprintf("%s/stream=%v", fault, stream), func(t *testing.T) {
				r, _ := newEngineRig(t, fakeengine.Options{})
				body := fmt.Sprintf(`{"model":"m","stream":%v,"messages":[{"role":"user","content":"hello"}]}`, stream)
				r.try("/v1/chat/completions", body, "X-Fake-Fault", fault)
				c := r.eventually(1)[0]
				if c.Outcome != want.outcome {
					t.Fatalf("%s %s", c.Outcome, c.Detail)
				}
				doc := r.document(export.Options{})
				if doc.Trainable != want.trains {
					t.Errorf("trainable: %v, %v", doc.Trainable, doc.Validation)
				}
				if !c.Outcome.IsNode() {
					if len(doc.Turns) != 0 || len(doc.FailedCalls) != 1 {
						t.Errorf("%d turns, %d failed calls", len(doc.Turns), len(doc.FailedCalls))
					}
					return
				}
				if got := fmt.Sprint(doc.Turns[0].Validation); !strings.Contains(got, want.finding) || want.finding == "" && got != "[]" {
					t.Errorf("findings %s, want %s", got, want.finding)
				}
			})
		}
	}
}

// Token data that does not add up is found in every dialect, and the harness gets its answer all the same.
func TestFaultsInEveryDialect(t *testing.T) {
	faults := map[string]string{
		"missing-ids": "id_count_mismatch", "missing-prompt-ids": "no_prompt_ids", "short-ids": "id_count_mismatch", "missing-logprobs": "no_logprobs",
		"short-logprobs": "logprob_misalign", "null-logprob": "invalid_logprob", "positive-logprob": "positive_logprob", "sentinel-logprob": "invalid_logprob",
		"nan-logprob": "invalid_logprob", "wrong-usage": "id_count_mismatch", "abort": "not_trainable_outcome", "content-filter": "not_trainable_outcome",
	}
	for _, d := range []struct {
		dialect                   record.Dialect
		path, streamed, body, end string
	}{
		{record.AnthropicMessages, "/v1/messages", "/v1/messages", `{"model":"m","max_tokens":99,"stream":%v,"messages":[{"role":"user","content":"hello [[fault:%s]]"}]}`, "message_stop"},
		{record.OpenAIResponses, "/v1/responses", "/v1/responses", `{"model":"m","stream":%v,"input":"hello [[fault:%s]]"}`, "response."},
		{record.Google, "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"unknown":%v,"contents":[{"role":"user","parts":[{"text":"hello [[fault:%s]]"}]}]}`, "finishReason"},
	} {
		r, _ := newEngineRig(t, fakeengine.Options{})
		for fault, finding := range faults {
			for _, stream := range []bool{true, false} {
				path := d.path
				if stream {
					path = d.streamed
				}
				n := len(r.calls())
				resp, body := r.post(path, fmt.Sprintf(d.body, stream, fault))
				if resp.StatusCode != 200 || stream && !strings.Contains(string(body), d.end) || strings.Contains(string(body), "token_ids") {
					t.Errorf("%s %s: %d %s", d.dialect, fault, resp.StatusCode, body)
				}
				call := r.eventually(n + 1)[n]
				doc := r.document(export.Options{})
				turn := doc.Turns[len(doc.Turns)-1]
				if call.Dialect != d.dialect || call.Outcome == record.Complete || call.Outcome == record.Length {
					t.Errorf("%s %s: outcome %s", call.Dialect, fault, call.Outcome)
				}
				if got := fmt.Sprint(turn.Validation); doc.Trainable || !strings.Contains(got, finding) {
					t.Errorf("%s %s: trainable %v, findings %s", d.dialect, fault, doc.Trainable, got)
				}
			}
		}
	}
}

func TestWrongLabels(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{TokenLabels: true})
	r.try("/v1/chat/completions", simpleStream, "X-Fake-Fault", "wrong-label")
	if c := r.only(); c.Outcome != record.IncompleteCapture || !strings.Contains(c.Detail, "token_id:") {
		t.Errorf("%s %s", c.Outcome, c.Detail)
	}
}

func TestCompletions(t *testing.T) {
	r, _ := newEngineRig(t, fakeengine.Options{})
	for _, body := range []string{
		`{"model":"m","prompt":"once upon","max_tokens":20}`, `{"model":"m","prompt":"once upon","max_tokens":20,"stream":true}`,
		`{"model":"m","prompt":[9906,1917],"max_tokens":20,"n":2,"temperature":1}`,
	} {
		resp, got := r.post("/v1/completions", body)
		if resp.StatusCode != 200 || strings.Contains(string(got), `token_ids":[`) || strings.Contains(string(got), `"logprobs":{`) {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
	}
	for _, c := range r.calls() {
		if !c.Outcome.IsNode() || c.Outcome == record.IncompleteCapture || c.Dialect != record.OpenAICompletions || len(c.Choices[0].PromptIDs) == 0 {
			t.Errorf("%s %s", c.Outcome, c.Detail)
		}
	}
	if c := r.calls()[2]; len(c.Choices) != 2 || !slices.Equal(c.Choices[0].PromptIDs, []int32{9906, 1917}) {
		t.Errorf("%d choices, prompt %v", len(c.Choices), c.Choices[0].PromptIDs)
	}
	if c := r.calls()[0]; len(c.Messages) != 1 || string(c.Messages[0]) != `{"role":"user","content":"once upon"}` {
		t.Errorf("%s", c.Messages)
	}
}

// A harness that asks for token data itself gets it (terminus-2 does).
func TestHarnessAsksForIDs(t *testing.T) {
	r, e := newEngineRig(t, fakeengine.Options{})
	direct, err := http.Post(e.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"fake-model","temperature":0,"return_token_ids":true,"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Body.Close()
	want, err := io.ReadAll(direct.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, got := r.post("/v1/chat/completions", `{"model":"fake-model","temperature":0,"return_token_ids":true,"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"hi"}]}`)
	type answer struct {
		Prompt  []int32 `json:"prompt_token_ids"`
		Choices []struct {
			IDs      []int32         `json:"token_ids"`
			Logprobs json.RawMessage `json:"logprobs"`
		}
	}
	var x, y answer
	if json.Unmarshal(want, &x) != nil || json.Unmarshal(got, &y) != nil || len(x.Choices[0].IDs) == 0 || !slices.Equal(x.Choices[0].IDs, y.Choices[0].IDs) ||
		!slices.Equal(x.Prompt, y.Prompt) || string(x.Choices[0].Logprobs) != string(y.Choices[0].Logprobs) {
		t.Errorf("direct %s\nproxied %s", want, got)
	}
	http.DefaultClient.CloseIdleConnections()
}

// A harness that knows another reasoning field gets and sends it under that name; the engine gets its own.
func TestReasoningField(t *testing.T) {
	up := newScript(t, answers(200, sse, chunks(`"delta":{"role":"assistant","reasoning":"h"},"finish_reason":null`, `"delta":{"reasoning":"m"},"finish_reason":null`, `"delta":{"content":"x"},"finish_reason":"stop"`)))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m", config: func(c *Config) { c.ReasoningField = "reasoning_content" }})
	p := *r.up.Profile()
	p.ReasoningField = "reasoning"
	r.up.Assume(p)
	_, body := r.post("/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"reasoning_content"},{"role":"assistant","reasoning_content":"\u0068m","content":"x"}]}`)
	if got := string(body); !strings.Contains(got, `"delta":{"role":"assistant","reasoning_content":"h"}`) || strings.Contains(got, `"reasoning":`) {
		t.Errorf("the harness got %s", got)
	}
	if sent := string(up.got(0).body); !strings.Contains(sent, `{"role":"assistant","reasoning":"\u0068m","content":"x"}`) || !strings.Contains(sent, `"content":"reasoning_content"`) {
		t.Errorf("sent %s", sent)
	}
	c := r.only()
	if string(c.Choices[0].Message) != `{"role":"assistant","content":"x","reasoning_content":"hm"}` || len(c.Edits) != 1 || c.Edits[0].Param != "messages[].reasoning_content" {
		t.Errorf("%s %v", c.Choices[0].Message, c.Edits)
	}
}
