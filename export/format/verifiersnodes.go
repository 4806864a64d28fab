package format

import (
	"encoding/json"
	"fmt"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// vfNode is a message and the tokens that it adds. The tokens of a path's nodes, one after the other, are what the model
// saw. Logprobs are compact: one per true in the mask.
type vfNode struct {
	Parent    *int            `json:"parent"`
	Message   vfMessage       `json:"message"`
	Sampled   bool            `json:"sampled"`
	Timestamp number          `json:"timestamp"`
	TokenIDs  []int32         `json:"token_ids"`
	Mask      []bool          `json:"mask"`
	Logprobs  export.Logprobs `json:"logprobs"`
	Tools     []vfTool        `json:"tools,omitempty"`
}

type vfMessage struct {
	Role       string       `json:"role"`
	Content    any          `json:"content"` // a string, or []vfPart
	Reasoning  string       `json:"reasoning_content,omitempty"`
	ToolCalls  []vfToolCall `json:"tool_calls,omitempty"`
	ToolCallID *string      `json:"tool_call_id,omitempty"`
}

type vfPart struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text,omitempty"`
	ImageURL json.RawMessage `json:"image_url,omitempty"`
}

type vfToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type vfTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type vfCall struct {
	Node         int      `json:"node"`
	Model        string   `json:"model"`
	Endpoint     *string  `json:"endpoint"`
	FinishReason *string  `json:"finish_reason"`
	Usage        vfUsage  `json:"usage"`
	Time         vfPeriod `json:"time"`
}

type vfUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

type vfPeriod struct {
	Start number `json:"start"`
	End   number `json:"end"`
}

// vfGraph grows the nodes of a session, turn by turn. A turn that several rows share is there once, with its mask true:
// prime-rl trains it in the first branch that has it, verifiers in each. Discarded turns are not there.
type vfGraph struct {
	nodes   []vfNode
	calls   []vfCall
	turns   map[string]*export.Turn
	ids     map[string]step // a turn's ids, from the first live row that it is on
	trained map[string]bool
	at      map[string]int // a turn's answer among the nodes
	entered map[string]bool
}

func newVFGraph(s *session) *vfGraph {
	g := &vfGraph{turns: map[string]*export.Turn{}, ids: map[string]step{}, trained: s.trained(), at: map[string]int{}, entered: map[string]bool{}}
	for i := range s.doc.Turns {
		g.turns[s.doc.Turns[i].NodeID] = &s.doc.Turns[i]
	}
	for i := range s.doc.Sequences {
		r := &s.doc.Sequences[i]
		if r.Role == export.Discarded {
			continue
		}
		for _, id := range r.NodeIDs {
			t := g.turns[id]
			st := step{turn: t}
			if end := t.NPrompt + t.NSampled; end <= len(r.InputIDs) {
				st.prompt, st.sampled = r.InputIDs[:t.NPrompt], r.InputIDs[t.NPrompt:end]
			}
			if have, ok := g.ids[id]; !ok || len(have.prompt) == 0 {
				g.ids[id] = st
			}
		}
	}
	return g
}

// turn adds a turn's new messages and its answer. The prompt's new tokens sit whole on the last new message; where the
// conversation got none, they lead the answer's own.
func (g *vfGraph) turn(t *export.Turn) error {
	st, live := g.ids[t.NodeID]
	if _, done := g.at[t.NodeID]; done || !live {
		return nil
	}
	if g.entered[t.NodeID] {
		return fmt.Errorf("turn %s is its own ancestor: the document is damaged", t.NodeID)
	}
	g.entered[t.NodeID] = true
	parent := g.turns[t.ParentID]
	var prev *int
	added := st.prompt
	if parent != nil {
		if err := g.turn(parent); err != nil { // parents are found by their tokens, and may have arrived later
			return err
		}
		at, ok := g.at[parent.NodeID]
		if !ok {
			return fmt.Errorf("turn %s is on a row that its parent %s is not on: the document is damaged", t.NodeID, parent.NodeID)
		}
		prev = &at
		if n := parent.NPrompt + parent.NSampled; n <= len(added) {
			added = added[n:]
		}
	}
	messages := fresh(t, parent)
	for i, raw := range messages {
		node, err := newVFNode(raw, prev)
		if err != nil {
			return err
		}
		node.Timestamp = seconds(t.Timing.Dispatched)
		if prev == nil {
			if node.Tools, err = vfTools(t.RequestTools); err != nil {
				return err
			}
		}
		if i == len(messages)-1 {
			node.carry(added, false, nil)
			added = nil
		}
		prev = g.add(node)
	}
	return g.answer(t, st, prev, added)
}

