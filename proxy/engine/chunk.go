package engine

import (
	"bytes"
	"encoding/json"

	"captureproxy/internal/jsonscan"
)

// Chunk reads the data of one streamed event into the answer and says what the harness gets of it: the data as it is
// (edited is nil), the edited data (valid until the next call), or nothing (drop) when all that it held was there for us.
func (a *Answer) Chunk(data []byte, strip *Strip) (edited []byte, drop bool) {
	if text := bytes.TrimLeft(data, " \t"); len(text) == 0 || text[0] != '{' {
		if string(bytes.TrimRight(text, " \t")) == "[DONE]" {
			a.Done = true
		}
		return nil, false // keepalives in data lines and the like (BC37)
	}
	return a.read(data, strip, true)
}

// Whole reads an answer that came as one JSON object and says what the harness gets of it; edited is nil when that is
// the body as it is. ok is false when the body is no model answer.
func (a *Answer) Whole(body []byte, strip *Strip) (edited []byte, ok bool) {
	edited, _ = a.read(body, strip, false)
	return edited, a.Garbled == 0 && a.Error == nil && len(a.Choices) > 0
}

func (a *Answer) read(data []byte, strip *Strip, stream bool) (edited []byte, drop bool) {
	if text := bytes.TrimRight(data, " \t\r\n"); len(text) == 0 || text[len(text)-1] != '}' {
		a.Garbled++ // an object that was cut may end in the middle of a number, which would be taken for another id
		return nil, false
	}
	p := pass{a: a, cur: jsonscan.NewLoose(data), strip: strip, out: a.splices[:0], stream: stream}
	p.object(data)
	if p.cur.End() != nil {
		a.Garbled++
		return nil, false
	}
	a.splices = p.out
	switch {
	case stream && p.removed && !p.useful:
		return nil, true
	case len(p.out) == 0:
		return nil, false
	}
	a.edited = jsonscan.Apply(a.edited[:0], data, p.out)
	return a.edited, false
}

// pass is one reading of one object: a single walk that captures, and notes what to take out.
type pass struct {
	a      *Answer
	cur    jsonscan.Cursor
	strip  *Strip
	out    []jsonscan.Splice
	stream bool

	removed bool // something that only we asked for is taken out
	useful  bool // something stays that the harness could miss
}

// object reads the top level.
func (p *pass) object(data []byte) {
	cur, eraser := &p.cur, jsonscan.NewEraser()
	flatError := false
	for o := cur.Object(); o.Next(); {
		drop := false
		switch string(o.Key) {
		case "id":
			id, _ := cur.String()
			if p.a.ID == "" {
				p.a.ID = id
			}
		case "object":
			flatError = string(cur.Raw()) == `"error"` // vLLM's older and SGLang's error shape
		case "created", "system_fingerprint", "service_tier":
			cur.Skip()
		case "model":
			if cur.Skip(); len(p.strip.Model) > 0 {
				p.out = eraser.Keep(p.out, o.KeyStart)
				p.out = append(p.out, jsonscan.Splice{Start: o.Value, End: cur.Pos(), With: p.strip.Model})
				continue
			}
		case "choices":
			// Before its inner splices, so that they stay in order.
			p.out = eraser.Keep(p.out, o.KeyStart)
			for list := cur.Array(); list.Next(); {
				p.choice()
			}
			continue
		case "prompt_token_ids":
			drop = p.a.prompt(cur) && p.strip.TokenIDs
		case "sglext":
			at := *cur
			ids, rest := p.a.sglext(cur)
			drop = ids && !rest && p.strip.TokenIDs
			p.useful = p.useful || !drop
			if ids && rest && p.strip.TokenIDs {
				p.removed = true
				p.out = eraser.Keep(p.out, o.KeyStart)
				p.withoutIDs(at)
				continue
			}
		case "__verbose":
			drop = p.a.verbose(cur) && p.strip.TokenIDs
			p.useful = p.useful || !drop
		case "usage":
			raw := cur.Raw()
			p.a.usage(raw)
			drop = p.stream && p.strip.Usage
			p.useful = p.useful || !drop && string(raw) != "null"
		case "error":
			if raw := cur.Raw(); string(raw) != "null" {
				p.a.Error = append(json.RawMessage(nil), raw...)
				p.useful = true
			}
		default:
			p.useful = !cur.Null() || p.useful
			if cur.Pos() == o.Value {
				cur.Skip()
			}
		}
		p.member(&eraser, &o, drop)
	}
	p.out = eraser.Close(p.out)
	if flatError && p.a.Error == nil {
		p.a.Error = append(json.RawMessage(nil), data...)
		p.useful = true
	}
}

// choice reads one element of choices.
func (p *pass) choice() {
	cur := &p.cur
	c := p.a.choice(indexAhead(*cur))
	if c == nil {
		p.a.Garbled++
		p.useful = true
		cur.Skip()
		return
	}
	eraser := jsonscan.NewEraser()
	for o := cur.Object(); o.Next(); {
		drop := false
		switch string(o.Key) {
		case "index":
			cur.Skip()
		case "delta", "message":
			p.out = eraser.Keep(p.out, o.KeyStart)
			members, said := c.message.read(p)
			p.useful = p.useful || members
			c.started = c.started || said
			continue
		case "text":
			said := c.message.readText(cur)
			p.useful = p.useful || said
			c.started = c.started || said
		case "finish_reason":
			if reason, ok := cur.String(); ok {
				c.Finish = reason
				p.useful = true
			}
		case "stop_reason", "matched_stop":
			if raw := cur.Raw(); string(raw) != "null" {
				c.StopReason = append(json.RawMessage(nil), raw...)
			}
		case "logprobs":
			found := c.rowsOf(cur)
			if found && p.strip.Logprobs {
				p.removed = true
				p.out = eraser.Keep(p.out, o.KeyStart)
				p.out = append(p.out, jsonscan.Splice{Start: o.Value, End: cur.Pos(), With: null})
				continue
			}
			p.useful = p.useful || found
		case "token_ids":
			found := c.sampledFrom(cur, fromTokenIDs)
			drop = found && p.strip.TokenIDs
			p.useful = p.useful || found && !drop
		case "response_token_ids":
			found := c.sampledFrom(cur, fromResponse)
			drop = found && p.strip.TokenIDs
			p.useful = p.useful || found && !drop
		case "meta_info":
			found := c.meta(cur)
			drop = found && p.strip.TokenIDs
			p.useful = p.useful || !drop
		case "prompt_token_ids":
			drop = c.prompt(cur) && p.strip.TokenIDs
		default:
			p.useful = !cur.Null() || p.useful
			if cur.Pos() == o.Value {
				cur.Skip()
			}
		}
		p.member(&eraser, &o, drop)
	}
	p.out = eraser.Close(p.out)
	if c.metaLogprobs != nil {
		c.settleMeta()
	}
}

// member notes whether the member that was just read stays or is ours and goes.
func (p *pass) member(eraser *jsonscan.Eraser, o *jsonscan.Object, drop bool) {
	if !drop {
		p.out = eraser.Keep(p.out, o.KeyStart)
		return
	}
	p.removed = true
	p.out = eraser.Drop(p.out, o.Comma, o.KeyStart, p.cur.Pos())
}

var null = []byte("null")

// indexAhead looks for the index of the choice that the cursor stands on, on a copy of the cursor. Engines put it first;
// one that leaves it out has one choice.
func indexAhead(cur jsonscan.Cursor) int64 {
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == "index" {
			if n, ok := cur.Int(); ok {
				return n
			}
			return 0
		}
	}
	return 0
}
