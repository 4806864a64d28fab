package engine

import (
	"encoding/json"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Edit is the fix as documents and reports name it. from is the value that it replaced, nil for none.
func (f Fix) Edit(from []byte) record.Edit {
	null := json.RawMessage("null")
	e := record.Edit{Kind: record.EditNegotiated, Param: f.Param, From: null, To: null, Why: f.Why, Behaviour: f.Behaviour}
	if from != nil {
		e.From = from
	}
	switch {
	case f.Rename != "":
		e.To = jsonscan.AppendQuote(nil, f.Rename)
	case f.To != "":
		e.To = json.RawMessage(f.To)
	}
	return e
}

// Learn remembers an edit that the engine asked for: later calls are made with it from the start. A second fix of the same
// parameter replaces the first. A capture parameter that the engine does not take any more lowers what is captured.
func (u *Upstream) Learn(f Fix) {
	f.Why = u.withoutKey(f.Why)
	u.learn(func(p *Profile) {
		p.Fixes = withFix(p.Fixes, f)
		if f.To != "" || !slices.Contains(p.Whole.names(), f.Param) && !slices.Contains(p.Stream.names(), f.Param) {
			return
		}
		p.Whole, p.Stream = p.Whole.without(f.Param), p.Stream.without(f.Param)
		p.Level, p.StreamCapture = p.Whole.Level, p.Stream.Level == p.Whole.Level && p.Whole.Level != record.LevelText
		if p.Stream.Level == record.LevelTokens {
			p.Level, p.StreamCapture = record.LevelTokens, true
		}
		p.Buffered = p.Buffered && p.Whole.Level == record.LevelTokens
		p.doubt()
	})
}

// without is the way when the engine does not take one of its parameters.
func (w Way) without(param string) Way {
	if !slices.Contains(w.names(), param) {
		return w
	}
	out := Way{Level: w.Level, Header: w.Header, Derive: w.Derive}
	switch param {
	case "top_logprobs":
	case "logprobs":
		return Way{Level: record.LevelText}
	default:
		out = Way{Level: record.LevelLogprobs}
	}
	for _, p := range w.Params {
		if p.Name != param && (out.Level == record.LevelTokens || p.Name == "logprobs" || p.Name == "top_logprobs") {
			out.Params = append(out.Params, p)
		}
	}
	return out
}

func withFix(fixes []Fix, f Fix) []Fix {
	out := make([]Fix, 0, len(fixes)+1)
	for _, old := range fixes {
		if old.Param != f.Param {
			out = append(out, old)
		}
	}
	return append(out, f)
}

// LoseForced notes that the engine does not follow prompt ids after all: from now on it gets messages only.
func (u *Upstream) LoseForced(why string) {
	u.learn(func(p *Profile) {
		if p.Forced == "" {
			return
		}
		p.Findings = append(p.Findings[:len(p.Findings):len(p.Findings)], "prompt ids are not sent any more beside the messages: "+why)
		p.Forced = ""
	})
}
