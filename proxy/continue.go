package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/continuity"
	"captureproxy/proxy/engine"
)

// bridge is a prompt that carries on an earlier turn by that turn's own ids. It is sent beside the unchanged messages.
type bridge struct {
	field string
	ids   []int32
	made  record.Continued
}

// renderFor bounds how long a call waits for the engine to render what is new. What takes longer is sent as messages.
const renderFor = 5 * time.Second

// continueEarlier looks for the earlier turn that the call carries on, and makes the prompt of its ids and what is new
// (SPEC 3, continuity). Where that cannot be, the call goes on as plain messages and says why.
func (c *call) continueEarlier(p *plan) {
	if p.way.Level != record.LevelTokens || c.native != nil || c.req.Wire() != record.OpenAIChat || !c.wantsContinuity() {
		return
	}
	c.turns = c.live.Turns()
	c.turns.Begin(c.rec.Number)
	ctx, cancel := context.WithTimeout(c.ctx, renderFor)
	defer cancel()
	args := c.templateArgs(ctx)
	c.rec.Template = args
	request := continuity.Request{Messages: c.req.Messages, Tools: c.req.Tools, Template: args}
	m := c.turns.Find(request)
	if m.Turn == nil && m.Reason != "" && c.turns.Missing(c.rec.Number) {
		c.readTurns()
		m = c.turns.Find(request)
	}
	if m.Turn == nil {
		c.notBridged(m.Reason, m.Detail)
		return
	}
	if why := c.ownPrompt(); why != "" {
		c.notBridged(continuity.EngineCannot, why)
		return
	}
	field := c.up.ForcedField(ctx)
	if field == "" {
		c.notBridged(continuity.EngineCannot, "the engine takes no prompt ids beside messages, or cannot render what is new")
		return
	}
	b, err := c.build(ctx, field, args, m)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the next call shall not wait for it again
			c.up.LoseForced("the engine did not render what is new within " + renderFor.String())
		}
		c.notBridged(continuity.EngineCannot, err.Error())
		return
	}
	p.bridge = b
}

// wantsContinuity says whether the session is to be kept in one piece.
func (c *call) wantsContinuity() bool {
	spec := c.live.Record().Spec
	mode := spec.Continuity
	if mode == "" {
		mode = c.s.Continuity
	}
	return mode == "on" || mode != "off" && spec.Purpose == record.PurposeTrain
}

// templateParams are the request's parameters that a chat template sees.
var templateParams = []string{"chat_template", "chat_template_kwargs", "documents", "add_special_tokens", "mm_processor_kwargs"}

// templateArgs collects the request's template arguments, in one order. An effort counts only where the template renders it:
// some harnesses name one only once they have seen a thought.
func (c *call) templateArgs(ctx context.Context) string {
	var b []byte
	for _, param := range templateParams {
		if raw := c.req.Doc.Get(param); raw != nil && string(raw) != "null" {
			b = append(jsonscan.AppendQuote(append(b, ','), param), ':')
			b = append(b, raw...)
		}
	}
	args := object(b)
	effort := c.req.Doc.Get("reasoning_effort")
	if effort == nil || string(effort) == "null" {
		return args
	}
	doc, err := jsonscan.ParseDoc(orObject(c.req.Doc.Get("chat_template_kwargs")))
	if err != nil || doc.Get("reasoning_effort") != nil {
		return args
	}
	kwargs := doc.Edit(nil, []jsonscan.Change{{Key: "reasoning_effort", To: effort}})
	all, err := jsonscan.ParseDoc(orObject([]byte(args)))
	if err != nil {
		return args
	}
	with := string(all.Edit(nil, []jsonscan.Change{{Key: "chat_template_kwargs", To: kwargs}}))
	if c.up.SameTemplate(ctx, args, with) {
		return args
	}
	return with
}

func object(members []byte) string {
	if len(members) == 0 {
		return ""
	}
	return "{" + string(members[1:]) + "}"
}

