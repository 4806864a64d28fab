package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/wiretest"
)

// TestIDsOfEveryWire reads the ids where each engine has them, and takes them out again.
func TestIDsOfEveryWire(t *testing.T) {
	rows := `"logprobs":{"content":[{"token":"5","logprob":-0.5},{"token":"","logprob":-0.25}]}`
	for _, c := range []struct {
		name, body string
		prompt     []int32
		want       string
	}{
		{"SGLang 0.5.17, whole", `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"5"},` + rows + `,"finish_reason":"stop","matched_stop":99,"prompt_token_ids":[1,2],"response_token_ids":[5,99]}]}`,
			[]int32{1, 2}, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"5"},"logprobs":null,"finish_reason":"stop","matched_stop":99}]}`},
		{"SGLang 0.5.13, whole", `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"5"},` + rows + `,"finish_reason":"stop","prompt_token_ids":[1,2],"meta_info":{"id":"r","output_token_logprobs":[[-0.5,5,"5"],[-0.25,99,null]]}}]}`,
			[]int32{1, 2}, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"5"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"SGLang, rows of steps without text lost", `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":{"content":[{"token":"5","logprob":-0.5}]},"finish_reason":"stop","prompt_token_ids":[1,2],"meta_info":{"output_token_logprobs":[[-0.5,5,"5"],[-0.25,99,null]]}}]}`,
			[]int32{1, 2}, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"SGLang, both", `{"choices":[{"index":0,"message":{"content":"5"},` + rows + `,"finish_reason":"stop","meta_info":{"output_token_logprobs":[[-0.5,5,"5"],[-0.25,99,null]]},"response_token_ids":[5,99]}],"sglext":{"input_ids":[1,2],"output_ids":[[5,99]]}}`,
			[]int32{1, 2}, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"SGLang, beside what the harness asked for", `{"choices":[{"index":0,"message":{"content":"5"},` + rows + `,"finish_reason":"stop"}],"sglext":{"input_ids":[1,2],"routed_experts":"AAA=","output_ids":[[5,99]]}}`,
			[]int32{1, 2}, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}],"sglext":{"routed_experts":"AAA="}}`},
		{"llama.cpp", `{"choices":[{"index":0,"message":{"content":"5"},` + rows + `,"finish_reason":"stop"}],"__verbose":{"index":0,"content":"5","tokens":[5,99],"prompt":"p"},"timings":{}}`,
			nil, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}],"timings":{}}`},
		{"Together", `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":{"tokens":["5",""],"token_logprobs":[-0.5,-0.25],"token_ids":[5,99]},"finish_reason":"stop"}]}`,
			nil, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}]}`},
		{"Fireworks", `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":{"content":[{"token":"5","token_id":5,"logprob":-0.5,"sampling_logprob":-0.4},{"token":"","token_id":99,"logprob":-0.25,"sampling_logprob":0}]},"finish_reason":"stop","prompt_token_ids":[1,2],"token_ids":[5,99]}]}`,
			[]int32{1, 2}, `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":null,"finish_reason":"stop"}]}`},
	} {
		a := &Answer{}
		edited, ok := a.Whole([]byte(c.body), &Strip{TokenIDs: true, Logprobs: true})
		if !ok {
			t.Errorf("%s: no answer", c.name)
			continue
		}
		choice := a.Choices[0]
		if !slices.Equal(choice.SampledIDs, []int32{5, 99}) || !choice.HasIDs || !slices.Equal(choice.Logprobs, []float64{-0.5, -0.25}) || !slices.Equal(a.Prompt(choice), c.prompt) {
			t.Errorf("%s: ids %v, logprobs %v, prompt %v", c.name, choice.SampledIDs, choice.Logprobs, a.Prompt(choice))
		}
		if len(choice.Remarks())+len(a.Remarks()) != 0 {
			t.Errorf("%s: %v %v", c.name, choice.Remarks(), a.Remarks())
		}
		if string(edited) != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, edited, c.want)
		}
		var kept Answer
		if edited, _ := kept.Whole([]byte(c.body), &Strip{}); edited != nil {
			t.Errorf("%s: edited although the harness asked for it: %s", c.name, edited)
		}
	}
}

