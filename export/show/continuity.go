package show

import (
	"fmt"
	"strings"

	"captureproxy/export"
)

// continuity says in one line what carrying on by ids did for the rollout, "" where no prompt was sent so.
func continuity(r *export.Rollout) string {
	broken := 0
	for i := range r.Turns {
		if c, ok := r.Turns[i].Continued(); ok && c.BreaksAt != nil {
			broken++
		}
	}
	if r.Stats.Forced == 0 {
		return ""
	}
	return fmt.Sprintf("continuity: %s sent as the engine's own ids, %d would have broken as messages", count(r.Stats.Forced, "prompt"), broken)
}

// carried says where a turn's conversation would have broken, or why it was sent as messages; "" for neither.
func carried(t *export.Turn) string {
	if c, ok := t.Continued(); ok {
		if c.BreaksAt == nil {
			return ""
		}
		why := "the same text has other ids"
		switch c.Echo {
		case "thinking_removed":
			why = "the answer came back without its thought"
		case "tool_call_reserialised":
			why = "the arguments of its calls came back spelled otherwise"
		case "thinking_moved":
			why = "the answer's thought came back in its text"
		case "space_trimmed":
			why = "the space around its text came back otherwise"
		}
		return fmt.Sprintf("carries on call %d by ids; as messages it would have broken at %d: %s", c.Call, *c.BreaksAt, why)
	}
	if why := t.NotContinued(); why != "" {
		return "sent as messages, " + strings.TrimSpace(why)
	}
	return ""
}
