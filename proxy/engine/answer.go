package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// maxChoices bounds the choice indexes that an engine may name.
const maxChoices = 1024

// Strip says what to take out of an answer on its way to the harness because only we asked for it, and how the model is
// called there. The zero value changes nothing.
type Strip struct {
	TokenIDs  bool // token_ids, prompt_token_ids
	Logprobs  bool // logprobs become null
	Reasoning bool // reasoning, of a harness that wants none
	Usage     bool // usage of a stream
	// ReasoningAs, when not empty, is the field's name that the harness knows.
	ReasoningAs string
	// Model, when not empty, is the JSON string that replaces the served model's name.
	Model []byte
}

// Answer collects what an engine's answer says, from a whole body or from chunks, in the wire of chat completions or of
// completions. Ids and logprobs are two streams per choice, joined by position only at the end (BC02); nothing is padded,
// moved or made up.
type Answer struct {
	ID    string
	Usage record.Usage
	// Error is the error object that the engine sent inside its answer, nil for none.
	Error json.RawMessage
	// PromptIDs are those at the answer's top level, shared by its choices (chat).
	PromptIDs []int32
	Choices   []*Choice
	// Done says that [DONE] arrived. It is framing, no proof of success.
	Done bool
	// Garbled counts data that looked like JSON objects and were none; Overflow counts events beyond MaxEvent.
	Garbled, Overflow int

	remarks    []record.Remark
	voidPrompt bool
	promptSeen bool
	splices    []jsonscan.Splice // scratch of one reading
	edited     []byte            // likewise
}

// Choice is what an answer says about one choice.
type Choice struct {
	Index int

	PromptIDs   []int32
	SampledIDs  []int32
	Logprobs    []float64 // NaN for null or not finite
	HasIDs      bool
	HasLogprobs bool

	Finish     string
	StopReason json.RawMessage

	message message
	remarks []record.Remark
	// spelled holds what the logprob rows say about their ids ("token_id:7", or an id field), -1 where they say nothing;
	// kept only once a row says something.
	spelled                 []int64
	rows                    int
	idsFrom                 source
	metaLogprobs            []float64 // those of meta_info, until the choice is read
	started                 bool
	voidPrompt, voidSampled bool
}

// choice returns the choice with an index, making it when it is new.
func (a *Answer) choice(index int64) *Choice {
	for _, c := range a.Choices {
		if int64(c.Index) == index {
			return c
		}
	}
	if index < 0 || index >= maxChoices {
		return nil
	}
	c := &Choice{Index: int(index)}
	a.Choices = append(a.Choices, c)
	return c
}

// Started says whether anything of the answer's content has arrived.
func (a *Answer) Started() bool {
	for _, c := range a.Choices {
		if c.started {
			return true
		}
	}
	return false
}

// Finished says whether the answer has a choice and every choice its finish reason.
func (a *Answer) Finished() bool {
	for _, c := range a.Choices {
		if c.Finish == "" {
			return false
		}
	}
	return len(a.Choices) > 0
}

// Message is what the harness was given, as one chat message; nil when nothing was.
func (c *Choice) Message() json.RawMessage { return c.message.encode() }

// Text, Reasoning and Refusal are what the choice has said so far. They only grow.
func (c *Choice) Text() []byte      { return c.message.content }
func (c *Choice) Reasoning() []byte { return c.message.reasoning }
func (c *Choice) Refusal() []byte   { return c.message.refusal }

// Calls visits the tool calls so far.
func (c *Choice) Calls(visit func(id, name string, arguments []byte)) {
	for i := range c.message.calls {
		t := &c.message.calls[i]
		visit(t.id, t.name, t.arguments)
	}
}

// Remarks are the contradictions found inside the choice's token data.
func (c *Choice) Remarks() []record.Remark {
	out := c.remarks
	for i, id := range c.spelled {
		if id >= 0 && i < len(c.SampledIDs) && int64(c.SampledIDs[i]) != id {
			out = append(out, record.Remark{Code: "logprob_misalign",
				Detail: fmt.Sprintf("row %d is spelled token_id:%d, the id there is %d", i, id, c.SampledIDs[i])})
			break
		}
	}
	return out
}

func (c *Choice) remark(code, format string, args ...any) {
	for _, r := range c.remarks {
		if r.Code == code {
			return
		}
	}
	c.remarks = append(c.remarks, record.Remark{Code: code, Detail: fmt.Sprintf(format, args...)})
}

// Refused says that the provider refused to answer.
func (c *Choice) Refused() bool { return len(c.message.refusal) > 0 }

// HasCalls says that the choice calls tools.
func (c *Choice) HasCalls() bool { return len(c.message.calls) > 0 }

// UnfinishedCall says that a tool call's arguments are no complete JSON.
func (c *Choice) UnfinishedCall() bool {
	for _, t := range c.message.calls {
		if t.kind != "custom" && !json.Valid(t.arguments) {
			return true
		}
	}
	return false
}

// notWhole voids a list of ids: leaving one out would shift the rest.
const notWhole = "an id is no whole number of 32 bits"

