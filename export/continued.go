package export

import (
	"encoding/json"

	"captureproxy/internal/record"
)

// Continued says how the turn's prompt was made of an earlier turn's ids, false where it was rendered from messages. An engine
// that was sent ids and did not follow them has its own prompt recorded, so such a turn is none.
func (t *Turn) Continued() (record.Continued, bool) {
	var c record.Continued
	if t.PromptSource != record.PromptForced {
		return c, false
	}
	for _, e := range t.Edits {
		if e.Param == record.ParamPromptIDs && json.Unmarshal(e.To, &c) == nil && c.Call > 0 {
			return c, true
		}
	}
	return c, false
}

// NotContinued says why the turn was sent as plain messages although its session is kept in one piece and its messages go on
// with something; "" where nothing kept it from that.
func (t *Turn) NotContinued() string {
	if t.PromptSource == record.PromptForced {
		return ""
	}
	for _, e := range t.Edits {
		if e.Param == record.ParamPromptIDs && (len(e.To) == 0 || string(e.To) == "null") {
			return e.Why
		}
	}
	return ""
}
