package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// The tree says where a conversation would have broken without its ids, and why another one was sent as messages.
func TestContinuity(t *testing.T) {
	at := 123
	edit := func(made any, why string) []export.Edit {
		to, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		return []export.Edit{{Param: record.ParamPromptIDs, From: json.RawMessage("null"), To: to, Why: why}}
	}
	r := chain(4)
	r.Stats.Forced = 2
	r.Turns[1].PromptSource, r.Turns[1].Edits = record.PromptForced, edit(record.Continued{Call: 1, Echo: "thinking_removed", BreaksAt: &at}, "")
	r.Turns[2].PromptSource, r.Turns[2].Edits = record.PromptForced, edit(record.Continued{Call: 2, Echo: "same"}, "")
	r.Turns[3].PromptSource, r.Turns[3].Edits = record.PromptEngine, edit(nil, "history_rewritten: message 3 is not what stood there before")
	var b bytes.Buffer
	if err := Tree(&b, r, Options{Width: 200}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"continuity: 2 prompts sent as the engine's own ids, 1 would have broken as messages",
		"carries on call 1 by ids; as messages it would have broken at 123: the answer came back without its thought",
		"sent as messages, history_rewritten: message 3 is not what stood there before",
	} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("the tree has not once %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "carries on call 2") {
		t.Error("a conversation that would not have broken needs no remark")
	}
}
