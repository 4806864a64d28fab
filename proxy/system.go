package proxy

import (
	"net/http"
	"regexp"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// onlyLeading is how chat templates and the servers around them say that a system message may stand at the beginning only,
// or that there is no such role.
var onlyLeading = regexp.MustCompile(`(?i)system (?:message|role|prompt)s?\W.{0,60}(?:beginning|first|start|not supported|unsupported|not allowed)|` +
	`only (?:the )?(?:user|assistant)[\w, /]{1,40}roles? (?:are|is) (?:supported|allowed)|unexpected (?:message )?role\W{1,3}system|` + `role\W{1,3}system\W.{0,40}(?:not supported|not allowed|beginning|first)`)

// systemRefused prepares a call again with the system messages inside its conversation as a user's, when the engine's template
// refuses them there, and says whether it does (SPEC 3). If the call goes through, the profile remembers.
func (c *call) systemRefused(status int, body []byte) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError: // llama.cpp says 500 of a template's exception
	default:
		return false
	}
	if c.native != nil || c.plan.systemAsUser || c.req.Wire() != record.OpenAIChat || !onlyLeading.Match(body) {
		return false
	}
	changed := c.plan
	changed.systemAsUser = true
	sent, bad := prepare(c.req, changed)
	if bad != nil || !slices.ContainsFunc(sent.edits, func(e record.Edit) bool { return e.Param == systemParam }) {
		return false
	}
	c.s.Logger.Info("the engine's template refused a system message inside the conversation", sessionField(c.live.ID()), callField(c.rec.Number), answerField(body))
	c.plan, c.sent = changed, sent
	c.noteSent()
	return true
}

const systemParam = "messages[].role"

// system gives system messages that do not lead the conversation to the user, for engines whose template takes them nowhere
// else. They stay where they are, so that the next prompt extends this one.
func (e *editor) system(p plan) {
	if !p.systemAsUser {
		return
	}
	raw := e.current("messages")
	cur := jsonscan.New(raw)
	var splices []jsonscan.Splice
	leading := true
	for messages := cur.Array(); messages.Next(); {
		role := ""
		for m := cur.Object(); m.Next(); {
			if string(m.Key) != "role" {
				continue
			}
			role, _ = cur.String()
			if (role == "system" || role == "developer") && !leading {
				splices = append(splices, jsonscan.Splice{Start: m.Value, End: cur.Pos(), With: []byte(`"user"`)})
			}
		}
		leading = leading && (role == "system" || role == "developer")
	}
	if len(splices) == 0 || cur.End() != nil {
		return
	}
	e.put("messages", jsonscan.Apply(nil, raw, splices))
	e.edits = append(e.edits, record.Edit{Kind: record.EditHistory, Param: systemParam, From: []byte(`"system"`), To: []byte(`"user"`),
		Why: "the engine's template takes a system message at the beginning only"})
}