func (g *vfGraph) answer(t *export.Turn, st step, prev *int, before []int32) error {
	raw := t.ResponseMessage
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage(`{"role":"assistant"}`)
	}
	node, err := newVFNode(raw, prev)
	if err != nil {
		return err
	}
	node.Sampled, node.Timestamp = true, seconds(t.Timing.Recorded)
	node.carry(before, false, nil)
	node.carry(st.sampled, g.trained[t.NodeID], t.SampledLogprobs)
	at := g.add(node)
	g.at[t.NodeID] = *at
	g.calls = append(g.calls, vfCall{
		Node: *at, Model: t.Model, Endpoint: endpoint(t.Dialect), FinishReason: vfFinish(t.FinishReason),
		Usage: vfUsage{t.NPrompt, t.NSampled}, Time: vfPeriod{seconds(t.Timing.Dispatched), seconds(t.Timing.Recorded)},
	})
	return nil
}

func (g *vfGraph) add(n vfNode) *int {
	g.nodes = append(g.nodes, n)
	at := len(g.nodes) - 1
	return &at
}

// carry puts tokens on a node, with logprobs where they are trained.
func (n *vfNode) carry(ids []int32, trained bool, logprobs export.Logprobs) {
	n.TokenIDs = append(n.TokenIDs, ids...)
	for range ids {
		n.Mask = append(n.Mask, trained)
	}
	if trained {
		n.Logprobs = append(n.Logprobs, logprobs...)
	}
}

func newVFNode(raw json.RawMessage, parent *int) (vfNode, error) {
	n := vfNode{Parent: parent, TokenIDs: []int32{}, Mask: []bool{}, Logprobs: export.Logprobs{}}
	m, err := parseMessage(raw)
	if err != nil {
		return n, err
	}
	n.Message.Role = m.Role
	if n.Message.Content, err = vfContent(&m); err != nil {
		return n, err
	}
	switch m.Role {
	case "assistant":
		n.Message.Reasoning = m.reasoning()
		for _, c := range m.ToolCalls {
			n.Message.ToolCalls = append(n.Message.ToolCalls, vfToolCall{c.ID, c.Function.Name, c.Function.Arguments})
		}
	case "tool":
		n.Message.ToolCallID = &m.ToolCallID
	}
	return n, nil
}

// vfContent is text where the message has nothing else, or must have nothing else, and parts otherwise.
func vfContent(m *message) (any, error) {
	parts, err := m.parts()
	if err != nil {
		return nil, err
	}
	plain := m.Role == "assistant"
	if !plain {
		plain = true
		for _, p := range parts {
			plain = plain && p.Type != "image_url"
		}
	}
	if plain {
		return m.text()
	}
	list := []vfPart{}
	for _, p := range parts {
		if p.Type == "image_url" {
			list = append(list, vfPart{Type: p.Type, ImageURL: p.ImageURL})
			continue
		}
		one := p.shown()
		list = append(list, vfPart{Type: "text", Text: &one})
	}
	return list, nil
}

func vfTools(raw []json.RawMessage) ([]vfTool, error) {
	var tools []vfTool
	for _, r := range raw {
		var t struct {
			Type     string `json:"type"`
			Name     string `json:"name"`
			Function vfTool `json:"function"`
		}
		if err := json.Unmarshal(r, &t); err != nil {
			return nil, fmt.Errorf("a tool is not in OpenAI's format: %w", err)
		}
		if t.Function.Name == "" { // a provider's own tool has a type and maybe a name
			t.Function.Name = t.Name
			if t.Name == "" {
				t.Function.Name = t.Type
			}
		}
		tools = append(tools, t.Function)
	}
	return tools, nil
}

// vfFinish is the reason in the trainer's three words, else null.
func vfFinish(reason string) *string {
	switch reason {
	case "stop", "length", "tool_calls":
		return &reason
	}
	return nil
}

func endpoint(d record.Dialect) *string {
	path := ""
	switch d {
	case record.OpenAIChat:
		path = "/chat/completions"
	case record.OpenAICompletions:
		path = "/completions"
	case record.OpenAIResponses:
		path = "/responses"
	case record.AnthropicMessages:
		path = "/messages"
	}
	return orNull(path)
}