// sampled reads a part of the choice's sampled ids and reports whether there was one.
func (c *Choice) sampled(cur *jsonscan.Cursor) bool {
	ids, array, whole := cur.AppendInts(c.SampledIDs)
	if !whole {
		c.voidSampled = true
		c.remark("invalid_token_id", notWhole)
	}
	if c.SampledIDs = ids; c.voidSampled {
		c.SampledIDs = nil
	}
	if array {
		c.HasIDs = true
		c.started = c.started || len(ids) > 0
	}
	return array
}

// prompt reads prompt ids at choice level and reports whether there were any.
func (c *Choice) prompt(cur *jsonscan.Cursor) bool {
	ids, array, whole := cur.AppendInts(nil)
	switch {
	case !array:
	case !whole:
		c.voidPrompt = true
		c.PromptIDs = nil
		c.remark("invalid_token_id", notWhole)
	case c.voidPrompt:
	case c.PromptIDs == nil:
		c.PromptIDs = ids
	case !slices.Equal(c.PromptIDs, ids):
		c.remark("capture_conflict", "the engine gave two different lists of prompt ids")
	}
	return array
}

// prompt reads prompt ids at top level, which vLLM repeats once per choice, and reports whether there were any.
func (a *Answer) prompt(cur *jsonscan.Cursor) bool {
	ids, array, whole := cur.AppendInts(nil)
	switch {
	case !array:
	case !whole:
		a.voidPrompt = true
		a.PromptIDs = nil
		a.remarks = append(a.remarks, record.Remark{Code: "invalid_token_id", Detail: notWhole})
	case a.voidPrompt:
	case !a.promptSeen:
		a.PromptIDs = ids
		a.promptSeen = true
	case !slices.Equal(a.PromptIDs, ids):
		a.remarks = append(a.remarks, record.Remark{Code: "capture_conflict", Detail: "the engine gave two different lists of prompt ids"})
	}
	return array
}

// Remarks are the contradictions found in what the answer says of all its choices.
func (a *Answer) Remarks() []record.Remark { return a.remarks }

// Prompt returns the prompt ids of one of the answer's choices.
func (a *Answer) Prompt(c *Choice) []int32 {
	if c.PromptIDs != nil {
		return c.PromptIDs
	}
	return a.PromptIDs
}

// rowsOf reads the logprobs of a choice or chunk, in either wire: {"content": [{token, logprob, …}]} or
// {"tokens": […], "token_logprobs": […]}. It reports whether there were any.
func (c *Choice) rowsOf(cur *jsonscan.Cursor) bool {
	if cur.Peek() != '{' {
		cur.Skip()
		return false
	}
	found := false
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "content":
			if cur.Peek() == '[' {
				found = true
			}
			for rows := cur.Array(); rows.Next(); {
				c.row(cur)
			}
		case "token_logprobs":
			if cur.Peek() == '[' {
				found = true
			}
			for values := cur.Array(); values.Next(); {
				v, _ := cur.Float()
				c.Logprobs = append(c.Logprobs, v)
			}
		case "tokens":
			for names := cur.Array(); names.Next(); {
				c.spelling(cur)
				c.rows++
			}
		case "token_ids":
			c.sampledFrom(cur, fromRows)
		}
	}
	c.HasLogprobs = c.HasLogprobs || found
	return found
}

// row reads one logprob row of chat. A row without a logprob counts as NaN: it is there, and it is not a number.
func (c *Choice) row(cur *jsonscan.Cursor) {
	value, ok := 0.0, false
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "logprob":
			value, ok = cur.Float()
		case "token":
			c.spelling(cur)
		case "id", "token_id": // llama.cpp, Fireworks
			if id, isInt := cur.Int(); isInt {
				c.spell(id)
			}
		}
	}
	if !ok {
		value = notANumber
	}
	c.Logprobs = append(c.Logprobs, value)
	c.rows++
}

const tokenIDPrefix = "token_id:"

// spelling reads a row's token and notes an id that it spells.
func (c *Choice) spelling(cur *jsonscan.Cursor) {
	raw := cur.Raw()
	if len(raw) < len(tokenIDPrefix)+3 || string(raw[1:1+len(tokenIDPrefix)]) != tokenIDPrefix {
		return
	}
	n := jsonscan.New(raw[1+len(tokenIDPrefix) : len(raw)-1])
	if id, ok := n.Int(); ok && n.End() == nil {
		c.spell(id)
	}
}

func (c *Choice) spell(id int64) {
	for len(c.spelled) <= c.rows {
		c.spelled = append(c.spelled, -1)
	}
	c.spelled[c.rows] = id
}

// usage reads a usage object. Absent and null counts stay nil.
func (a *Answer) usage(raw []byte) {
	cur := jsonscan.New(raw)
	if cur.Peek() != '{' {
		return
	}
	u := record.Usage{Raw: append(json.RawMessage(nil), raw...)}
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "prompt_tokens":
			if n, ok := cur.Int(); ok {
				u.Prompt = &n
			}
		case "completion_tokens":
			if n, ok := cur.Int(); ok {
				u.Completion = &n
			}
		}
	}
	a.Usage = u
}
