package fakeengine

import (
	"bytes"
	"math/rand/v2"
)

// kind says what a stretch of sampled text is.
type kind uint8

const (
	kindTag       kind = iota // <think> and </think>: seen by the parser only
	kindReasoning             // thought
	kindContent               // text for the user
	kindGlue                  // between tool calls: swallowed by the parser
	kindCall                  // a tool call with its tags
)

// span is a stretch of a generation's text.
type span struct {
	kind     kind
	from, to int
	// of kindCall: where its name ends and its arguments lie, as offsets into the text
	name             string
	id               string
	index            int
	nameEnd          int
	argsFrom, argsTo int
}

// generation is one choice: what was sampled, and the text that it makes.
type generation struct {
	index   int
	variant uint64
	ids     []int32
	// ends holds, per id, how far the text reaches in whole characters once that id is there.
	ends  []int
	text  []byte
	spans []span

	limit      int    // how much of the text is shown; less than all after a stop string
	finish     string // finish_reason
	stopReason string // the stop string that was met, "" for none
	holdBack   int    // bytes that a stream keeps back in case a stop string begins there
	reasoning  int    // ids of thought
	named      bool   // a tool was forced by name
	hasCalls   bool   // the shown text holds a whole tool call
}

// callPrefix begins the ids of tool calls.
const callPrefix = "chatcmpl-tool-"

// generate lays out a reply as sampled ids, in exactly the pieces that the template renders history in.
func (v *vocab) generate(g *generation, r Reply) {
	size := len(r.Reasoning) + len(r.Content) + 64
	for _, c := range r.Calls {
		size += len(c.Arguments) + len(c.Name) + 128
	}
	g.text = make([]byte, 0, size)
	g.ids = make([]int32, 0, size/2)
	g.ends = make([]int, 0, size/2)

	if r.Reasoning != "" {
		g.special(kindTag, idThink)
		g.piece(v, kindReasoning, r.Reasoning)
		g.reasoning = len(g.ids) - 1
		g.special(kindTag, idThinkEnd)
	}
	if r.Content != "" {
		g.piece(v, kindContent, r.Content)
	}
	for i, c := range r.Calls {
		if i > 0 {
			g.piece(v, kindGlue, callGlue)
		}
		body := c.body(canonicalArguments)
		from := len(g.text)
		g.addSpecial(idCall)
		inner := len(g.text)
		g.add(v, body.text)
		g.addSpecial(idCallEnd)
		g.spans = append(g.spans, span{
			kind: kindCall, from: from, to: len(g.text), name: c.Name, index: i,
			id:      string(appendHex([]byte(callPrefix), rand.Uint64())),
			nameEnd: inner + body.nameEnd, argsFrom: inner + body.argsFrom, argsTo: inner + body.argsTo,
		})
	}
	g.ids = append(g.ids, idEnd) // sampled, but never text
	g.ends = append(g.ends, len(g.text))
	g.limit = len(g.text)
	g.finish = "stop"
}

func (g *generation) special(k kind, id int32) {
	from := len(g.text)
	g.addSpecial(id)
	g.spans = append(g.spans, span{kind: k, from: from, to: len(g.text)})
}

func (g *generation) piece(v *vocab, k kind, text string) {
	from := len(g.text)
	g.add(v, text)
	g.spans = append(g.spans, span{kind: k, from: from, to: len(g.text)})
}

func (g *generation) addSpecial(id int32) {
	g.text = append(g.text, specials[id-idStart]...)
	g.ids = append(g.ids, id)
	g.ends = append(g.ends, len(g.text))
}

// add appends text token by token. A character that a token leaves unfinished counts from the token that ends it.
func (g *generation) add(v *vocab, text string) {
	from := len(g.text)
	for _, id := range v.odd.tokens(v, text) {
		token, _ := v.token(id) // encode gives ids of the vocabulary only
		g.text = append(g.text, token...)
		g.ids = append(g.ids, id)
		g.ends = append(g.ends, from+completeUTF8(g.text[from:]))
	}
}

// cut ends the generation early: at most room ids, and at the first stop string.
func (g *generation) cut(room int, stops []string, includeStop bool) {
	longest := 0
	for _, s := range stops {
		longest = max(longest, len(s))
	}
	if longest > 0 && !includeStop {
		g.holdBack = longest - 1
	}
	seen := 0
	for i, end := range g.ends {
		if i == room {
			g.end(i, g.limitAt(i), "length")
			break
		}
		if longest == 0 || seen == end {
			continue
		}
		window := max(0, seen-longest+1) // a stop string may have begun in an earlier token
		at, stop := firstStop(g.text[window:end], stops)
		if stop == "" {
			seen = end
			continue
		}
		limit := window + at
		if includeStop {
			limit += len(stop)
		}
		g.end(i+1, limit, "stop")
		g.stopReason = stop
		break
	}
	for _, s := range g.spans {
		g.hasCalls = g.hasCalls || s.kind == kindCall && s.to <= g.limit
	}
	if g.hasCalls && g.finish == "stop" && g.stopReason == "" && !g.named {
		g.finish = "tool_calls"
	}
}

// limitAt is how far the text reaches after n ids.
func (g *generation) limitAt(n int) int {
	if n == 0 {
		return 0
	}
	return g.ends[n-1]
}

func (g *generation) end(n, limit int, finish string) {
	g.ids, g.ends, g.limit, g.finish = g.ids[:n], g.ends[:n], limit, finish
	if g.reasoning > 0 {
		g.reasoning = min(g.reasoning, n-1)
	}
}

func firstStop(text []byte, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		if s == "" {
			continue
		}
		if p := bytes.Index(text, []byte(s)); p >= 0 && (at < 0 || p < at) {
			at, stop = p, s
		}
	}
	return at, stop
}

// shown is how far a stream has shown the text after n ids.
func (g *generation) shown(n int) int {
	if n == len(g.ids) {
		return g.limit
	}
	return max(0, completeUTF8(g.text[:max(0, g.limitAt(n)-g.holdBack)]))
}

// row returns the text that id i makes: "" where it leaves a character unfinished.
func (g *generation) row(i int) []byte {
	if g.ids[i] == idEnd {
		return []byte(specials[idEnd-idStart])
	}
	return g.text[g.limitAt(i):g.ends[i]]
}
