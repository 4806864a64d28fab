package proxy

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/engine"
)

// prepared is what goes upstream, and what has to be undone on the way back.
type prepared struct {
	body      []byte
	model     string
	edits     []record.Edit
	sampling  *editor // of the sampling parameters, nil where there is no body; see submitted
	maxTokens int
	usage     bool // usage is asked for
	injected  bool // capture parameters that the harness did not send are in the body
	strip     engine.Strip
}

// usualEdits is about how many a call of a training session has: capture parameters and neutral sampling.
const usualEdits = 12

// editor collects the changes of one request.
type editor struct {
	req     *dialect.Request
	changes []jsonscan.Change
	edits   []record.Edit
}

// prepare turns a request and a plan into the bytes for the engine. It is pure: bytes and plan in, bytes and edits out.
// What is not listed in the edits keeps its bytes.
func prepare(req *dialect.Request, p plan) (prepared, *dialect.Error) {
	if len(p.pinned) > 0 && len(req.Constraints) > 0 {
		return prepared{}, &dialect.Error{Status: 400, Param: req.Constraints[0], Text: "this session pins its sampling, and " + req.Constraints[0] +
			" makes the engine mask logits: the captured logprobs would not be the policy's. Leave it out, or create the session without `sampling`"}
	}
	e := &editor{req: req, edits: append(make([]record.Edit, 0, len(req.Edits)+usualEdits), req.Edits...), changes: make([]jsonscan.Change, 0, usualEdits)}
	out := prepared{model: req.Model}
	if p.model != "" && req.Model != "" && p.model != req.Model {
		e.set(record.EditModel, "model", jsonscan.AppendQuote(nil, p.model), "the served model's name")
		out.model = p.model
		out.strip.Model = jsonscan.AppendQuote(nil, req.Model)
	}
	if req.Wire() == record.OpenAIChat {
		e.history(p)
		e.system(p)
		out.strip.ReasoningAs = p.reasoningDown
	}
	e.capture(p, &out)
	if p.trains {
		e.neutral(p)
	}
	e.sampling(p.asked, "the session's eval_sampling")
	e.limit(p, &out)
	e.fix(p.fixes)
	e.bridge(p.bridge)
	out.body = req.Doc.Bytes
	if len(e.changes) > 0 {
		out.body = req.Doc.Edit(make([]byte, 0, len(req.Doc.Bytes)+256), e.changes)
	}
	out.edits = e.edits
	out.sampling = e
	return out, nil
}

// set replaces or adds a parameter. Setting what is there already is no edit.
func (e *editor) set(kind record.EditKind, param string, to []byte, why string) {
	from := e.current(param)
	if slices.Equal(from, to) {
		return
	}
	e.change(kind, param, from, to, why)
}

// remove takes a parameter out.
func (e *editor) remove(kind record.EditKind, param, why string) {
	if from := e.current(param); from != nil {
		e.change(kind, param, from, nil, why)
	}
}

func (e *editor) change(kind record.EditKind, param string, from, to []byte, why string) {
	i := slices.IndexFunc(e.changes, func(c jsonscan.Change) bool { return c.Key == param })
	if i < 0 {
		e.changes = append(e.changes, jsonscan.Change{Key: param, To: to})
	} else {
		e.changes[i].To = to
	}
	e.edits = append(e.edits, record.Edit{Kind: kind, Param: param, From: orNull(from), To: orNull(to), Why: why})
}

func orNull(raw []byte) json.RawMessage {
	if raw == nil {
		return null
	}
	return raw
}

var null = json.RawMessage("null")

// current is a parameter's value after the changes so far, nil when it is absent.
func (e *editor) current(param string) []byte {
	for _, c := range e.changes {
		if c.Key == param {
			return c.To
		}
	}
	return e.req.Doc.Get(param)
}

// history moves the reasoning of earlier answers into the field that the engine reads, so that the next prompt extends this
// one.
func (e *editor) history(p plan) {
	if p.reasoningUp == "" {
		return
	}
	raw := e.req.Doc.Get("messages")
	cur := jsonscan.New(raw)
	var splices []jsonscan.Splice
	from := ""
	for messages := cur.Array(); messages.Next(); {
		for m := cur.Object(); m.Next(); {
			if key := string(m.Key); (key == "reasoning" || key == "reasoning_content") && key != p.reasoningUp && cur.Peek() == '"' {
				splices = append(splices, jsonscan.Splice{Start: m.KeyStart + 1, End: m.KeyStart + 1 + len(key), With: []byte(p.reasoningUp)})
				from = key
			}
		}
	}
	if len(splices) == 0 {
		return
	}
	e.changes = append(e.changes, jsonscan.Change{Key: "messages", To: jsonscan.Apply(nil, raw, splices)})
	e.edits = append(e.edits, record.Edit{Kind: record.EditHistory, Param: "messages[]." + from, From: jsonscan.AppendQuote(nil, from),
		To: jsonscan.AppendQuote(nil, p.reasoningUp), Why: "the field in which the engine reads the reasoning of earlier answers"})
}

