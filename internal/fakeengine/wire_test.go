package fakeengine

import (
	"math"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// The temperature moves the gap of the two best tokens where logprobs are processed, and only there.
func TestLogprobsModeOfWires(t *testing.T) {
	for wire, want := range map[Wire]float64{
		WireVLLM: 2, WireVLLMOld: 2, WireSGLang: 2, WireSGLangOld: 2, WireLlamaCpp: 1, WireFireworks: 1, WireOpenAILogprobs: 1,
	} {
		e := New(Options{Wire: wire})
		gap := func(temperature string) float64 {
			answer := answered(t, e, chatPath, `{"model":"fake-model","messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":2,"temperature":`+temperature+`}`)
			top := gjson.Get(answer, "choices.0.logprobs.content.0.top_logprobs")
			return top.Get("0.logprob").Num - top.Get("1.logprob").Num
		}
		if got := gap("1") / gap("2"); math.Abs(got-want) > 1e-5 {
			t.Errorf("%s: the gap shrinks by %v, want %v", wire, got, want)
		}
	}
}

func TestUnknownWireIsRefused(t *testing.T) {
	if _, err := Start(Options{Wire: "tgi"}); err == nil || !strings.Contains(err.Error(), "sglang") {
		t.Errorf("error %v", err)
	}
}
