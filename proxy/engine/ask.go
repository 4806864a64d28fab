package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// maxAsked bounds the edits that one of the probe's calls may need, as for any call (SPEC 3, Negotiation).
const maxAsked = 6

// question is one of the probe's calls.
type question struct {
	way    Way
	params []Param // beside those of the way
	// own are the parameters whose refusal is an answer to this question only, and no edit for later calls.
	own []string
}

// asked is the answer to one of the probe's calls.
type asked struct {
	answer  Answer
	status  int    // 0 when nothing came
	problem string // why there is no answer
	body    []byte // as it was accepted, or refused at last
	data    []byte // of the answer
	dropped []string
	prompt  []int32 // derived
}

func (a *asked) answered() bool { return a.problem == "" && len(a.answer.Choices) > 0 }

// unwell says that the engine has trouble of its own: what it does not answer says nothing about what it can do.
func (a *asked) unwell() bool {
	return a.status == 0 || a.status >= 500 || a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout
}

func (a *asked) rows() int {
	if !a.answered() {
		return 0
	}
	return len(a.answer.Choices[0].Logprobs)
}

// complete says whether prompt ids, sampled ids and logprobs are all there and agree with the usage.
func (a *asked) complete() bool {
	if !a.answered() {
		return false
	}
	c, usage := a.answer.Choices[0], a.answer.Usage
	n, prompt := len(c.SampledIDs), a.answer.Prompt(c)
	if a.prompt != nil {
		if prompt = a.prompt; usage.Prompt == nil { // nothing that says that they are the engine's
			return false
		}
	}
	switch {
	case n == 0 || n != len(c.Logprobs) || len(prompt) == 0 || len(c.Remarks())+len(a.answer.Remarks()) > 0:
		return false
	case usage.Completion != nil && *usage.Completion != int64(n), usage.Prompt != nil && *usage.Prompt != int64(len(prompt)):
		return false
	}
	return !slices.ContainsFunc(c.Logprobs, math.IsNaN)
}

// unlucky says that an answer shows nothing of what the engine can do, though the next one may: the model said nothing, or
// ids and logprobs came, and not one for each. llama.cpp gives a character that was split over tokens, as an emoji is, one
// row for all of them.
func (a *asked) unlucky() bool {
	if !a.answered() {
		return false
	}
	c := a.answer.Choices[0]
	if ids, rows := len(c.SampledIDs), len(c.Logprobs); ids > 0 && rows > 0 {
		return ids != rows
	}
	return len(c.Text())+len(c.Reasoning())+len(c.Refusal()) == 0 && !c.HasCalls()
}

// level is what the answer shows to be possible.
func (a *asked) level() record.Level {
	switch {
	case a.complete():
		return record.LevelTokens
	case a.rows() > 0:
		return record.LevelLogprobs
	}
	return record.LevelText
}

// taken is the way as the engine took it, at the level that it led to.
func (a *asked) taken(w Way) Way {
	out := Way{Level: a.level(), Header: w.Header, Derive: w.Derive}
	if out.Level != record.LevelTokens {
		out.Header, out.Derive = nil, false
	}
	for _, param := range w.Params {
		useless := out.Level == record.LevelText || out.Level == record.LevelLogprobs && param.Name != "logprobs" && param.Name != "top_logprobs"
		if !useless && !slices.Contains(a.dropped, param.Name) {
			out.Params = append(out.Params, param)
		}
	}
	return out
}