// capture asks the engine for token data and usage, and says what of it the harness did not ask for.
func (e *editor) capture(p plan, out *prepared) {
	chat := e.req.Wire() == record.OpenAIChat
	for _, param := range p.way.Params {
		e.ask(param, chat, out)
	}
	if p.way.Level == record.LevelTokens && chat && string(e.req.Doc.Get("include_reasoning")) == "false" {
		e.set(record.EditCapture, "include_reasoning", []byte("true"), "false would switch token ids and logprobs off")
		out.strip.Reasoning, out.injected = true, true
	}
	out.usage = !e.req.Stream || e.req.Asks.Usage || p.buffered
	if p.buffered {
		e.whole(out)
		return
	}
	captures := len(p.way.Params) > 0
	if e.req.Stream && !e.req.Asks.Usage && (captures || e.req.Translated()) {
		e.set(record.EditCapture, "stream_options", withUsage(e.req.Doc.Get("stream_options")), "usage for the record")
		out.strip.Usage, out.usage = true, true
		out.injected = out.injected || captures
	}
}

// ask sets one capture parameter, unless the harness asks for the same itself.
func (e *editor) ask(param engine.Param, chat bool, out *prepared) {
	switch param.Name {
	case "logprobs":
		if e.req.Asks.Logprobs {
			return
		}
		value := param.Value
		if !chat { // completions want a number there
			value = "0"
		}
		e.set(record.EditCapture, param.Name, []byte(value), "logprobs for the record")
		out.strip.Logprobs = true
	case "top_logprobs":
		// null or absent makes some versions give no rows at all (BC17); a number of the harness's own stays.
		if raw := e.current(param.Name); raw != nil && string(raw) != "null" {
			return
		}
		switch {
		case chat:
			e.set(record.EditCapture, param.Name, []byte(param.Value), "without it some engines return no logprobs")
		case param.Value != "0" && !e.req.Asks.Logprobs:
			e.set(record.EditCapture, "logprobs", []byte(param.Value), "logprobs for the record")
		}
	case "return_token_ids":
		if e.req.Asks.TokenIDs {
			return
		}
		e.set(record.EditCapture, param.Name, []byte(param.Value), "token ids for the record")
		out.strip.TokenIDs = true
	default:
		if string(e.current(param.Name)) == param.Value {
			return
		}
		e.put(param.Name, []byte(param.Value))
		e.edits = append(e.edits, record.Edit{Kind: record.EditCapture, Param: param.Name, From: orNull(e.req.Doc.Get(param.Name)),
			To: json.RawMessage(param.Value), Why: "token ids for the record"})
		out.strip.TokenIDs = true
	}
	out.injected = true
}

// whole makes a whole call of a streamed one.
func (e *editor) whole(out *prepared) {
	e.set(record.EditCapture, "stream", []byte("false"), "this engine gives token ids with whole answers only; the harness gets the answer as a stream")
	e.remove(record.EditCapture, "stream_options", "it goes with streams only")
	out.injected = true
}

// withUsage sets include_usage in stream_options, keeping its other members.
func withUsage(options []byte) []byte {
	doc, err := jsonscan.ParseDoc(options)
	if err != nil {
		return []byte(`{"include_usage":true}`)
	}
	return doc.Edit(nil, []jsonscan.Change{{Key: "include_usage", To: []byte("true")}})
}

// neutralSampling are the truncations and penalties and the values at which they do nothing. Engines fill in what a
// model's own configuration says, so they are sent even when the harness did not.
var neutralSampling = []struct {
	param string
	value []byte
}{
	{"top_p", []byte("1")}, {"top_k", []byte("-1")}, {"min_p", []byte("0")}, {"presence_penalty", []byte("0")}, {"frequency_penalty", []byte("0")}, {"repetition_penalty", []byte("1")},
}

// neutral makes the sampled distribution the policy's own (SPEC 3, training sessions).
func (e *editor) neutral(p plan) {
	const why = "training needs the policy's own distribution"
	if raw := e.current("temperature"); raw == nil || string(raw) == "null" {
		e.set(record.EditSampling, "temperature", []byte("1.0"), "an absent temperature would be the model's own default")
	}
	for _, s := range neutralSampling {
		if raw := e.current(s.param); !sameNumber(raw, string(s.value)) {
			e.set(record.EditSampling, s.param, s.value, why)
		}
	}
	e.sampling(p.pinned, "pinned by the session")
	if string(e.current("parallel_tool_calls")) == "false" {
		e.remove(record.EditSampling, "parallel_tool_calls", "false makes engines mask logits")
	}
	if loose := withoutStrict(e.req); loose != nil {
		e.changes = append(e.changes, jsonscan.Change{Key: "tools", To: loose})
		e.edits = append(e.edits, record.Edit{Kind: record.EditSampling, Param: "tools[].function.strict", From: json.RawMessage("true"), To: orNull(nil),
			Why: "strict tools make engines mask logits"})
	}
}