func orObject(raw []byte) []byte {
	if len(raw) == 0 || string(raw) == "null" {
		return []byte("{}")
	}
	return raw
}

// ownPrompt says what in the request keeps a prompt of ours out, "" for nothing.
func (c *call) ownPrompt() string {
	for _, param := range []string{"kv_transfer_params", "input_ids", "echo", "continue_final_message"} {
		if raw := c.req.Doc.Get(param); raw != nil && string(raw) != "null" && string(raw) != "false" {
			return "the request says " + param + " itself"
		}
	}
	if string(c.req.Doc.Get("add_generation_prompt")) == "false" {
		return "the request says add_generation_prompt: false"
	}
	return ""
}

// build puts the prompt together, and asks meanwhile where the conversation would have broken.
func (c *call) build(ctx context.Context, field, args string, m continuity.Match) (*bridge, error) {
	t := m.Turn
	ids := t.AppendIDs(make([]int32, 0, t.Len()+1024))
	breaks := make(chan *int, 1)
	go func() { breaks <- c.breaksAt(ctx, args, m, ids[t.Prompt:]) }()
	r, err := c.up.Render(ctx, args, restored(m.Answer, m.Renamed), restoredAll(m.Added, m.Renamed))
	at := <-breaks
	if err != nil {
		return nil, err
	}
	made := record.Continued{
		Field: field, Call: t.Call, Choice: t.Choice, NPrompt: t.Prompt, NSampled: t.Sampled, NAdded: len(r.IDs), Echo: string(m.Echo), BreaksAt: at,
	}
	if t.Cut && t.Last != r.Marker {
		ids, made.NMarker = append(ids, r.Marker), 1
	}
	return &bridge{field: field, ids: append(ids, r.IDs...), made: made}, nil
}

// restoredAll gives calls the ids again that the engine gave them, for the templates that show ids: those of the past have the
// engine's.
func restoredAll(messages []json.RawMessage, renamed map[string]string) []json.RawMessage {
	if len(renamed) == 0 {
		return messages
	}
	out := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		out[i] = restored(m, renamed)
	}
	return out
}

func restored(message json.RawMessage, renamed map[string]string) json.RawMessage {
	if len(renamed) == 0 {
		return message
	}
	var splices []jsonscan.Splice
	id := func(cur *jsonscan.Cursor, from int) {
		if old, ok := cur.String(); ok && renamed[old] != "" {
			splices = append(splices, jsonscan.Splice{Start: from, End: cur.Pos(), With: jsonscan.AppendQuote(nil, renamed[old])})
		}
	}
	cur := jsonscan.New(message)
	for m := cur.Object(); m.Next(); {
		switch string(m.Key) {
		case "tool_call_id":
			id(&cur, m.Value)
		case "tool_calls":
			for calls := cur.Array(); calls.Next(); {
				for call := cur.Object(); call.Next(); {
					if string(call.Key) == "id" {
						id(&cur, call.Value)
					}
				}
			}
		}
	}
	return jsonscan.Apply(nil, message, splices)
}

// breaksAt is where the prompt would leave the turn's ids if its answer were rendered from what came back; nil where it would
// not, or where nobody can tell.
func (c *call) breaksAt(ctx context.Context, args string, m continuity.Match, sampled []int32) *int {
	at, broken, err := c.up.Departs(ctx, args, m.Answer, m.Added, sampled)
	if err != nil || !broken {
		return nil
	}
	at += m.Turn.Prompt
	return &at
}

// readTurns asks the record for calls that never passed here: those of an earlier process, or of another proxy.
func (c *call) readTurns() {
	calls, err := c.s.Log.Calls(c.ctx, c.live.ID())
	if err != nil {
		c.log(zap.WarnLevel, "could not read all of a session for its continuity", errField(err))
	}
	for _, old := range calls {
		if old.Instance == "" || old.Instance == c.rec.Instance {
			c.turns.Add(old)
		}
	}
}

