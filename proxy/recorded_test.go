package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// Every recorded vLLM exchange that carries ids, played back through the proxy whole and streamed, makes a turn that holds
// exactly those ids and logprobs; and a pair, whole and streamed, makes the same turn.
func TestRecordedExchanges(t *testing.T) {
	turns := map[string]*record.Call{}
	for _, e := range wiretest.All(t, "vllm-0.32.0") {
		if e.Status != 200 || !strings.HasSuffix(e.Path, "completions") || !bytes.Contains(e.Body, []byte(`"token_ids":[`)) {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Type", e.Header["content-type"])
				w.Write(e.Body)
			})
			r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "tiny"})
			resp, body := r.post(e.Path, string(e.Request))
			if resp.StatusCode != 200 {
				t.Fatalf("%d: %s", resp.StatusCode, body)
			}
			want := truth(t, e)
			c := r.only()
			if len(c.Choices) != len(want) {
				t.Fatalf("%d choices, want %d", len(c.Choices), len(want))
			}
			for i, ch := range c.Choices {
				w := want[ch.Index]
				if !slices.Equal(ch.SampledIDs, w.sampled) || !equalFloats(ch.Logprobs, w.logprobs) || !slices.Equal(ch.PromptIDs, w.prompt) {
					t.Errorf("choice %d: got %v %v %v\nwant %v %v %v", i, ch.PromptIDs, ch.SampledIDs, ch.Logprobs, w.prompt, w.sampled, w.logprobs)
				}
				if !c.Outcome.IsNode() {
					t.Errorf("outcome %s: %s", c.Outcome, c.Detail)
				}
				if len(w.logprobs) == len(w.sampled) && c.Outcome == record.IncompleteCapture {
					t.Errorf("incomplete: %s", c.Detail)
				}
			}
			turns[e.Name] = c
		})
	}
	pairs := 0
	for name, whole := range turns {
		base, ok := strings.CutSuffix(name, "_full")
		streamed := turns[base+"_stream"]
		if !ok || streamed == nil {
			continue
		}
		pairs++
		a, b := whole.Choices[0], streamed.Choices[0]
		if !slices.Equal(a.PromptIDs, b.PromptIDs) || !slices.Equal(a.SampledIDs, b.SampledIDs) || !equalFloats(a.Logprobs, b.Logprobs) || a.Outcome != b.Outcome && !strings.Contains(base, "midcall") {
			t.Errorf("%s: whole and streamed are two turns: %s %s", base, a.Outcome, b.Outcome)
		}
	}
	if len(turns) < 60 || pairs < 15 {
		t.Errorf("only %d exchanges and %d pairs", len(turns), pairs)
	}
}

func equalFloats(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

type told struct {
	prompt, sampled []int32
	logprobs        []float64
}

// truth reads an exchange with encoding/json, in another way than the proxy does.
func truth(t *testing.T, e *wiretest.Exchange) map[int]told {
	t.Helper()
	type choice struct {
		Index    int     `json:"index"`
		IDs      []int32 `json:"token_ids"`
		Prompt   []int32 `json:"prompt_token_ids"`
		Logprobs *struct {
			Content []struct {
				Logprob *float64 `json:"logprob"`
			} `json:"content"`
			Token []*float64 `json:"token_logprobs"`
		} `json:"logprobs"`
	}
	type object struct {
		Prompt  []int32  `json:"prompt_token_ids"`
		Choices []choice `json:"choices"`
	}
	var objects []object
	if e.SSE() {
		for _, line := range strings.Split(string(e.Body), "\n") {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok || data == "[DONE]" {
				continue
			}
			var o object
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, o)
		}
	} else {
		var o object
		if err := json.NewDecoder(bytes.NewReader(e.Body)).Decode(&o); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	out := map[int]told{}
	var prompt []int32
	for _, o := range objects {
		if len(o.Prompt) > 0 {
			prompt = o.Prompt
		}
		for _, c := range o.Choices {
			x := out[c.Index]
			x.sampled = append(x.sampled, c.IDs...)
			if len(c.Prompt) > 0 {
				x.prompt = c.Prompt
			}
			if c.Logprobs != nil {
				for _, row := range c.Logprobs.Content {
					x.logprobs = append(x.logprobs, number(row.Logprob))
				}
				for _, v := range c.Logprobs.Token {
					x.logprobs = append(x.logprobs, number(v))
				}
			}
			out[c.Index] = x
		}
	}
	for i, x := range out {
		if x.prompt == nil {
			x.prompt = prompt
			out[i] = x
		}
	}
	return out
}

func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
