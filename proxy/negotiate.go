package proxy

import (
	"slices"
	"strings"

	"go.uber.org/zap"

	"captureproxy/internal/jsonscan"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// maxFixes bounds how often one call is edited because the engine refused it (SPEC 3, Negotiation).
const maxFixes = 6

// prepare makes the bytes for the engine, see the functions of that name.
func (c *call) prepare() (prepared, *dialect.Error) {
	if c.native != nil {
		return prepareNative(c.req, c.plan), nil
	}
	return prepare(c.req, c.plan)
}

// negotiate prepares a call again with the one edit that the engine's refusal asks for, and says whether it asks for one. A
// request in the provider's own dialect is the harness's own affair and stays as it is. If the call goes through, the profile
// remembers.
func (c *call) negotiate(status int, body []byte) bool {
	if c.native != nil || len(c.fixes) == maxFixes || engine.ContextOverflow(status, body) {
		return false
	}
	doc, err := jsonscan.ParseDoc(c.sent.body)
	if err != nil {
		return false
	}
	fix, ok := engine.ReadRefusal(status, body, func(param string) bool { return field(doc, param) != nil })
	if !ok || c.askedFor(fix.Param) {
		return false
	}
	before := c.plan.fixes
	c.plan.fixes = append(before[:len(before):len(before)], fix)
	sent, bad := prepare(c.req, c.plan)
	if bad != nil || string(sent.body) == string(c.sent.body) { // it would be refused again
		c.plan.fixes = before
		return false
	}
	c.log(zap.InfoLevel, "the engine refused a call, sending it with an edit", answerField(body))
	c.fixes = append(c.fixes, fix)
	c.sent = sent
	c.noteSent()
	return true
}

// askedFor says whether a parameter is there because of the way in which calls of this shape are captured. That an engine
// refuses it here says nothing about other shapes: withoutCapture notes what it does.
func (c *call) askedFor(param string) bool {
	return slices.ContainsFunc(c.plan.way.Params, func(p engine.Param) bool { return p.Name == param }) && c.req.Doc.Get(param) == nil
}

// learn tells the engine's profile what this call found out by going through.
func (c *call) learn() {
	if c.refusal != nil { // our parameters were the trouble
		c.up.Refuse(c.shape())
	}
	for _, fix := range c.fixes {
		c.up.Learn(fix)
	}
	if c.plan.systemAsUser {
		c.up.TakesSystemFirstOnly()
	}
}

// fix makes the edits that the engine asked for, where they apply to this request.
func (e *editor) fix(fixes []engine.Fix) {
	for _, f := range fixes {
		from := e.field(f.Param)
		switch {
		case f.Rename != "":
			if from == nil {
				continue
			}
			if e.field(f.Rename) == nil {
				e.put(f.Rename, from)
			}
			e.put(f.Param, nil)
		case f.To != "":
			if string(from) == f.To {
				continue
			}
			e.put(f.Param, []byte(f.To))
		case from == nil:
			continue
		default:
			e.put(f.Param, nil)
			if f.Param == "logprobs" && e.current("top_logprobs") != nil { // it means nothing alone
				e.put("top_logprobs", nil)
			}
		}
		e.edits = append(e.edits, f.Edit(from))
	}
}

// field is the value of a parameter, dotted for one inside an object, after the changes so far.
func (e *editor) field(param string) []byte {
	outer, inner, dotted := strings.Cut(param, ".")
	if !dotted {
		return e.current(param)
	}
	doc, err := jsonscan.ParseDoc(e.current(outer))
	if err != nil {
		return nil
	}
	return doc.Get(inner)
}

func field(doc *jsonscan.Doc, param string) []byte {
	e := editor{req: &dialect.Request{Doc: doc}}
	return e.field(param)
}

// put sets or removes (nil) a parameter without listing it.
func (e *editor) put(param string, to []byte) {
	if outer, inner, dotted := strings.Cut(param, "."); dotted {
		doc, err := jsonscan.ParseDoc(e.current(outer))
		if err != nil {
			doc = &jsonscan.Doc{Bytes: []byte("{}")}
			if doc, err = jsonscan.ParseDoc(doc.Bytes); err != nil {
				return
			}
		}
		param, to = outer, doc.Edit(nil, []jsonscan.Change{{Key: inner, To: to}})
	}
	for i := range e.changes {
		if e.changes[i].Key == param {
			e.changes[i].To = to
			return
		}
	}
	e.changes = append(e.changes, jsonscan.Change{Key: param, To: to})
}
