package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"captureproxy/internal/record"
)

// object writes a record as encoding/json does, byte for byte, without its reflection: every call is written once, and
// that was a twentieth of what a call costs. A test holds it to encoding/json, and to every field that there is.
//
// The names are written with their quotes and colon. The first error stays.
type object struct {
	b   []byte
	err error
}

func (o *object) name(name string) {
	if last := o.b[len(o.b)-1]; last != '{' && last != '[' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, name...)
}

func (o *object) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			o.other(s)
			return
		}
	}
	o.b = append(append(append(o.b, '"'), s...), '"')
}

// other writes a value the slow way.
func (o *object) other(v any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && o.err == nil {
		o.err = err
	}
	o.b = append(o.b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}

func (o *object) text(name, s string) {
	o.name(name)
	o.quote(s)
}

func (o *object) someText(name, s string) {
	if s != "" {
		o.text(name, s)
	}
}

func (o *object) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	o.name(name)
	o.b = append(o.b, '[')
	for _, s := range list {
		o.name("")
		o.quote(s)
	}
	o.b = append(o.b, ']')
}

func (o *object) number(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *object) someNumber(name string, n int) {
	if n != 0 {
		o.number(name, int64(n))
	}
}

func (o *object) pointer(name string, n *int64) {
	if n != nil {
		o.number(name, *n)
		return
	}
	o.null(name)
}

func (o *object) null(name string) {
	o.name(name)
	o.b = append(o.b, "null"...)
}

func (o *object) flag(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) someFlag(name string, v bool) {
	if v {
		o.flag(name, true)
	}
}

func (o *object) time(name string, t time.Time) {
	o.name(name)
	text, err := t.AppendText(append(o.b, '"'))
	if err != nil && o.err == nil {
		o.err = err
	}
	o.b = append(text, '"')
}

func (o *object) open(name string) {
	o.name(name)
	o.b = append(o.b, '{')
}

func (o *object) close() { o.b = append(o.b, '}') }

func (o *object) remarks(list []record.Remark) {
	if len(list) == 0 {
		return
	}
	o.name(`"remarks":`)
	o.b = append(o.b, '[')
	for i := range list {
		o.open("")
		o.text(`"code":`, list[i].Code)
		o.text(`"detail":`, list[i].Detail)
		o.close()
	}
	o.b = append(o.b, ']')
}

// appendCallJSON appends a call's JSON form, in which every raw field is null: they stand beside it, as do Session and
// Instance.
func appendCallJSON(b []byte, c *record.Call) ([]byte, error) {
	o := &object{b: append(b, '{')}
	o.text(`"session":`, "")
	o.number(`"number":`, int64(c.Number))
	o.text(`"dialect":`, string(c.Dialect))
	o.flag(`"stream":`, c.Stream)
	o.text(`"request_id":`, c.RequestID)
	o.text(`"model":`, c.Model)
	o.text(`"served":`, c.Served)
	o.open(`"harness":`)
	o.someText(`"name":`, c.Harness.Name)
	o.someText(`"version":`, c.Harness.Version)
	o.someText(`"agent_id":`, c.Harness.AgentID)
	o.someText(`"parent_agent_id":`, c.Harness.ParentAgentID)
	o.close()
	o.someText(`"harness_session_id":`, c.HarnessSessionID)
	o.texts(`"conflicts":`, c.Conflicts)
	o.null(`"requested_sampling":`)
	o.null(`"submitted_sampling":`)
	o.someText(`"template":`, c.Template)
	o.texts(`"constraints":`, c.Constraints)
	o.someNumber(`"max_tokens":`, c.MaxTokens)
	o.edits(c.Edits)
	o.someNumber(`"retry_of":`, c.RetryOf)
	o.someFlag(`"forwarded":`, c.Forwarded)
	o.someText(`"body_hash":`, c.BodyHash)
	o.someText(`"prompt_source":`, string(c.PromptSource))
	o.open(`"timing":`)
	o.time(`"received":`, c.Timing.Received)
	o.time(`"dispatched":`, c.Timing.Dispatched)
	o.time(`"first_token":`, c.Timing.FirstToken)
	o.time(`"last_token":`, c.Timing.LastToken)
	o.time(`"recorded":`, c.Timing.Recorded)
	o.close()
	o.open(`"policy":`)
	o.pointer(`"dispatch":`, c.Policy.Dispatch)
	o.pointer(`"first_token":`, c.Policy.FirstToken)
	o.pointer(`"end":`, c.Policy.End)
	o.null(`"engine":`)
	o.close()
	o.text(`"outcome":`, string(c.Outcome))
	o.number(`"status":`, int64(c.Status))
	o.someText(`"detail":`, c.Detail)
	o.open(`"usage":`)
	o.null(`"raw":`)
	o.pointer(`"prompt":`, c.Usage.Prompt)
	o.pointer(`"completion":`, c.Usage.Completion)
	o.close()
	o.remarks(c.Remarks)
	o.someFlag(`"usage_asked":`, c.UsageAsked)
	o.someFlag(`"context_overflow":`, c.ContextOverflow)
	o.choices(c.Choices)
	o.close()
	if o.err != nil {
		return nil, fmt.Errorf("store: cannot encode the record: %w", o.err)
	}
	return o.b, nil
}

func (o *object) edits(list []record.Edit) {
	if len(list) == 0 {
		return
	}
	o.name(`"edits":`)
	o.b = append(o.b, '[')
	for i := range list {
		e := &list[i]
		o.open("")
		o.text(`"kind":`, string(e.Kind))
		o.text(`"param":`, e.Param)
		o.null(`"from":`)
		o.null(`"to":`)
		o.text(`"why":`, e.Why)
		o.someFlag(`"behaviour":`, e.Behaviour)
		o.close()
	}
	o.b = append(o.b, ']')
}

func (o *object) choices(list []record.Choice) {
	if len(list) == 0 {
		return
	}
	o.name(`"choices":`)
	o.b = append(o.b, '[')
	for i := range list {
		c := &list[i]
		o.open("")
		o.number(`"index":`, int64(c.Index))
		o.text(`"outcome":`, string(c.Outcome))
		o.someText(`"finish_reason":`, c.FinishReason)
		o.someText(`"finish_reason_raw":`, c.FinishReasonRaw)
		o.someFlag(`"has_ids":`, c.HasIDs)
		o.someFlag(`"has_logprobs":`, c.HasLogprobs)
		o.remarks(c.Remarks)
		o.close()
	}
	o.b = append(o.b, ']')
}
