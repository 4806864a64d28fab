package dialect

import (
	"encoding/json"
	"slices"
)

// googleReader reads the answers of Google's generateContent and streamGenerateContent.
type googleReader struct {
	buf   []byte
	calls map[int]int // candidate → its calls so far
}

type googleChunk struct {
	ID         string            `json:"responseId"`
	Model      string            `json:"modelVersion"`
	Candidates []googleCandidate `json:"candidates"`
	Feedback   struct {
		Block string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage json.RawMessage `json:"usageMetadata"`
	Error json.RawMessage `json:"error"`
}

type googleCandidate struct {
	Index   int `json:"index"`
	Content struct {
		Parts []struct {
			Text    string `json:"text"`
			Thought bool   `json:"thought"`
			Call    *struct {
				ID   string          `json:"id"`
				Name string          `json:"name"`
				Args json.RawMessage `json:"args"`
			} `json:"functionCall"`
		} `json:"parts"`
	} `json:"content"`
	Finish string `json:"finishReason"`
}

func (r *googleReader) Event(data []byte) (chunk []byte, last bool) {
	var c googleChunk
	if json.Unmarshal(data, &c) != nil {
		return nil, false
	}
	var deltas []nativeDelta
	for i := range c.Candidates {
		d := r.candidate(&c.Candidates[i])
		last = last || d.finish != ""
		deltas = append(deltas, d)
	}
	if c.Feedback.Block != "" && len(deltas) == 0 { // the prompt itself was blocked
		deltas, last = []nativeDelta{{finish: "content_filter"}}, true
	}
	var fault []byte
	if len(c.Error) > 0 {
		fault = c.Error
	}
	if deltas == nil && fault == nil && c.Usage == nil {
		return nil, false
	}
	r.buf = appendChunk(r.buf, c.ID, c.Model, deltas, googleUsage(c.Usage), fault)
	return r.buf, last
}

func (r *googleReader) candidate(c *googleCandidate) nativeDelta {
	d := nativeDelta{index: c.Index, finish: c.Finish}
	for _, p := range c.Content.Parts {
		switch {
		case p.Call != nil:
			args := string(p.Call.Args)
			if args == "" {
				args = "{}"
			}
			d.calls = append(d.calls, nativeCall{index: r.calls[c.Index], id: p.Call.ID, name: p.Call.Name, arguments: args})
			r.calls[c.Index]++
		case p.Thought:
			d.reasoning += p.Text
		default:
			d.text += p.Text
		}
	}
	return d
}

func googleUsage(raw json.RawMessage) []byte {
	var u struct {
		Prompt     *int64 `json:"promptTokenCount"`
		Candidates *int64 `json:"candidatesTokenCount"`
		Thoughts   *int64 `json:"thoughtsTokenCount"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u.Prompt == nil || u.Candidates == nil && u.Thoughts == nil {
		return nil
	}
	return withCounts(raw, *u.Prompt, count(u.Candidates)+count(u.Thoughts))
}

func (r *googleReader) Whole(body []byte) []byte {
	chunk, _ := r.Event(body)
	return slices.Clone(chunk)
}