// ask makes one chat call and negotiates its parameters. What the engine refuses for good is kept in p.
func (u *Upstream) ask(ctx context.Context, p *Profile, q question) *asked {
	a := &asked{body: chatBody(p.Served, append(slices.Clone(q.way.Params), q.params...))}
	for _, f := range p.Fixes {
		a.body = f.apply(a.body)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	for _, h := range q.way.Header {
		header.Set(h[0], h[1])
	}
	for edits := 0; ; edits++ {
		r := &Request{Method: http.MethodPost, Path: "/chat/completions", Header: header, Body: a.body}
		status, data, err := u.get(ctx, r)
		if errors.Is(err, errClosed) { // the probe's own calls may be made twice
			status, data, err = u.get(ctx, r)
		}
		if err != nil {
			a.status, a.problem = 0, u.withoutKey(err.Error())
			return a
		}
		if a.status, a.data = status, data; status == http.StatusOK {
			break
		}
		data = []byte(u.withoutKey(string(data)))
		fix, ok := ReadRefusal(status, data, func(param string) bool { return fieldOf(a.body, param) != nil })
		next := a.body
		if ok && edits < maxAsked {
			next = fix.apply(a.body)
		}
		if bytes.Equal(next, a.body) {
			a.problem = fmt.Sprintf("%d: %s", status, Excerpt(data))
			return a
		}
		a.body = next
		if fix.To == "" {
			a.dropped = append(a.dropped, fix.Param)
			if fix.Param == "logprobs" {
				a.dropped = append(a.dropped, "top_logprobs")
			}
		}
		if !slices.Contains(q.own, fix.Param) {
			p.Fixes = withFix(p.Fixes, fix)
		}
	}
	a.read()
	a.problem = u.withoutKey(a.problem)
	if q.way.Derive && a.answered() {
		if ids, err := u.DerivePrompt(ctx, a.body); err == nil {
			a.prompt = ids
		}
	}
	return a
}

// askPlainly asks with the probe's prompts, one after the other, until an answer is not unlucky.
func (u *Upstream) askPlainly(ctx context.Context, p *Profile, q question) (a *asked) {
	for _, prompt := range probePrompts {
		said := q
		said.params = append(slices.Clone(q.params), probeShort, prompt)
		if a = u.ask(ctx, p, said); !a.unlucky() {
			break
		}
	}
	return a
}

// read reads an answer, whatever its label says.
func (a *asked) read() {
	if !LooksLikeSSE(a.data) {
		if _, ok := a.answer.Whole(a.data, &Strip{}); !ok {
			a.problem = "no model answer: " + Excerpt(a.data)
		}
		return
	}
	er := NewEventReader(bytes.NewReader(a.data), nil)
	for ev, err := er.Next(); err == nil; ev, err = er.Next() {
		a.answer.Chunk(ev.Data, &Strip{})
	}
	if a.answer.Error != nil {
		a.problem = Excerpt(a.answer.Error)
	}
}

// chatBody writes a request.
func chatBody(model string, params []Param) []byte {
	body := []byte{'{'}
	if model != "" {
		body = jsonscan.AppendQuote(append(body, `"model":`...), model)
	}
	for _, p := range params {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(jsonscan.AppendQuote(body, p.Name), ':'), p.Value...)
	}
	return append(body, '}')
}

// apply makes the edit in a body. It leaves a body alone that has no such field.
func (f Fix) apply(body []byte) []byte {
	from := fieldOf(body, f.Param)
	switch {
	case f.To != "":
		return setField(body, f.Param, []byte(f.To))
	case from == nil:
		return body
	case f.Rename != "" && fieldOf(body, f.Rename) == nil:
		body = setField(body, f.Rename, from)
	case f.Param == "logprobs":
		body = setField(body, "top_logprobs", nil)
	}
	return setField(body, f.Param, nil)
}

// fieldOf is the value of a parameter in a body, dotted for one inside an object; nil when it is absent.
func fieldOf(body []byte, param string) []byte {
	outer, inner, dotted := strings.Cut(param, ".")
	doc, err := jsonscan.ParseDoc(body)
	if err != nil {
		return nil
	}
	value := doc.Get(outer)
	if !dotted || value == nil {
		return value
	}
	return fieldOf(value, inner)
}

