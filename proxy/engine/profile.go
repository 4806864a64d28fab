package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"captureproxy/internal/record"
)

// Profile is what an endpoint can do, as measured. A Profile is immutable; its upstream swaps in a new one when it
// learns something.
type Profile struct {
	// Measured says that the probe ran; Level is empty before, unless it was given.
	Measured bool
	// Recalled says that it ran in an earlier process.
	Recalled bool
	Level    record.Level
	// StreamCapture says that a streamed answer carries all that a whole one does.
	StreamCapture  bool
	LogprobsMode   record.LogprobsMode
	Provider       string
	Version        string
	ReasoningField string
	ToolSupport    bool
	// Models are the served names, Served the one that is sent: the configured one, or the only one there is.
	Models []string
	Served string
	// TopLogprobs is the smallest top_logprobs with which logprob rows come.
	TopLogprobs int
	// Refused lists the kinds of calls on which the engine refused our capture parameters.
	Refused []Shape
	// Whole and Stream are how the two kinds of calls are captured.
	Whole, Stream Way
	// Buffered says that streamed calls are made as whole ones and replayed, as only whole answers carry token ids.
	Buffered bool
	// Fixes are the edits that the engine asked for by refusing calls, to be made on every call.
	Fixes []Fix
	// SystemAsUser says that the template refused a system message inside a conversation: such go as a user's.
	SystemAsUser bool
	// Native are the dialects that go to the engine as they came, byte for byte.
	Native []record.Dialect
	// Forced is the field that takes prompt ids beside the messages, as measured; "" where the engine follows none.
	Forced string
	// Tokenizes and Detokenizes say that the engine's /tokenize and /detokenize work.
	Tokenizes, Detokenizes bool
	// WeightVersion is the engine's name of the weights it serves, when it was measured; "" for none.
	WeightVersion string
	// VocabSize is the number of token ids of the model, 0 when unknown.
	VocabSize int
	// Findings are what a person should know, each with what to do.
	Findings []string
}

// Captures says whether capture parameters may be sent on calls of a shape.
func (p *Profile) Captures(s Shape) bool { return !slices.Contains(p.Refused, s) }

// Record is the part that travels with every document.
func (p *Profile) Record() record.Profile {
	return record.Profile{
		Provider: p.Provider, Version: p.Version, CaptureLevel: p.Level, StreamCapture: p.StreamCapture, LogprobsMode: p.LogprobsMode,
		ReasoningField: p.ReasoningField, ToolSupport: p.ToolSupport, ForcedIDs: p.Forced != "", VocabSize: p.VocabSize,
	}
}

// Profile returns what is known now.
func (u *Upstream) Profile() *Profile { return u.profile.Load() }

// Record describes the engine for a document.
func (u *Upstream) Record() record.Engine {
	p := u.Profile()
	e := record.Engine{URL: u.URL(), Model: p.Served, Profile: p.Record(), ParamEdits: make([]record.Edit, 0, len(p.Fixes))}
	for _, f := range p.Fixes {
		e.ParamEdits = append(e.ParamEdits, f.Edit(nil))
	}
	return e
}

// learn replaces the profile by what change makes of a copy, and remembers what was measured.
func (u *Upstream) learn(change func(*Profile)) {
	for {
		old := u.profile.Load()
		next := *old
		change(&next)
		if u.profile.CompareAndSwap(old, &next) {
			u.remember(&next)
			return
		}
	}
}

// Refuse notes that the engine refused capture parameters on calls of a shape. What was only recalled is measured anew.
func (u *Upstream) Refuse(s Shape) {
	u.learn(func(p *Profile) {
		if !slices.Contains(p.Refused, s) {
			p.Refused = append(slices.Clone(p.Refused), s)
		}
		p.doubt()
	})
}

// TakesSystemFirstOnly notes that the engine's template takes a system message at the beginning only.
func (u *Upstream) TakesSystemFirstOnly() {
	if !u.Profile().SystemAsUser {
		u.learn(func(p *Profile) { p.SystemAsUser = true })
	}
}

// RetryMeasure is how long after a failed measurement the next one may start.
const RetryMeasure = 2 * time.Second

// Measure measures the engine once; concurrent callers share the measurement. It returns the profile, whose Measured is
// false when the engine could not be reached. What an earlier process measured of the same engine holds as long as the
// engine says that it is still the same.
func (u *Upstream) Measure(ctx context.Context) *Profile {
	if p := u.Profile(); p.Measured {
		return p
	}
	u.measuring.Lock()
	defer u.measuring.Unlock()
	p := u.Profile()
	if p.Measured || time.Since(time.Unix(0, u.asked.Load())) < RetryMeasure {
		return p
	}
	measured := u.recall(ctx)
	if measured == nil {
		measured = u.probe(ctx)
	}
	if measured == nil {
		u.asked.Store(time.Now().UnixNano())
		return u.Profile()
	}
	u.learn(func(p *Profile) {
		refused := p.Refused
		*p = *measured
		for _, s := range refused {
			if !slices.Contains(p.Refused, s) {
				p.Refused = append(slices.Clone(p.Refused), s)
			}
		}
		p.fill()
	})
	return u.Profile()
}

// unmeasured keeps why a measurement came to nothing. It returns nil, the profile of such a one.
func (u *Upstream) unmeasured(format string, args ...any) *Profile {
	problem := fmt.Sprintf(format, args...)
	u.problem.Store(&problem)
	return nil
}

// Problem says why the last measurement came to nothing, "" when none did.
func (u *Upstream) Problem() string {
	if problem := u.problem.Load(); problem != nil {
		return *problem
	}
	return ""
}

// Assume takes a profile for measured, where somebody knows better than a probe.
func (u *Upstream) Assume(p Profile) {
	p.Measured = true
	p.fill()
	u.profile.Store(&p)
}