// notBridged notes why a call that goes on with something is sent as plain messages.
func (c *call) notBridged(why continuity.Reason, detail string) {
	if why == "" {
		return
	}
	c.req.Edits = append(slices.Clone(c.req.Edits), record.Edit{
		Kind: record.EditHistory, Param: record.ParamPromptIDs, From: orNull(nil), To: orNull(nil), Why: string(why) + ": " + detail,
	})
}

// bridge sends the ids beside the messages. The edit has counts in place of a hundred thousand ids.
func (e *editor) bridge(b *bridge) {
	if b == nil {
		return
	}
	key, value := engine.ForcedMember(b.field, b.ids)
	e.changes = append(e.changes, jsonscan.Change{Key: key, To: value})
	counts, err := json.Marshal(b.made)
	if err != nil { // numbers and words: it cannot fail
		counts = orNull(nil)
	}
	e.edits = append(e.edits, record.Edit{Kind: record.EditHistory, Param: record.ParamPromptIDs, From: orNull(nil), To: counts,
		Why: fmt.Sprintf("carries on call %d by the ids that were sampled then", b.made.Call)})
}

// bridgeRefused is withoutBridge for a refusal that is about the field of the prompt ids.
func (c *call) bridgeRefused(status int, why []byte) bool {
	return c.plan.bridge != nil && namesField(why, c.plan.bridge.field) && c.withoutBridge(status, why)
}

// withoutBridge prepares a call again as plain messages after the engine refused it with prompt ids, and says whether it did.
// Where the refusal is about the field the engine is not sent it again; any other may be the harness's own, which the
// repetition shows: the messages alone may fit a context window in which the ids of the past do not.
func (c *call) withoutBridge(status int, why []byte) bool {
	b := c.plan.bridge
	if b == nil || status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}
	detail := "the engine refused the call with prompt ids: " + engine.Excerpt(why)
	if namesField(why, b.field) {
		c.up.LoseForced(detail)
	}
	c.notBridged(continuity.EngineCannot, detail)
	c.plan.bridge = nil
	sent, bad := prepare(c.req, c.plan)
	if bad != nil { // it was prepared before: what is wrong with it would have shown then
		return false
	}
	c.sent = sent
	c.noteSent()
	return true
}

// namesField says whether an error is about the field of the prompt ids.
func namesField(body []byte, field string) bool {
	outer, inner, _ := strings.Cut(field, ".")
	return bytes.Contains(body, []byte(outer)) || inner != "" && bytes.Contains(body, []byte(inner))
}

// checkBridge compares the prompt that the engine says it had with what it was sent. What is recorded is the engine's, always.
func (c *call) checkBridge() {
	b := c.plan.bridge
	if b == nil {
		return
	}
	if c.answer.Error != nil && namesField(c.answer.Error, b.field) { // refused after the stream had begun
		c.up.LoseForced("the engine refused prompt ids in a stream: " + engine.Excerpt(c.answer.Error))
		return
	}
	for i := range c.rec.Choices {
		got := c.rec.Choices[i].PromptIDs
		switch {
		case len(got) == 0: // it said nothing about its prompt: nothing is known
			continue
		case slices.Equal(got, b.ids):
			c.rec.PromptSource = record.PromptForced
			continue
		}
		c.rec.PromptSource = record.PromptEngine
		detail := fmt.Sprintf("the engine did not follow the prompt ids: %d were sent, it returned %d, which differ at %d",
			len(b.ids), len(got), firstDifference(b.ids, got))
		c.up.LoseForced(detail)
		c.rec.Edits = append(slices.Clip(c.rec.Edits), record.Edit{Kind: record.EditHistory, Param: record.ParamPromptIDs, From: orNull(nil), To: orNull(nil),
			Why: string(continuity.EngineCannot) + ": " + detail})
		return
	}
}

func firstDifference(a, b []int32) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// remember lets later calls carry on this one.
func (c *call) remember() {
	if c.turns != nil {
		c.turns.Add(&c.rec)
	}
}
