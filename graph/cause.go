package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// Cause says why a conversation broke into a new root.
type Cause string

// The causes.
const (
	SystemChanged        Cause = "system_changed"
	ToolsChanged         Cause = "tools_changed"
	ThinkingRemoved      Cause = "thinking_removed"
	ToolCallReserialised Cause = "tool_call_reserialised"
	HistoryRewritten     Cause = "history_rewritten"
	Retokenised          Cause = "retokenised" // the text is the same, the ids are not
	Template             Cause = "template"    // only what the template renders around the text differs
	Unknown              Cause = "unknown"
)

const (
	nonceLine       = "x-anthropic-billing-header:"
	startOfAnswer   = 8 // tokens within which a template opens a thinking block
	reasoningAbsent = "earlier reasoning is absent"
)

// Break says where a root's prompt leaves the earlier turn that it continues, and probably why.
type Break struct {
	// Position is the first token index at which the prompt differs from the earlier turn's end; nil when that turn
	// has no ids to compare.
	Position *int   `json:"position"`
	Cause    Cause  `json:"cause"`
	Detail   string `json:"detail"`
}

// explain compares root i with the turn u that its messages continue.
func (g *Graph) explain(u, i int) *Break {
	was, now := g.Nodes[u].Turn, g.Nodes[i].Turn
	if !was.hasIDs() {
		return &Break{Cause: Unknown, Detail: "the earlier turn has no prompt ids to extend"}
	}
	at := commonPrefix(was.Prompt, now.Prompt)
	if at == len(was.Prompt) {
		at += commonPrefix(was.Sampled, now.Prompt[at:])
	}
	cause, why := g.cause(u, i, at)
	return &Break{Position: &at, Cause: cause, Detail: why + "; " + tokensAt(was, now, at)}
}

func tokensAt(was, now *Turn, at int) string {
	if at == was.end() {
		return fmt.Sprintf("both end at %d", at)
	}
	if at == len(now.Prompt) {
		return fmt.Sprintf("at %d this prompt ends, where the earlier turn has %d", at, was.endToken(at))
	}
	return fmt.Sprintf("at %d the earlier turn has %d, this prompt %d", at, was.endToken(at), now.Prompt[at])
}

func (g *Graph) cause(u, i, at int) (Cause, string) {
	was, now := g.Nodes[u].Turn, g.Nodes[i].Turn
	if len(was.Sampled) > 1 && at == was.end()-1 && at < len(now.Prompt) {
		return Template, "only the final sampled token differs: the template ends the answer with another one"
	}
	if at < len(was.Prompt) {
		if cause, why := settingChange(was, now); cause != "" {
			return cause, why
		}
	}
	if cause, why := messageChange(was, now); cause != "" {
		return cause, why
	}
	if at == was.end() || at == len(now.Prompt) {
		return Unknown, "the messages go on, the tokens do not"
	}
	return g.tokenChange(u, at)
}

// settingChange compares what a template renders before the conversation.
func settingChange(was, now *Turn) (Cause, string) {
	old, latest := systemText(was.Request), systemText(now.Request)
	if old != latest {
		if withoutNonce(old) == withoutNonce(latest) {
			return SystemChanged, "only the nonce line " + strings.TrimSuffix(nonceLine, ":") + " of the system text differs"
		}
		return SystemChanged, "the system text differs"
	}
	if len(was.Tools) != len(now.Tools) {
		return ToolsChanged, fmt.Sprintf("%d tools before, %d now", len(was.Tools), len(now.Tools))
	}
	for k := range was.Tools {
		if !bytes.Equal(was.Tools[k], now.Tools[k]) {
			return ToolsChanged, fmt.Sprintf("tool %d (%q) differs", k, gjson.GetBytes(now.Tools[k], "function.name").String())
		}
	}
	return "", ""
}

func leadingMessages(messages []json.RawMessage) int {
	for i, raw := range messages {
		if m := parseMessage(raw, ""); !m.leads() {
			return i
		}
	}
	return len(messages)
}

func systemText(messages []json.RawMessage) string {
	var lines []string
	for _, raw := range messages[:leadingMessages(messages)] {
		lines = append(lines, parseMessage(raw, "").text)
	}
	return strings.Join(lines, "\n")
}

