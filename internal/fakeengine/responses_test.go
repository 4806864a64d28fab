package fakeengine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
)

const responsesPath = "/v1/responses"

func responsesTask(input, more string) string {
	return `{"model":"fake-model","input":` + input + `,"tools":[{"type":"function","name":"bash","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"string"}}}}]` + more + `}`
}

const sealed = `,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"}`

// A task without storage, its items sent back as they came, whole and streamed: each prompt extends the one before. The
// stream's numbers have no gaps, and its last event holds what its items were.
func TestResponsesTask(t *testing.T) {
	for _, stream := range []string{"", `,"stream":true`} {
		e := New(Options{Wire: WireOpenAI, Reasoning: true})
		items := `{"role":"user","content":[{"type":"input_text","text":"go 👋🏽"}]}`
		var before []int32
		steps := 0
		for {
			body := answered(t, e, responsesPath, responsesTask("["+items+"]", sealed+stream))
			answer := gjson.Parse(body)
			if stream != "" {
				answer = checkResponsesStream(t, body)
			}
			truth := truthOf(t, e, answer.Get("id").String())
			if !strings.HasPrefix(spelled(truth.Prompt), strings.TrimSuffix(spelled(before), "]")) {
				t.Errorf("step %d: the prompt does not extend the one before", steps)
			}
			before = append(append([]int32(nil), truth.Prompt...), truth.Sampled[0]...)
			if answer.Get("status").String() != "completed" || answer.Get("usage.output_tokens").Int() != int64(len(truth.Sampled[0])) || answer.Get("usage.input_tokens").Int() != int64(len(truth.Prompt)) {
				t.Errorf("answer %s", answer.Raw)
			}
			results := ""
			for _, item := range answer.Get("output").Array() {
				items += "," + item.Raw
				if item.Get("type").String() == "function_call" {
					results += `,{"type":"function_call_output","call_id":"` + item.Get("call_id").String() + `","output":"ok"}`
				}
			}
			if results == "" {
				break
			}
			items += results
			steps++
		}
		if steps != DefaultSteps {
			t.Errorf("%d steps", steps)
		}
	}
}

// checkResponsesStream returns the response in the last event.
func checkResponsesStream(t *testing.T, body string) gjson.Result {
	t.Helper()
	var items []string
	var last gjson.Result
	seen := map[string]bool{}
	for i, ev := range events(body) {
		last = gjson.Parse(ev)
		kind := last.Get("type").String()
		seen[kind] = true
		if last.Get("sequence_number").Int() != int64(i) || !strings.Contains(body, "event: "+kind+"\ndata: {") {
			t.Errorf("event %d: %s", i, ev)
		}
		if kind == "response.output_item.done" {
			items = append(items, last.Get("item").Raw)
		}
	}
	if got := last.Get("response.output").Raw; got != "["+strings.Join(items, ",")+"]" || last.Get("type").String() != "response.completed" {
		t.Errorf("the last event is %s, the items were %s", last.Raw, items)
	}
	for _, kind := range []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.reasoning_summary_text.delta"} {
		if !seen[kind] {
			t.Errorf("no event %s", kind)
		}
	}
	return last.Get("response")
}