// sampling sets parameters that the session asks for.
func (e *editor) sampling(params map[string]json.RawMessage, why string) {
	for _, param := range slices.Sorted(maps.Keys(params)) {
		if raw := e.current(param); !sameNumber(raw, string(params[param])) {
			e.set(record.EditSampling, param, params[param], why)
		}
	}
}

// sameNumber says whether a JSON number has a value, however it is spelled.
func sameNumber(raw []byte, value string) bool {
	a, errA := strconv.ParseFloat(string(raw), 64)
	b, errB := strconv.ParseFloat(value, 64)
	return errA == nil && errB == nil && a == b
}

// withoutStrict returns the request's tools without `strict: true`, nil when there is none.
func withoutStrict(req *dialect.Request) []byte {
	raw := req.Doc.Get("tools")
	cur := jsonscan.New(raw)
	var splices []jsonscan.Splice
	for tools := cur.Array(); tools.Next(); {
		for tool := cur.Object(); tool.Next(); {
			if string(tool.Key) != "function" {
				continue
			}
			eraser := jsonscan.NewEraser()
			for f := cur.Object(); f.Next(); {
				if value := cur.Raw(); string(f.Key) == "strict" && string(value) == "true" {
					splices = eraser.Drop(splices, f.Comma, f.KeyStart, cur.Pos())
				} else {
					splices = eraser.Keep(splices, f.KeyStart)
				}
			}
			splices = eraser.Close(splices)
		}
	}
	if len(splices) == 0 {
		return nil
	}
	return jsonscan.Apply(nil, raw, splices)
}

// limit clamps the harness's output cap to ours, in every spelling that it sent, or sets ours.
func (e *editor) limit(p plan, out *prepared) {
	if n := e.req.MaxTokens; n != nil && *n > 0 {
		out.maxTokens = int(*n)
	}
	if p.cap <= 0 {
		return
	}
	const why = "the output cap of the session or the proxy"
	capped := strconv.AppendInt(nil, int64(p.cap), 10)
	if out.maxTokens == 0 {
		e.set(record.EditBudget, e.req.CapKey, capped, why)
		out.maxTokens = p.cap
		return
	}
	for _, param := range slices.Compact([]string{e.req.CapKey, "max_tokens", "max_completion_tokens"}) {
		if n, err := strconv.ParseInt(string(e.current(param)), 10, 64); err == nil && n > int64(p.cap) {
			e.set(record.EditBudget, param, capped, why)
		}
	}
	out.maxTokens = min(out.maxTokens, p.cap)
}

// submitted is the sampling after all edits. The engine need not wait for it.
func (p *prepared) submitted() json.RawMessage {
	if p.sampling == nil {
		return nil
	}
	return p.sampling.submitted()
}

func (e *editor) submitted() json.RawMessage {
	doc, err := jsonscan.ParseDoc(e.req.Sampling)
	if err != nil {
		return e.req.Sampling
	}
	var changes []jsonscan.Change
	for _, edit := range e.edits {
		switch edit.Kind {
		case record.EditSampling, record.EditBudget:
			changes = append(changes, jsonscan.Change{Key: edit.Param, To: e.current(edit.Param)})
		case record.EditNegotiated:
			if doc.Get(edit.Param) == nil && !slices.ContainsFunc(changes, func(c jsonscan.Change) bool { return c.Key == edit.Param }) {
				continue // no sampling parameter
			}
			changes = append(changes, jsonscan.Change{Key: edit.Param, To: e.current(edit.Param)})
			if name := jsonscan.New(edit.To); name.Peek() == '"' {
				if renamed, _ := name.String(); e.current(renamed) != nil {
					changes = append(changes, jsonscan.Change{Key: renamed, To: e.current(renamed)})
				}
			}
		}
	}
	if len(changes) == 0 {
		return e.req.Sampling
	}
	return doc.Edit(nil, lastOfEach(changes))
}

// lastOfEach keeps the last change of each parameter.
func lastOfEach(changes []jsonscan.Change) []jsonscan.Change {
	out := changes[:0:0]
	for i, c := range changes {
		if !slices.ContainsFunc(changes[i+1:], func(later jsonscan.Change) bool { return later.Key == c.Key }) {
			out = append(out, c)
		}
	}
	return out
}
