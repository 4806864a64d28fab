package fakeengine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Odd says in what an engine renders the past otherwise than it sampled it. A conversation that comes back whole is then
// rendered to other ids, as it is by real engines: nobody rewrote anything. The zero value is the engine that never does.
type Odd struct {
	Arguments bool // the template spells a call's arguments with other spaces
	Thinking  bool // the template leaves out the thoughts of earlier answers
	Field     bool // the parser files the text before a call under the reasoning
	Space     bool // an answer's text ends in blank lines, which the template trims
	Split     bool // what is sampled is split into tokens otherwise than the tokenizer does
}

// ParseOdd reads a list such as "arguments,thinking"; "all" stands for everything.
func ParseOdd(text string) (Odd, error) {
	var o Odd
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		switch word {
		case "all":
			o = Odd{true, true, true, true, true}
		case "arguments":
			o.Arguments = true
		case "thinking":
			o.Thinking = true
		case "field":
			o.Field = true
		case "space":
			o.Space = true
		case "split":
			o.Split = true
		default:
			return Odd{}, fmt.Errorf("odd %q: there are arguments, thinking, field, space, split and all", word)
		}
	}
	return o, nil
}

// Forced says what becomes of prompt ids that are sent beside messages.
type Forced struct {
	Mode ForcedMode
	// After is the number of calls in which they are followed before Mode applies.
	After int
}

// ForcedMode is a way to treat prompt ids.
type ForcedMode string

// The ways; the empty one follows them.
const (
	ForcedIgnored   ForcedMode = "ignore"   // the messages are rendered, as older servers do
	ForcedRefused   ForcedMode = "refuse"   // 400 that names the field
	ForcedTruncated ForcedMode = "truncate" // the last quarter is lost
	ForcedAltered   ForcedMode = "alter"    // one id in the middle is another
)

// forcedPrompt is the prompt that a request gives by its ids, nil for none.
func (e *Engine) forcedPrompt(req *Request) ([]int32, *apiError) {
	ids := req.forced
	if ids == nil || e.opts.Forced.Mode == "" || e.forced.Add(1) <= int64(e.opts.Forced.After) {
		return ids, nil
	}
	switch e.opts.Forced.Mode {
	case ForcedRefused:
		return nil, badRequest("kv_transfer_params.prompt_token_ids",
			"kv_transfer_params.prompt_token_ids is not supported by this server (parameter=kv_transfer_params.prompt_token_ids)")
	case ForcedTruncated:
		return ids[:max(1, len(ids)*3/4)], nil
	case ForcedAltered:
		altered := append([]int32(nil), ids...)
		altered[len(altered)/2] ^= 1
		return altered, nil
	}
	return nil, nil
}

// history is what the template renders of an earlier answer.
func (o Odd) history(r Reply) Reply {
	if o.Thinking {
		r.Reasoning = ""
	}
	if o.Space {
		r.Content = strings.TrimSpace(r.Content)
	}
	return r
}

// spell is how the template writes arguments.
func (o Odd) spell() func(string) string {
	if !o.Arguments {
		return canonicalArguments
	}
	return func(arguments string) string { return gjson.Get(canonicalArguments(arguments), "@ugly").Raw }
}

// sampled is what is sampled for a reply.
func (o Odd) sampled(r Reply) Reply {
	if o.Space && r.Content != "" {
		r.Content += "\n\n"
	}
	return r
}

// misfile lets the parser take the text before a call for a thought.
func (o Odd) misfile(g *generation) {
	if !o.Field || !g.hasCallSpan() {
		return
	}
	for i := range g.spans {
		if g.spans[i].kind == kindContent {
			g.spans[i].kind = kindReasoning
		}
	}
}

func (g *generation) hasCallSpan() bool {
	for _, s := range g.spans {
		if s.kind == kindCall {
			return true
		}
	}
	return false
}

// tokens are the ids in which a text is sampled. An odd engine's never cross the text's middle.
func (o Odd) tokens(v *vocab, text string) []int32 {
	if !o.Split || len(text) < 2 {
		return v.encode(text)
	}
	middle := len(text) / 2
	for middle > 0 && !utf8.RuneStart(text[middle]) {
		middle--
	}
	ids := append([]int32(nil), v.encode(text[:middle])...)
	return append(ids, v.encode(text[middle:])...)
}
