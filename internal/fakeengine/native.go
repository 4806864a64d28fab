package fakeengine

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/tidwall/gjson"
)

// The native dialects of hosted APIs share this: a request is turned into messages of chat, so that the same script and
// template answer it; its answer is a row of blocks, each a thought, a text or a call.

// block is one part of an answer.
type block struct {
	kind  kind
	index int
	text  []byte // of a thought or text, as far as shown; of a call its arguments
	name  string // of a call
	id    string // of a call, without a dialect's prefix
	whole bool   // nothing of it was cut off
}

// blocks lists the parts of an answer as they end up.
func (g *generation) blocks() []block {
	var out []block
	for _, s := range g.spans {
		b := block{kind: s.kind, index: len(out), name: s.name, whole: s.to <= g.limit}
		from, to := s.from, s.to
		switch s.kind {
		case kindCall:
			from, to, b.id = s.argsFrom, s.argsTo, s.id[len(callPrefix):]
			if s.nameEnd > g.limit {
				continue
			}
		case kindReasoning, kindContent:
			if from >= g.limit {
				continue
			}
		default:
			continue
		}
		b.text = g.text[min(from, g.limit):min(to, g.limit)]
		out = append(out, b)
	}
	return out
}

// native writes the events of a dialect, each method any number of whole frames.
type native interface {
	open(dst []byte) []byte
	begin(dst []byte, b block) []byte
	delta(dst []byte, b block, text []byte) []byte
	end(dst []byte, b block) []byte
	close(dst []byte) []byte
	fail(dst []byte, bad *apiError) []byte // an error in mid-stream
}

// ownFrames is a dialect that does not write events as most do.
type ownFrames interface {
	frameOf() (contentType, closing string)
	reframe(frame []byte, n int) []byte
}

// streamNative answers with the events of a native dialect.
func (e *Engine) streamNative(a *answer, events native) {
	s := newSender(e, a.call)
	s.closing, s.failing = "", events.fail
	if own, ok := events.(ownFrames); ok {
		s.contentType, s.closing = own.frameOf()
		s.reframe = own.reframe
	}
	s.open()
	defer s.close()
	if !s.begin() {
		return
	}
	g := a.choices[0]
	if a.fault.Kind == FaultHugeFirst {
		s.send(append(appendHuge([]byte{':'}), "\n\n"...))
	}
	s.frames(events.open(nil))
	spans := visible(g)
	list := g.blocks()
	started, done := 0, 0
	for from := 0; from < len(g.ids) && !s.over(); {
		to := g.group(from, e.groupSize(a.req, g, from))
		if !e.wait(a.call, time.Duration(to-from)*e.opts.PerToken) {
			return
		}
		if a.fault.Kind == FaultDoneEarly && to == len(g.ids) {
			return
		}
		var out []byte
		lo, hi := g.shown(from), g.shown(to)
		for i, b := range list {
			sp := spans[i]
			named, args := sp.shows(lo, hi)
			if i == started && (sp.kind == kindCall && named || sp.kind != kindCall && sp.from < hi && lo < sp.to) {
				out = events.begin(out, b)
				started++
			}
			if sp.kind == kindCall && args {
				out = events.delta(out, b, g.text[max(lo, sp.argsFrom):min(hi, sp.argsTo)])
			} else if sp.kind != kindCall && sp.from < hi && lo < sp.to {
				out = events.delta(out, b, g.text[max(lo, sp.from):min(hi, sp.to)])
			}
			if i == done && i < started && (hi >= sp.to || to == len(g.ids)) {
				out = events.end(out, b)
				done++
			}
		}
		s.frames(out)
		from = to
	}
	s.frames(events.close(nil))
	s.done()
}

// visible are the spans behind blocks.
func visible(g *generation) []span {
	var out []span
	for _, s := range g.spans {
		switch s.kind {
		case kindCall:
			if s.nameEnd <= g.limit {
				out = append(out, s)
			}
		case kindReasoning, kindContent:
			if s.from < g.limit {
				out = append(out, s)
			}
		}
	}
	return out
}

// nativeCall is what the native dialects do alike: sampling, faults, waiting.
type nativeCall struct {
	prefix string // of the answers' ids
	room   func(e *Engine, req *Request, prompt int) (int, *apiError)
	whole  func(a *answer) []byte
	stream func(a *answer) native
}

