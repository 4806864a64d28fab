package proxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
	"captureproxy/validate"
)

// A hosted model that refuses what we add, and some of what the harness sends, each in its own words: the harness sees none of
// it, and the document names each edit.
func TestHostedRefusals(t *testing.T) {
	e, err := fakeengine.Start(fakeengine.Options{Wire: fakeengine.WireOpenAI, Key: "upstream-secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // a test's engine
	r := newRig(t, e.URL, rigOptions{})
	client := r.client()
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You are a coding agent."), openai.UserMessage("List the files.")}
	for turn := range 10 {
		stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
			Model: "gpt", Messages: messages, Tools: []openai.ChatCompletionToolUnionParam{shellTool},
			Temperature: openai.Float(0.2), MaxTokens: openai.Int(500), TopP: openai.Float(0.9),
		})
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		reply := acc.Choices[0].Message
		messages = append(messages, reply.ToParam())
		for _, call := range reply.ToolCalls {
			messages = append(messages, openai.ToolMessage("done", call.ID))
		}
		if len(reply.ToolCalls) == 0 {
			break
		}
	}
	doc := r.document(export.Options{})
	if doc.RolloutType != "eval" || doc.Stats.Roots != 1 || doc.Stats.FailedCalls != 0 || doc.Stats.Turns < 2 {
		t.Errorf("%s, %d roots, %d turns, %d failed calls", doc.RolloutType, doc.Stats.Roots, doc.Stats.Turns, doc.Stats.FailedCalls)
	}
	for _, want := range []string{"temperature", "max_tokens"} {
		for _, turn := range doc.Turns {
			if !slices.ContainsFunc(turn.Edits, func(e export.Edit) bool { return e.Param == want }) {
				t.Errorf("turn %d does not name the edit of %s: %v", turn.Index, want, turn.Edits)
			}
		}
		if !slices.ContainsFunc(doc.Engine.ParamEdits, func(e export.Edit) bool { return e.Param == want }) {
			t.Errorf("the engine's edits %v lack %s", doc.Engine.ParamEdits, want)
		}
	}
	if !slices.ContainsFunc(doc.Validation, func(f validate.Finding) bool { return f.Code == validate.BehaviourChanged && f.Level == validate.Warn }) {
		t.Errorf("a dropped temperature is no finding: %v", doc.Validation)
	}
	if sampling := string(doc.Turns[0].SamplingParams); strings.Contains(sampling, "temperature") || !strings.Contains(sampling, `"max_completion_tokens":500`) {
		t.Errorf("submitted sampling %s", sampling)
	}
	// What was learned once is not asked again.
	before := len(e.Requests())
	if resp, body := r.post("/v1/chat/completions", `{"model":"m","temperature":0.5,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if n := len(e.Requests()) - before; n != 1 {
		t.Errorf("%d requests for one call", n)
	}
}

// At most six edits; never the ones that a call is about; and where the engine does not name a parameter, its own words reach
// the harness.
func TestNegotiationIsBounded(t *testing.T) {
	params := []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"}
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	for _, p := range params {
		body += `,"` + p + `":1`
	}
	body += "}"
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		param := params[min(n, len(params)-1)]
		answers(400, "application/json", `{"error":{"message":"Unknown parameter: '`+param+`'.","type":"invalid_request_error","param":"`+param+`","code":"unknown_parameter"}}`)(w, r, 0)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText})
	resp, answer := r.post("/v1/chat/completions", body)
	if resp.StatusCode != 400 || !strings.Contains(string(answer), "'a7'") || up.count() != 7 {
		t.Errorf("%d after %d requests: %s", resp.StatusCode, up.count(), answer)
	}
	if got := r.only(); got.Outcome != record.Rejected {
		t.Errorf("outcome %s", got.Outcome)
	}
	if fixes := r.up.Profile().Fixes; len(fixes) != 0 {
		t.Errorf("learned from a call that failed: %v", fixes)
	}
	for _, param := range []string{"model", "messages", "stream"} {
		if _, ok := engine.ReadRefusal(400, []byte(`{"error":{"message":"Unsupported parameter: '`+param+`'","param":"`+param+`"}}`), func(string) bool { return true }); ok {
			t.Errorf("%s would be dropped", param)
		}
	}
}

// A fix applies where its parameter is, nested ones too, and says what it did.
func TestFixes(t *testing.T) {
	for _, c := range []struct {
		name, body, want string
		fix              engine.Fix
	}{
		{"drop", `{"model":"m","a":1,"messages":[]}`, `{"model":"m","messages":[]}`, engine.Fix{Param: "a"}},
		{"rename", `{"model":"m","max_tokens":5,"messages":[]}`, `{"model":"m","messages":[],"max_completion_tokens":5}`, engine.Fix{Param: "max_tokens", Rename: "max_completion_tokens"}},
		{"rename onto one that is there", `{"max_tokens":5,"max_completion_tokens":6,"messages":[]}`, `{"max_completion_tokens":6,"messages":[]}`, engine.Fix{Param: "max_tokens", Rename: "max_completion_tokens"}},
		{"set", `{"reasoning_effort":"high","messages":[]}`, `{"reasoning_effort":"none","messages":[]}`, engine.Fix{Param: "reasoning_effort", To: `"none"`}},
		{"set what is not there", `{"messages":[]}`, `{"messages":[],"reasoning_effort":"none"}`, engine.Fix{Param: "reasoning_effort", To: `"none"`}},
		{"nested", `{"reasoning":{"effort":"high","summary":"auto"},"messages":[]}`, `{"reasoning":{"effort":"high"},"messages":[]}`, engine.Fix{Param: "reasoning.summary"}},
		{"absent", `{"messages":[]}`, `{"messages":[]}`, engine.Fix{Param: "a"}},
		{"logprobs take top_logprobs along", `{"logprobs":true,"top_logprobs":3,"messages":[]}`, `{"messages":[]}`, engine.Fix{Param: "logprobs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := dialect.DecodeChat([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			sent, bad := prepare(req, plan{fixes: []engine.Fix{c.fix}})
			if bad != nil {
				t.Fatal(bad)
			}
			if string(sent.body) != c.want {
				t.Errorf("got %s, want %s", sent.body, c.want)
			}
			if changed := c.body != c.want; changed != (len(sent.edits) == 1) {
				t.Errorf("edits %v", sent.edits)
			}
			if sampling := sent.submitted(); !json.Valid(sampling) {
				t.Errorf("sampling %s", sampling)
			}
		})
	}
}
