package reconcile

import (
	"encoding/json"
	"strings"

	"captureproxy/export"
)

// turn is a turn of the document with what it is recognised by.
type turn struct {
	*export.Turn
	toolCalls          []string
	text               string
	hasMessage         bool   // toolCalls and text are known
	prompt, completion *int64 // nil where unknown
	ids                []int32
	auxiliary          bool // lies on auxiliary rows only
	repeated           bool // a later call repeats this one
}

func turnsOf(doc *export.Rollout) []turn {
	repeated := map[int]bool{}
	for i := range doc.Turns {
		repeated[doc.Turns[i].RetryOf] = true // 0, for none, is no call's number
	}
	rows := map[string][]*export.Row{}
	for i := range doc.Sequences {
		for _, id := range doc.Sequences[i].NodeIDs {
			rows[id] = append(rows[id], &doc.Sequences[i])
		}
	}
	turns := make([]turn, len(doc.Turns))
	for i := range doc.Turns {
		t := &doc.Turns[i]
		turns[i] = turn{Turn: t, repeated: repeated[t.Call], auxiliary: onlyAuxiliary(rows[t.NodeID]), ids: sampledIDs(t, rows[t.NodeID])}
		turns[i].readMessage()
		turns[i].readCounts()
	}
	return turns
}

func onlyAuxiliary(rows []*export.Row) bool {
	for _, row := range rows {
		if row.Role != export.Auxiliary {
			return false
		}
	}
	return len(rows) > 0
}

// sampledIDs are the ids that the turn sampled, from a row that has them.
func sampledIDs(t *export.Turn, rows []*export.Row) []int32 {
	for _, row := range rows {
		if end := t.NPrompt + t.NSampled; t.NSampled > 0 && end <= len(row.InputIDs) {
			return row.InputIDs[t.NPrompt:end]
		}
	}
	return nil
}

// readMessage takes the answer's tool calls and text, where the document has messages.
func (n *turn) readMessage() {
	var m struct {
		Content   json.RawMessage `json:"content"`
		ToolCalls []struct {
			ID string `json:"id"`
		} `json:"tool_calls"`
	}
	if len(n.ResponseMessage) == 0 || string(n.ResponseMessage) == "null" || json.Unmarshal(n.ResponseMessage, &m) != nil {
		return
	}
	n.hasMessage = true
	for _, c := range m.ToolCalls {
		n.toolCalls = append(n.toolCalls, c.ID)
	}
	var parts []struct {
		Text text `json:"text"`
	}
	if json.Unmarshal(m.Content, &n.text) != nil && json.Unmarshal(m.Content, &parts) == nil {
		for _, p := range parts {
			n.text = strings.TrimSpace(n.text + " " + string(p.Text))
		}
	}
	n.text = normal(n.text)
}

// readCounts takes the numbers of ids, else the engine's own counts in whichever dialect it speaks.
func (n *turn) readCounts() {
	var u struct {
		Prompt     *int64 `json:"prompt_tokens"`
		Completion *int64 `json:"completion_tokens"`

		Input      *int64 `json:"input_tokens"`
		CacheRead  *int64 `json:"cache_read_input_tokens"` // Anthropic's input leaves the cached tokens out
		CacheWrite *int64 `json:"cache_creation_input_tokens"`
		Output     *int64 `json:"output_tokens"`

		GooglePrompt     *int64 `json:"promptTokenCount"`
		GoogleCandidates *int64 `json:"candidatesTokenCount"`
		GoogleThoughts   *int64 `json:"thoughtsTokenCount"`
	}
	if len(n.Usage) > 0 && json.Unmarshal(n.Usage, &u) == nil {
		n.prompt = first(u.Prompt, sum(u.Input, u.CacheRead, u.CacheWrite), u.GooglePrompt)
		n.completion = first(u.Completion, u.Output, sum(u.GoogleCandidates, u.GoogleThoughts))
	}
	if prompt := int64(n.NPrompt); prompt > 0 {
		n.prompt = &prompt
	}
	if completion := int64(n.NSampled); completion > 0 {
		n.completion = &completion
	}
}

func first(counts ...*int64) *int64 {
	for _, c := range counts {
		if c != nil {
			return c
		}
	}
	return nil
}