func (e *Engine) answerNative(c *call, req *Request, n nativeCall) {
	if !e.beginFault(c, req) {
		return
	}
	prompt := promptOf(c.vocab, req)
	room, bad := n.room(e, req, len(prompt))
	if bad != nil {
		c.fail(bad)
		return
	}
	a := e.sampled(c, req, n.prefix, prompt, room)
	if req.Stream && c.fault.Kind != FaultJSONAnswer {
		e.streamNative(a, n.stream(a))
		return
	}
	if !e.wait(c, e.opts.FirstToken+time.Duration(a.longest())*e.opts.PerToken) {
		return
	}
	c.whole(n.whole(a))
}

// nativeRequest returns a chat request to fill in, or a refusal of what is no JSON object.
func nativeRequest(r *http.Request, body []byte) (*Request, gjson.Result, *apiError) {
	top := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || !top.IsObject() {
		return nil, top, badRequest("", "The request body is not valid JSON.")
	}
	req := &Request{Path: r.URL.Path, Header: r.Header, Body: body, Temperature: 1, N: 1, present: make(map[string]bool, 16)}
	top.ForEach(func(key, v gjson.Result) bool {
		if v.Type != gjson.Null {
			req.present[key.String()] = true
		}
		return true
	})
	if v := top.Get("temperature"); v.Exists() {
		req.Temperature = v.Num
	}
	return req, top, nil
}

// chatMessage builds one message of chat.
type chatMessage struct {
	role, reasoning, content string
	calls                    []ToolCall
}

// add appends a message to a request, if it says anything.
func (r *Request) add(m chatMessage) {
	if m.role == "assistant" && m.reasoning+m.content == "" && len(m.calls) == 0 {
		return
	}
	dst := appendString([]byte(`{"role":`), m.role)
	dst = appendString(append(dst, `,"content":`...), m.content)
	if m.reasoning != "" {
		dst = appendString(append(dst, `,"reasoning":`...), m.reasoning)
	}
	for i, call := range m.calls {
		if i == 0 {
			dst = append(dst, `,"tool_calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"type":"function","function":{"name":`...), call.Name)
		dst = append(appendString(append(dst, `,"arguments":`...), call.Arguments), "}}"...)
	}
	if len(m.calls) > 0 {
		dst = append(dst, ']')
	}
	r.Messages = append(r.Messages, Message{raw: gjson.ParseBytes(append(dst, '}'))})
}

// chatTool appends a function to a manifest of chat.
func chatTool(manifest []byte, name, description string, schema gjson.Result) []byte {
	if len(manifest) > 0 {
		manifest = append(manifest, ',')
	}
	manifest = appendString(append(manifest, `{"type":"function","function":{"name":`...), name)
	manifest = appendString(append(manifest, `,"description":`...), description)
	manifest = append(manifest, `,"parameters":`...)
	if !schema.IsObject() {
		return append(manifest, `{}}}`...)
	}
	return append(append(manifest, schema.Raw...), "}}"...)
}

// setTools takes over a manifest's elements.
func (r *Request) setTools(manifest []byte) {
	if len(manifest) > 0 {
		r.toolsRaw = "[" + string(manifest) + "]"
	}
}

// plainText joins the text of a content that is a string or a list of parts.
func plainText(content gjson.Result) string {
	return Message{raw: gjson.Parse(`{"content":` + orNull(content) + `}`)}.Text()
}

func orNull(v gjson.Result) string {
	if !v.Exists() {
		return "null"
	}
	return v.Raw
}

// frame appends an event with a name.
func frame(dst []byte, name string, data []byte) []byte {
	dst = append(append(dst, "event: "...), name...)
	dst = append(append(dst, "\ndata: "...), data...)
	return append(dst, "\n\n"...)
}

// seal returns an opaque text that hides another one and cannot be changed: what hosted APIs sign their thoughts with.
func seal(purpose, text string) string {
	return base64.StdEncoding.EncodeToString(append(mac(purpose, text), text...))
}

// unseal returns what seal hid; ok is false for anything that it never gave.
func unseal(purpose, sealed string) (text string, ok bool) {
	b, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil || len(b) < sha256.Size {
		return "", false
	}
	text = string(b[sha256.Size:])
	return text, bytes.Equal(b[:sha256.Size], mac(purpose, text))
}

func mac(purpose, text string) []byte {
	h := hmac.New(sha256.New, []byte("fakeengine "+purpose))
	h.Write([]byte(text)) // never fails, by its contract
	return h.Sum(nil)
}