// setField sets a parameter, or takes it out when to is nil.
func setField(body []byte, param string, to []byte) []byte {
	outer, inner, dotted := strings.Cut(param, ".")
	doc, err := jsonscan.ParseDoc(body)
	if err != nil {
		return body
	}
	if dotted {
		object := doc.Get(outer)
		if object == nil {
			object = []byte("{}")
		}
		to = setField(object, inner, to)
	}
	return doc.Edit(nil, []jsonscan.Change{{Key: outer, To: to}})
}

// LooksLikeSSE says whether bytes begin like an event stream, whatever their label says.
func LooksLikeSSE(b []byte) bool {
	s := strings.TrimLeft(string(b[:min(len(b), 64)]), "\ufeff \t\r\n")
	for _, field := range []string{"data:", "event:", ":", "id:", "retry:"} {
		if strings.HasPrefix(s, field) {
			return true
		}
	}
	return false
}

// Excerpt is the beginning of an answer, on one line, for an error message.
func Excerpt(b []byte) string {
	const most = 300
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), 4*most)]), "\ufffd")), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// logprobsMode measures whether logprobs are those of the sampled distribution: at temperature 2 a processed engine halves
// the gap of the two best tokens, a raw one does not move it. A gap beyond 100 is a sentinel, one under 0.5 says nothing.
func (u *Upstream) logprobsMode(ctx context.Context, p *Profile) record.LogprobsMode {
	for _, prompt := range probePrompts { // until the model tells its two best tokens apart
		one, taken := u.gap(ctx, p, prompt, "1")
		if !taken {
			break
		}
		if one >= 0.5 && one <= 100 {
			two, _ := u.gap(ctx, p, prompt, "2")
			return modeOf(one, two)
		}
	}
	return record.LogprobsUnknown
}

// modeOf judges the gaps at temperatures 1 and 2.
func modeOf(one, two float64) record.LogprobsMode {
	switch {
	case math.Abs(two-one/2) < 0.1*one:
		return record.LogprobsProcessed
	case math.Abs(two-one) < 0.1*one:
		return record.LogprobsRaw
	}
	return record.LogprobsUnknown
}

// gap returns the distance between the two best tokens' logprobs of a first token, NaN when it could not be had, and whether
// the engine takes such calls at all. A first token that is part of a character, or the end, has no logprobs in llama.cpp:
// the next one that is sampled may.
func (u *Upstream) gap(ctx context.Context, p *Profile, prompt Param, temperature string) (gap float64, taken bool) {
	const tries = 4
	for range tries {
		if gap, taken = u.gapOnce(ctx, p, prompt, temperature); !taken || !math.IsNaN(gap) {
			break
		}
	}
	return gap, taken
}

// gapOnce is gap with one call. An engine that takes no such temperature measures nothing. Three tokens are asked for, as
// vLLM puts the sampled one among them.
func (u *Upstream) gapOnce(ctx context.Context, p *Profile, prompt Param, temperature string) (gap float64, taken bool) {
	a := u.ask(ctx, p, question{
		params: []Param{{"max_tokens", "1"}, {"logprobs", "true"}, {"top_logprobs", "3"}, {"temperature", temperature}, prompt},
		own:    []string{"logprobs", "top_logprobs", "temperature"},
	})
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Content []struct {
					Top []struct {
						Logprob *float64 `json:"logprob"`
					} `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if !a.answered() || fieldOf(a.body, "logprobs") == nil || fieldOf(a.body, "temperature") == nil || json.Unmarshal(a.data, &answer) != nil {
		return math.NaN(), false
	}
	if len(answer.Choices) == 0 || len(answer.Choices[0].Logprobs.Content) == 0 {
		return math.NaN(), true
	}
	var values []float64
	for _, t := range answer.Choices[0].Logprobs.Content[0].Top {
		if t.Logprob != nil {
			values = append(values, *t.Logprob)
		}
	}
	if len(values) < 2 {
		return math.NaN(), true
	}
	slices.Sort(values)
	return values[len(values)-1] - values[len(values)-2], true
}