// TestIDsThatContradict: two lists of one answer that differ are both doubtful.
func TestIDsThatContradict(t *testing.T) {
	for name, body := range map[string]string{
		"meta_info":         `{"choices":[{"index":0,"message":{"content":"5"},"response_token_ids":[5,99],"meta_info":{"output_token_logprobs":[[-0.5,6,"5"],[-0.25,99,null]]}}]}`,
		"token_ids":         `{"choices":[{"index":0,"message":{"content":"5"},"response_token_ids":[5,99],"token_ids":[5]}]}`,
		"__verbose":         `{"choices":[{"index":0,"message":{"content":"5"},"token_ids":[5,99]}],"__verbose":{"tokens":[99,5]}}`,
		"logprob row's ids": `{"choices":[{"index":0,"message":{"content":"5"},"logprobs":{"token_ids":[5,98]},"token_ids":[5,99]}]}`,
	} {
		a := &Answer{}
		a.Whole([]byte(body), &Strip{})
		if r := a.Choices[0].Remarks(); len(r) != 1 || r[0].Code != "capture_conflict" {
			t.Errorf("%s: %v", name, r)
		}
	}
	a := &Answer{}
	a.Whole([]byte(`{"choices":[{"index":0,"message":{"content":"5"},"meta_info":{"output_token_logprobs":[[-0.5,5.5,"5"]]}}]}`), &Strip{})
	if c := a.Choices[0]; len(c.SampledIDs) != 0 || len(c.Remarks()) != 1 || c.Remarks()[0].Code != "invalid_token_id" {
		t.Errorf("%v %v", c.SampledIDs, c.Remarks())
	}
}

// TestLateIDs reads SGLang's late chunk, which goes as a whole, framed or not.
func TestLateIDs(t *testing.T) {
	body := "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"5\"},\"logprobs\":{\"content\":[{\"logprob\":-0.5}]},\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null},\"logprobs\":{\"content\":[{\"logprob\":-0.25}]},\"finish_reason\":null}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\",\"matched_stop\":99}]}\n\n" +
		"event: sglext_ids\ndata: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"sglext\":{\"input_ids\":[1,2],\"output_ids\":[[5,99]]}}\n\n" +
		"data: [DONE]\n\n"
	for _, in := range []string{body, strings.Replace(body, "event: sglext_ids\n", "", 1)} {
		a, out := stream(t, []byte(in), &everything)
		c := a.Choices[0]
		if !slices.Equal(c.SampledIDs, []int32{5, 99}) || len(c.Logprobs) != 2 || !slices.Equal(a.Prompt(c), []int32{1, 2}) || !a.Done {
			t.Errorf("ids %v, logprobs %v, prompt %v", c.SampledIDs, c.Logprobs, a.Prompt(c))
		}
		if strings.Contains(out, "sglext") {
			t.Errorf("the harness gets %s", out)
		}
	}
}

// TestRecordedLlamaCpp: the ids that the engine says it sampled are read from its recorded answers, whatever its rows lost.
func TestRecordedLlamaCpp(t *testing.T) {
	read := 0
	for _, x := range wiretest.All(t, "llamacpp") {
		var said struct {
			Choices []struct{} `json:"choices"`
			Verbose struct {
				Tokens []int32 `json:"tokens"`
			} `json:"__verbose"`
		}
		if x.SSE() || json.Unmarshal(x.Body, &said) != nil || len(said.Verbose.Tokens) == 0 {
			continue
		}
		read++
		a := &Answer{}
		edited, ok := a.Whole(x.Body, &Strip{TokenIDs: true, Logprobs: true})
		if !ok || !slices.Equal(a.Choices[0].SampledIDs, said.Verbose.Tokens) || strings.Contains(string(edited), "__verbose") {
			t.Errorf("%s: %v, want %v; %s", x.Name, a.Choices[0].SampledIDs, said.Verbose.Tokens, edited)
		}
		if len(said.Choices) == 1 && int64(len(said.Verbose.Tokens)) != *a.Usage.Completion {
			t.Errorf("%s: %d ids, usage says %d", x.Name, len(said.Verbose.Tokens), *a.Usage.Completion)
		}
	}
	if read < 3 {
		t.Errorf("only %d recordings carry the engine's ids", read)
	}
}
