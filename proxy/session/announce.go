package session

import (
	"encoding/json"

	"captureproxy/internal/record"
	"captureproxy/proxy/events"
)

// Events is where what happens to the sessions can be followed.
func (r *Registry) Events() *events.Hub { return r.events }

// Announce tells whoever follows that something happened to a session.
func (r *Registry) Announce(kind events.Kind, s *record.Session) {
	r.hooks.happened(kind, s)
	if r.events.Awake() {
		r.events.Publish(r.event(kind, s))
	}
}

func (r *Registry) event(kind events.Kind, s *record.Session) events.Event {
	e := events.Event{Kind: kind, Time: r.now().UTC(), Session: s.ID, Status: s.Status, Reward: s.Reward}
	if s.Spec.Group != nil {
		e.Group = s.Spec.Group.ID
	}
	if len(s.Spec.Run) > 0 {
		var run struct{ ID string }
		if json.Unmarshal(s.Spec.Run, &run) == nil { // a run of another form is found by no filter
			e.Run = run.ID
		}
	}
	if s.Outcome != nil && s.Outcome.Error != nil {
		e.Error = *s.Outcome.Error
	}
	return e
}

// announce tells of one of the session's calls; c is nil while it is under way. The caller holds l.mu.
func (l *Live) announce(kind events.Kind, t *Ticket, c *record.Call) {
	e := l.callEvent(kind, t, c)
	e.Calls, e.Turns, e.InFlight = l.counts.Calls, l.counts.Nodes, len(l.tickets)
	l.registry.events.Publish(e)
}

// callEvent makes an event of a call, without what it says of the session's calls taken together.
func (l *Live) callEvent(kind events.Kind, t *Ticket, c *record.Call) events.Event {
	e := l.registry.event(kind, l.rec)
	e.Call, e.RetryOf = t.Number, t.RetryOf
	if c != nil {
		e.Outcome, e.HTTPStatus, e.Error = c.Outcome, c.Status, c.Detail
		e.DurationMS = c.Timing.Recorded.Sub(c.Timing.Received).Milliseconds()
		for i := range c.Choices {
			e.NPrompt = max(e.NPrompt, len(c.Choices[i].PromptIDs))
			e.NSampled += len(c.Choices[i].SampledIDs)
		}
	}
	return e
}
