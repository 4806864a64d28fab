package fakeengine

import (
	"strings"

	"github.com/tidwall/gjson"
)

// The template is ChatML with its tools and calls written as Hermes models write them:
//
//	<|im_start|>system\nTEXT\n\n# Tools\n…<|im_end|>\n
//	<|im_start|>user\nTEXT<|im_end|>\n
//	<|im_start|>assistant\n<think>THOUGHT</think>TEXT<tool_call>\n{"name": "bash", "arguments": {…}}\n</tool_call><|im_end|>\n
//	<|im_start|>tool\nTEXT<|im_end|>\n
//	<|im_start|>assistant\n
//
// Every piece between two special tokens is encoded by itself, and what the engine samples is encoded in the very same
// pieces (generation.go). So no merge ever crosses the border between prompt and sample, and a message that comes back
// with equal text gets equal ids. Reasoning is rendered when it comes back, always.

const (
	toolsIntro = "\n\n# Tools\n\nYou may call one or more functions to assist with the user query. Call them as JSON " +
		"objects with name and arguments, each in tool_call tags. The functions:\n"
	callGlue = "\n" // between one tool call and the next
)

// prompt returns the ids of a conversation; with generate set, up to where the assistant's answer begins.
func (v *vocab) prompt(req *Request, generate bool) []int32 {
	ids := make([]int32, 0, len(req.Body)/3+64)
	messages := req.Messages
	if req.toolsRaw != "" {
		text := ""
		if len(messages) > 0 && messages[0].isSystem() {
			text = messages[0].Text()
			messages = messages[1:]
		}
		ids = v.open(ids, "system")
		ids = append(ids, v.encode(text)...)
		ids = append(ids, v.tools.get(req.toolsRaw, func() []int32 { return v.manifest(req.toolsRaw) })...)
		ids = v.close(ids)
	}
	for _, m := range messages {
		if m.strict { // rendered otherwise than the chat API would, so not shared with it
			ids = append(ids, v.message(m)...)
			continue
		}
		ids = append(ids, v.messages.get(m.raw.Raw, func() []int32 { return v.message(m) })...)
	}
	if generate {
		ids = v.open(ids, "assistant")
		if req.noThinking {
			ids = append(ids, idThink, idThinkEnd)
		}
	}
	return ids
}

func (v *vocab) open(ids []int32, role string) []int32 {
	ids = append(ids, idStart)
	return append(ids, v.encode(role+"\n")...)
}

func (v *vocab) close(ids []int32) []int32 {
	ids = append(ids, idEnd)
	return append(ids, v.encode("\n")...)
}

func (v *vocab) manifest(toolsRaw string) []int32 {
	ids := append([]int32(nil), v.encode(toolsIntro)...)
	gjson.Parse(toolsRaw).ForEach(func(_, tool gjson.Result) bool {
		ids = append(ids, v.encode(string(appendCanonical(nil, tool, false))+"\n")...)
		return true
	})
	return ids
}

func (v *vocab) message(m Message) []int32 {
	role := m.Role()
	if m.isSystem() {
		role = "system"
	}
	ids := v.open(nil, role)
	if role == "assistant" {
		ids = v.reply(ids, v.odd.history(m.reply()))
	} else {
		ids = append(ids, v.encode(m.Text())...)
	}
	return v.close(ids)
}

// reply appends what the template renders of a reply, its final idEnd excepted: what the engine sampled for it, unless the
// engine is an odd one.
func (v *vocab) reply(ids []int32, r Reply) []int32 {
	if r.Reasoning != "" {
		ids = append(ids, idThink)
		ids = append(ids, v.encode(r.Reasoning)...)
		ids = append(ids, idThinkEnd)
	}
	ids = append(ids, v.encode(r.Content)...)
	for i, c := range r.Calls {
		if i > 0 {
			ids = append(ids, v.encode(callGlue)...)
		}
		ids = append(ids, idCall)
		ids = append(ids, v.encode(c.body(v.odd.spell()).text)...)
		ids = append(ids, idCallEnd)
	}
	return ids
}

// Reply is what the engine says.
type Reply struct {
	Reasoning string
	Content   string
	Calls     []ToolCall
}

// ToolCall is a call of one tool; Arguments is a JSON object in any spelling.
type ToolCall struct {
	Name      string
	Arguments string
}

// callBody is the text between the tags of a tool call and where its parts lie.
type callBody struct {
	text             string
	nameEnd          int // past the name's closing quote
	argsFrom, argsTo int
}

func (c ToolCall) body(spell func(arguments string) string) callBody {
	b := append([]byte(nil), "\n{\"name\": "...)
	b = appendString(b, c.Name)
	out := callBody{nameEnd: len(b)}
	b = append(b, `, "arguments": `...)
	out.argsFrom = len(b)
	b = append(b, spell(c.Arguments)...)
	out.argsTo = len(b)
	out.text = string(append(b, "}\n"...))
	return out
}

// Message is one message of a request.
type Message struct {
	raw    gjson.Result
	strict bool // read as /tokenize does, which knows no reasoning_content
}

// Role is the message's role as it was sent.
func (m Message) Role() string { return m.raw.Get("role").String() }

// Raw is the message's JSON.
func (m Message) Raw() string { return m.raw.Raw }

// Text is the message's content: a string, or text parts joined by newlines; empty for null.
func (m Message) Text() string {
	content := m.raw.Get("content")
	if !content.IsArray() {
		return content.String()
	}
	var parts []string
	content.ForEach(func(_, part gjson.Result) bool {
		if text := part.Get("text"); text.Exists() {
			parts = append(parts, text.String())
		} else {
			parts = append(parts, "<|"+part.Get("type").String()+"|>")
		}
		return true
	})
	return strings.Join(parts, "\n")
}

func (m Message) isSystem() bool {
	role := m.Role()
	return role == "system" || role == "developer"
}

// reply reads an assistant message back into what was said.
func (m Message) reply() Reply {
	r := Reply{Reasoning: m.raw.Get("reasoning").String(), Content: m.Text()}
	if r.Reasoning == "" && !m.strict {
		r.Reasoning = m.raw.Get("reasoning_content").String()
	}
	m.raw.Get("tool_calls").ForEach(func(_, tc gjson.Result) bool {
		r.Calls = append(r.Calls, ToolCall{tc.Get("function.name").String(), tc.Get("function.arguments").String()})
		return true
	})
	return r
}