// withoutNonce leaves out the line that some harnesses put at the top of each request. Blocks of system text may
// have been joined with nothing in between, so the line ends at its last field.
func withoutNonce(system string) string {
	start := strings.Index(system, nonceLine)
	if start < 0 {
		return system
	}
	line, rest, more := strings.Cut(system[start:], "\n")
	if k := strings.LastIndexByte(line, ';'); k >= 0 {
		line = line[k+1:]
	} else {
		line = ""
	}
	if more {
		line += "\n" + rest
	}
	return system[:start] + line
}

// messageChange finds the first message that differs in what a template may render.
func messageChange(was, now *Turn) (Cause, string) {
	skip := leadingMessages(now.Request)
	latest := now.Request[skip:]
	old := was.Request[leadingMessages(was.Request):]
	for k, raw := range old {
		if k >= len(latest) {
			return HistoryRewritten, shorter(len(old)+1, len(latest))
		}
		if cause, what := compareMessages(raw, latest[k], ""); cause != "" {
			return cause, fmt.Sprintf("message %d: %s", skip+k, what)
		}
	}
	if !hasReply(was) {
		return "", ""
	}
	if len(latest) <= len(old) {
		return HistoryRewritten, shorter(len(old)+1, len(latest))
	}
	if cause, what := compareMessages(was.Reply, latest[len(old)], "assistant"); cause != "" {
		return cause, fmt.Sprintf("message %d, the earlier answer: %s", skip+len(old), what)
	}
	return "", ""
}

func shorter(old, latest int) string {
	return fmt.Sprintf("the conversation had %d messages, now %d", old, latest)
}

// compareMessages says what changed in a message, "" for nothing that a template would show. role is the old one's
// where it names none.
func compareMessages(old, latest json.RawMessage, role string) (Cause, string) {
	if bytes.Equal(old, latest) {
		return "", ""
	}
	a, b := parseMessage(old, role), parseMessage(latest, "")
	if a.role != b.role {
		return HistoryRewritten, fmt.Sprintf("was from %q, is from %q", a.role, b.role)
	}
	if a.identity() != b.identity() {
		return HistoryRewritten, fmt.Sprintf("%s message changed in %s", a.role, changedPart(a, b))
	}
	if a.reasoning != "" && strings.TrimSpace(b.reasoning) == "" {
		return ThinkingRemoved, reasoningAbsent
	}
	for k := range a.calls {
		if a.calls[k].arguments != b.calls[k].arguments {
			return ToolCallReserialised, fmt.Sprintf("the arguments of %q are spelled otherwise", a.calls[k].name)
		}
	}
	if strings.TrimSpace(a.reasoning) != strings.TrimSpace(b.reasoning) {
		return HistoryRewritten, "the reasoning changed"
	}
	if a.text != b.text {
		return HistoryRewritten, "white space around the text changed"
	}
	return "", ""
}

func changedPart(a, b message) string {
	if strings.TrimSpace(a.text) != strings.TrimSpace(b.text) {
		return "its text"
	}
	if len(a.calls) != len(b.calls) {
		return fmt.Sprintf("its tool calls: %d before, %d now", len(a.calls), len(b.calls))
	}
	return "its tool calls"
}

// tokenChange explains a break between equal messages by where it falls.
func (g *Graph) tokenChange(u, at int) (Cause, string) {
	for v := u; v != None && at < g.Nodes[v].Turn.end(); v = g.Nodes[v].Parent {
		t := g.Nodes[v].Turn
		thought := hasReply(t) && parseMessage(t.Reply, "assistant").reasoning != ""
		if thought && at >= len(t.Prompt)-startOfAnswer && at <= len(t.Prompt)+startOfAnswer {
			return ThinkingRemoved, reasoningAbsent + " from the prompt: the template leaves it out"
		}
		if at >= len(t.Prompt) {
			return Retokenised, "the text is the same, its ids are not (or the engine's parser dropped part of what was sampled)"
		}
	}
	return Template, "the messages are the same; what the template renders around them differs"
}
