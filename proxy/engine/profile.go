package engine

import (
	"context"
	"slices"
	"time"

	"captureproxy/internal/record"
)

// Profile is what an endpoint can do, as measured. A Profile is immutable; its upstream swaps in a new one when it
// learns something.
type Profile struct {
	// Measured says that the probe ran; Level is empty before, unless it was given.
	Measured bool
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
	// Findings are what a person should know, each with what to do.
	Findings []string
}

// Shape is the kind of a call, as far as engines treat capture parameters differently on it.
type Shape struct{ Stream, Tools bool }

// Captures says whether capture parameters may be sent on calls of a shape.
func (p *Profile) Captures(s Shape) bool { return !slices.Contains(p.Refused, s) }

// Record is the part that travels with every document.
func (p *Profile) Record() record.Profile {
	return record.Profile{
		Provider: p.Provider, Version: p.Version, CaptureLevel: p.Level, StreamCapture: p.StreamCapture, LogprobsMode: p.LogprobsMode,
		ReasoningField: p.ReasoningField, ToolSupport: p.ToolSupport,
	}
}

// Profile returns what is known now.
func (u *Upstream) Profile() *Profile { return u.profile.Load() }

// Record describes the engine for a document.
func (u *Upstream) Record() record.Engine {
	p := u.Profile()
	return record.Engine{URL: u.URL(), Model: p.Served, Profile: p.Record(), ParamEdits: []record.Edit{}}
}

// learn replaces the profile by what change makes of a copy.
func (u *Upstream) learn(change func(*Profile)) {
	for {
		old := u.profile.Load()
		next := *old
		change(&next)
		if u.profile.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Refuse notes that the engine refused capture parameters on calls of a shape.
func (u *Upstream) Refuse(s Shape) {
	u.learn(func(p *Profile) {
		if !slices.Contains(p.Refused, s) {
			p.Refused = append(slices.Clone(p.Refused), s)
		}
	})
}

// RetryMeasure is how long after a failed measurement the next one may start.
const RetryMeasure = 2 * time.Second

// Measure measures the engine once; concurrent callers share the measurement. It returns the profile, whose Measured is
// false when the engine could not be reached.
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
	if measured := u.probe(ctx); measured != nil {
		u.learn(func(p *Profile) {
			refused := p.Refused
			*p = *measured
			p.Refused = append(p.Refused, refused...)
		})
	} else {
		u.asked.Store(time.Now().UnixNano())
	}
	return u.Profile()
}

// Assume takes a profile for measured, where somebody knows better than a probe.
func (u *Upstream) Assume(p Profile) {
	p.Measured = true
	u.profile.Store(&p)
}
