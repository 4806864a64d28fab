package dialect

import (
	"net/http"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// DecodeAnthropic decodes the body of POST /v1/messages and translates it to a chat body.
func DecodeAnthropic(body []byte) (*Request, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	t := &fromAnthropic{doc: doc, chat: newChatBody(len(body) + len(body)/8 + 256)}
	t.r = &Request{Dialect: record.AnthropicMessages, Original: body, CapKey: "max_tokens"}
	for _, step := range []func() *Error{t.system, t.messages, t.tools, t.parameters} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := t.chat.finish(t.r); err != nil {
		return nil, err
	}
	slices.Sort(t.r.Cuts)
	t.r.Sampling = t.sampling.object()
	t.r.Edits = t.list()
	return t.r, nil
}

// CountTokensAnthropic decodes the body of POST /v1/messages/count_tokens: the prompt of a request without the parameters
// of an answer. What is to be counted are the result's Messages and Tools, which is all that its Doc holds beside a model.
func CountTokensAnthropic(body []byte) (*Request, error) {
	return DecodeAnthropic(body)
}

// fromAnthropic is a translation at work.
type fromAnthropic struct {
	translation
	sampling sampling
	doc      *jsonscan.Doc
	r        *Request
	chat     *chatBody
	// pending is the last message, which the next one may belong to.
	pending *chatMessage
	// foreignTools are the names of tools that were left out.
	foreignTools []string
}

func bad(param, text string) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Text: text}
}

// elements visits the elements of a top-level list and notes their borders.
func (t *fromAnthropic) elements(key string, visit func(i int, raw []byte) *Error) *Error {
	for at := len(t.doc.Members) - 1; at >= 0; at-- {
		m := &t.doc.Members[at]
		if m.Key != key {
			continue
		}
		cur := jsonscan.New(m.Raw(t.doc.Bytes))
		i := 0
		for a := cur.Array(); a.Next(); i++ {
			raw := cur.Raw()
			t.r.Cuts = append(t.r.Cuts, m.Value+a.Value, m.Value+a.Value+len(raw))
			if err := visit(i, raw); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// parameters translates everything but the conversation and the tools.
func (t *fromAnthropic) parameters() *Error {
	last := make(map[string]int, len(t.doc.Members)) // of a repeated key the last one counts
	for i := range t.doc.Members {
		last[t.doc.Members[i].Key] = i
	}
	for i := range t.doc.Members {
		m := &t.doc.Members[i]
		raw := m.Raw(t.doc.Bytes)
		if isNull(raw) || last[m.Key] != i {
			continue
		}
		if err := t.parameter(m.Key, raw); err != nil {
			return err
		}
	}
	return nil
}

func (t *fromAnthropic) parameter(key string, raw []byte) *Error {
	cur := jsonscan.New(raw)
	switch key {
	case "system", "messages", "tools":
	case "model":
		t.r.Model, _ = cur.String()
		t.chat.member(key, raw)
	case "stream":
		t.r.Stream, _ = cur.Bool()
		t.chat.member(key, raw)
	case "max_tokens":
		if n, ok := cur.Int(); ok {
			t.r.MaxTokens = &n
		}
		t.sampling.add(key, raw)
		t.chat.member(key, raw)
	case "temperature", "top_p", "top_k":
		t.sampling.add(key, raw)
		t.chat.member(key, raw)
	case "stop_sequences":
		if a := cur.Array(); a.Next() { // an empty list says nothing
			t.sampling.add(key, raw)
			t.chat.member("stop", raw)
		}
	case "tool_choice":
		return t.toolChoice(raw)
	case "output_config":
		for o := cur.Object(); o.Next(); {
			switch value := cur.Raw(); {
			case isNull(value):
			case string(o.Key) == "format":
				if err := t.outputFormat("output_config.format", value); err != nil {
					return err
				}
			default:
				t.note("output_config."+string(o.Key), value, whyUnknown)
			}
		}
	case "output_format": // the older spelling
		return t.outputFormat(key, raw)
	case "thinking":
		t.note(key, raw, "the chat API has no switch for thinking: the engine thinks as its template says")
	case "cache_control":
		t.note(key, raw, whyCache)
	case "metadata":
		t.note(key, raw, "it names the user to the provider")
	case "context_management":
		t.note(key, raw, "it asks the provider to shorten the conversation; the engine sees the conversation whole")
	default:
		t.note(key, raw, whyUnknown)
	}
	return nil
}

const (
	whyUnknown = "the chat API has nothing like it"
	whyCache   = "it marks what to cache, which changes no answer"
)

// outputFormat translates a forced output format. One that chat cannot force is refused: without it the answer would be
// another.
func (t *fromAnthropic) outputFormat(param string, raw []byte) *Error {
	var kind string
	var schema []byte
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "type":
			kind, _ = cur.String()
		case "schema":
			schema = cur.Raw()
		}
	}
	if kind != "json_schema" || isNull(schema) {
		return bad(param, "the engine behind this proxy speaks OpenAI's chat dialect, which can force an output format only by type json_schema with a schema")
	}
	t.chat.member("response_format", slices.Concat([]byte(`{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":`), schema, []byte("}}")))
	t.r.Constraints = append(t.r.Constraints, param)
	return nil
}
