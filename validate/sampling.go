package validate

import (
	"fmt"

	"github.com/tidwall/gjson"

	"captureproxy/internal/record"
)

// sampling is the part of a call's submitted parameters that shapes the distribution its tokens come from. Absent
// settings read as no-ops.
type sampling struct {
	temperature, topP, topK, minP float64
	penalised                     bool
}

func samplingOf(c *record.Call) sampling {
	p := gjson.ParseBytes(c.SubmittedSampling)
	number := func(name string, noop float64) float64 {
		if v := p.Get(name); v.Type == gjson.Number {
			return v.Num
		}
		return noop
	}
	s := sampling{temperature: number("temperature", 1), topP: number("top_p", 1), topK: number("top_k", 0), minP: number("min_p", 0)}
	if s.topK < 0 {
		s.topK = 0 // -1 and 0 both mean all
	}
	s.penalised = number("presence_penalty", 0) != 0 || number("frequency_penalty", 0) != 0 || number("repetition_penalty", 1) != 1
	return s
}

// plain reports whether raw and processed logprobs are the same under s.
func (s sampling) plain() bool {
	return s == sampling{temperature: 1, topP: 1}
}

func (s sampling) String() string {
	text := fmt.Sprintf("temperature %v, top_p %v, top_k %v, min_p %v", s.temperature, s.topP, s.topK, s.minP)
	if s.penalised {
		text += ", penalties on"
	}
	return text
}

// checkLogprobsMode looks for trained turns whose logprobs may not be those of what was sampled from.
func checkLogprobsMode(r *report, f RolloutFacts) {
	mode := f.Session.Engine.Profile.LogprobsMode
	if mode == record.LogprobsProcessed {
		return
	}
	for _, c := range f.Trained {
		s := samplingOf(c)
		if s.plain() {
			continue
		}
		switch {
		case mode != record.LogprobsRaw:
			r.add(Warn, LogprobsMode, "call %d was sampled with %s, and nobody measured whether this engine's logprobs show that", c.Number, s)
		case f.Session.AllowRawLogprobs:
			r.add(Warn, LogprobsMode, "call %d was sampled with %s, but the engine's logprobs are raw; allowed by --allow-raw-logprobs", c.Number, s)
		default:
			r.add(Fatal, LogprobsMode, "call %d was sampled with %s, but the engine's logprobs are raw: sample at temperature 1 without truncation, or serve processed logprobs", c.Number, s)
		}
		return
	}
}

// checkSamplingPolicy compares the sampling of the trained turns where the session pins it.
func checkSamplingPolicy(r *report, f RolloutFacts) {
	if len(f.Session.Spec.Sampling) == 0 || isNull(f.Session.Spec.Sampling) || len(f.Trained) == 0 {
		return
	}
	first := samplingOf(f.Trained[0])
	for _, c := range f.Trained[1:] {
		if s := samplingOf(c); s != first {
			r.add(Fatal, SamplingPolicyChanged, "call %d was sampled with %s, call %d with %s, although the session pins sampling", f.Trained[0].Number, first, c.Number, s)
			return
		}
	}
}
