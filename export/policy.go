package export

import (
	"encoding/json"
	"strconv"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"captureproxy/internal/record"
)

// policyOf derives which weights the rollout was made with: the smallest version at dispatch, the largest at an end.
// It is nil when the weights do not move or no version was ever given: staleness is then unknown, not 0.
func policyOf(sess *record.Session, answers []answer) *Policy {
	if sess.Spec.Frozen {
		return nil
	}
	p := &Policy{}
	for _, a := range answers {
		at := a.call.Policy
		if v := at.Dispatch; v != nil && (p.Start == nil || *v < *p.Start) {
			p.Start = v
		}
		if v := at.End; v != nil && (p.End == nil || *v > *p.End) {
			p.End = v
		}
	}
	if p.Start == nil && p.End == nil {
		return nil
	}
	if p.Start != nil && p.End != nil {
		drift := *p.End - *p.Start
		p.Drift = &drift
	}
	p.OffPolicySteps = offPolicy(sess.Spec.Run, p)
	return p
}

// offPolicy counts the steps between the weights that sampled and those that learn: (step − 1) − start when
// training, the drift in an eval.
func offPolicy(run json.RawMessage, p *Policy) *int64 {
	r := gjson.ParseBytes(run)
	if r.Get("kind").Str == "eval" || r.Get("metadata.kind").Str == "eval" {
		return p.Drift
	}
	step := r.Get("metadata.step")
	if r.Get("kind").Str != "train" || step.Type != gjson.Number || p.Start == nil {
		return nil
	}
	steps := step.Int() - 1 - *p.Start
	return &steps
}

// runWithPolicy puts what was derived next to what the caller said of its run, where the run has metadata.
func runWithPolicy(run json.RawMessage, p *Policy) json.RawMessage {
	if !gjson.GetBytes(run, "metadata").IsObject() {
		return run
	}
	policy := []byte("null")
	if p == nil {
		p = &Policy{}
	} else {
		policy = object("start", p.Start, "end", p.End)
	}
	for _, f := range []struct {
		path string
		raw  []byte
	}{
		{"metadata.policy", policy}, {"metadata.drift", version(p.Drift)}, {"metadata.off_policy_steps", version(p.OffPolicySteps)},
	} {
		next, err := sjson.SetRawBytes(run, f.path, f.raw)
		if err != nil {
			panic("export: " + f.path + ": " + err.Error()) // the paths are ours, and well-formed
		}
		run = next
	}
	return run
}

func object(k1 string, v1 *int64, k2 string, v2 *int64) []byte {
	e := &encoder{}
	e.open('{')
	e.version(k1, v1)
	e.version(k2, v2)
	e.buf = append(e.buf, '}')
	return e.buf
}

func version(v *int64) []byte {
	if v == nil {
		return []byte("null")
	}
	return strconv.AppendInt(nil, *v, 10)
}
