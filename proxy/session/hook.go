package session

import (
	"captureproxy/internal/record"
	"captureproxy/proxy/events"
)

// hooks are what else happens when a session ends, however it does.
type hooks struct {
	mark func(*record.Session)
	then func(*record.Session)
}

// OnEnd has mark applied to the record of every session that ends, in the write that makes its status terminal, and then
// called when that is on disk. then must not block. OnEnd is called before the registry is used.
func (r *Registry) OnEnd(mark, then func(*record.Session)) { r.hooks = hooks{mark, then} }

// marking is change and the mark.
func (h hooks) marking(change func(*record.Session)) func(*record.Session) {
	if h.mark == nil {
		return change
	}
	return func(s *record.Session) {
		if change != nil {
			change(s)
		}
		h.mark(s)
	}
}

// happened tells that something happened to a session.
func (h hooks) happened(kind events.Kind, s *record.Session) {
	if kind == events.SessionEnded && h.then != nil {
		h.then(s)
	}
}