func TestResponsesRefusals(t *testing.T) {
	e := New(Options{Wire: WireOpenAI, Reasoning: true})
	const user = `{"role":"user","content":"go"}`
	first := gjson.Parse(answered(t, e, responsesPath, responsesTask("["+user+"]", sealed)))
	thought, said, call := first.Get("output.0").Raw, first.Get("output.1").Raw, first.Get("output.2").Raw
	secret := first.Get("output.0.encrypted_content").String()
	again := func(items string) string { return responsesTask("["+user+","+items+"]", sealed) }
	for _, c := range []struct{ name, body, code, message string }{
		{"as it came", again(thought + "," + said + "," + call), "", ""},
		{"changed", again(strings.Replace(thought, secret, "A"+secret[1:], 1)), "invalid_encrypted_content", "could not be verified"},
		{"not stored", again(strings.Replace(thought, `"encrypted_content":"`+secret+`",`, "", 1)), "", "not found. Items are not persisted"},
		{"left out", again(said + "," + call), "", "was provided without its required 'reasoning' item"},
		{"foreign", responsesTask(`"x"`, `,"return_token_ids":true`), "unknown_parameter", "Unknown parameter: 'return_token_ids'."},
		{"temperature", responsesTask(`"x"`, `,"temperature":0.2`), "unsupported_parameter", "Unsupported parameter: 'temperature'"},
		{"unknown response", responsesTask(`"x"`, `,"previous_response_id":"resp_x"`), "previous_response_not_found", "not found."},
	} {
		w := askFor(e, responsesPath, c.body)
		bad := gjson.Get(w.Body.String(), "error")
		if (c.message == "") != (w.Code == 200) || bad.Get("code").String() != c.code || !strings.Contains(bad.Get("message").String(), c.message) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
}

// The official SDK reads both forms, and a stored response is continued by its id.
func TestResponsesSDK(t *testing.T) {
	srv := startWire(t, Options{Wire: WireOpenAI, Reasoning: true, Key: "k"})
	client := openai.NewClient(option.WithBaseURL(srv.URL+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
	params := responses.ResponseNewParams{
		Model: "fake-model",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("go")},
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
			Name: "bash", Parameters: map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}},
		}}},
	}
	stream := client.Responses.NewStreaming(t.Context(), params)
	var first responses.Response
	text := ""
	for stream.Next() {
		switch ev := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += ev.Delta
		case responses.ResponseCompletedEvent:
			first = ev.Response
		}
	}
	closeStream(t, stream)
	if err := stream.Err(); err != nil || text == "" || first.OutputText() != text {
		t.Fatalf("%v, %q and %q", err, text, first.OutputText())
	}
	truth := truthOf(t, srv.Engine, first.ID)
	params.PreviousResponseID = openai.String(first.ID)
	callID := first.Output[len(first.Output)-1].CallID
	result := responses.ResponseInputItemParamOfFunctionCallOutput("ok")
	result.OfFunctionCallOutput.CallID = openai.String(callID)
	params.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{result}}
	second, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	want := append(append([]int32(nil), truth.Prompt...), truth.Sampled[0]...)
	if got := truthOf(t, srv.Engine, second.ID).Prompt; !strings.HasPrefix(spelled(got), strings.TrimSuffix(spelled(want), "]")) {
		t.Errorf("prompt %v does not extend %v", got, want)
	}
}

// Cut by its bound, a response is incomplete; its events still open and close everything.
func TestResponsesIncomplete(t *testing.T) {
	e := New(Options{Wire: WireOpenAILogprobs, Reasoning: true})
	body := answered(t, e, responsesPath, responsesTask(`"go"`, `,"stream":true,"max_output_tokens":20,"temperature":0`))
	all := events(body)
	last := gjson.Parse(all[len(all)-1])
	if last.Get("type").String() != "response.incomplete" || last.Get("response.incomplete_details.reason").String() != "max_output_tokens" {
		t.Errorf("last event %s", last.Raw)
	}
	if added, done := strings.Count(body, `"response.output_item.added"`), strings.Count(body, `"response.output_item.done"`); added == 0 || added != done {
		t.Errorf("%d items opened, %d closed", added, done)
	}
	failed := askFor(e, responsesPath, responsesTask(`"go"`, `,"stream":true`), "X-Fake-Fault", "error-event 4").Body.String()
	all = events(failed)
	if got := all[len(all)-1]; gjson.Get(got, "type").String() != "error" || !json.Valid([]byte(got)) || strings.Contains(failed, "[DONE]") {
		t.Errorf("stream %s", failed)
	}
}
