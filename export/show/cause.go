package show

import "captureproxy/graph"

// Cause says in words why a conversation broke into a new root, and what would avoid it.
func Cause(cause string) (what, avoid string) {
	switch graph.Cause(cause) {
	case graph.SystemChanged:
		return "the system prompt changed", "Keep what changes (dates, counters, a list of open files) out of the system prompt: at the end of the conversation it breaks nothing."
	case graph.ToolsChanged:
		return "the tool manifest changed", "Offer the same tools, in the same order and spelling, from the first call to the last."
	case graph.ThinkingRemoved:
		return "thinking was removed from the history", "Let the harness send the model's thinking back (see --reasoning-field), and use a chat template that keeps it; or turn continuity on, where the engine takes prompt ids."
	case graph.ToolCallReserialised:
		return "a tool call came back in another spelling", "Send a call's arguments back as the string that the model wrote, not parsed and written anew; or turn continuity on, where the engine takes prompt ids."
	case graph.HistoryRewritten:
		return "the history was rewritten", "Compaction and edits of earlier messages begin a new conversation by their nature: give the harness a larger context, or train both parts as rows of their own."
	case graph.Retokenised:
		return "the same text became other tokens", "Nobody rewrote anything: the sampled ids are not those that the tokenizer makes of their text. Turn continuity on, where the engine takes prompt ids."
	case graph.Template:
		return "the chat template rendered the past differently", "Use a template that renders a message the same way wherever it stands; or turn continuity on, where the engine takes prompt ids."
	}
	return "the reason is not known", "Compare the two sides below, from the first token that differs."
}
