package dialect

import (
	"encoding/json"
	"net/http"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Previous finds an earlier response of the same session: its whole input and then its output, as Responses items
// ([ResponsesTurn]).
type Previous func(responseID string) (items []json.RawMessage, ok bool)

// responsesReply is what answering a Responses request needs to remember of it.
type responsesReply struct {
	body   *jsonscan.Doc // the harness's own, whose settings an answer repeats
	names  toolNames
	sealed bool // reasoning goes out with encrypted_content
}

// responsesDecoder translates one request.
type responsesDecoder struct {
	translation
	doc      *jsonscan.Doc
	out      *chatBody
	req      *Request
	names    toolNames
	allowed  map[string]bool // flat names that tool_choice allows; nil for all
	sampling sampling
	previous Previous
}

// DecodeResponses translates the body of POST /v1/responses to a chat body. previous may be nil: then no earlier response
// is known.
//
// Items become messages in their order. What one reply of the engine came out as (reasoning, message, calls) becomes one
// assistant message again. `instructions` and the system and developer messages that follow it at the start become one
// leading system message. Tools of a namespace become functions named by [flatName], custom tools functions with one string,
// `input`; calls of them come back as the harness expects them.
func DecodeResponses(body []byte, previous Previous) (*Request, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	d := &responsesDecoder{
		doc: doc, out: newChatBody(len(body) + len(body)/8), previous: previous,
		req: &Request{Dialect: record.OpenAIResponses, Original: body, CapKey: "max_tokens"},
	}
	if err := d.refuse(); err != nil {
		return nil, err
	}
	tools := d.nameTools()
	choice, err := d.toolChoice()
	if err != nil {
		return nil, err
	}
	if err := d.history(); err != nil {
		return nil, err
	}
	d.tools(tools)
	if err := d.members(choice); err != nil {
		return nil, err
	}
	if err := d.out.finish(d.req); err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Text: "the request cannot be translated: " + err.Error()}
	}
	d.req.Sampling = d.sampling.object()
	d.req.Edits = d.list()
	slices.Sort(d.req.Cuts)
	d.req.responses = &responsesReply{body: doc, names: d.names, sealed: d.sealed()}
	return d.req, nil
}

// refuse names what cannot be left out without changing what the answer means.
func (d *responsesDecoder) refuse() *Error {
	if string(d.doc.Get("background")) == "true" {
		return bad("background", "background responses are not offered here: the engine answers in one call. Leave `background` out")
	}
	if !isNull(d.doc.Get("conversation")) {
		return bad("conversation", "conversations are kept by the provider, and none is behind this engine: send the items in `input`, or use `previous_response_id`")
	}
	if !isNull(d.doc.Get("prompt")) {
		return bad("prompt", "prompt templates are kept by the provider, and none is behind this engine: send the text in `instructions` and `input`")
	}
	return nil
}

// sealed says whether reasoning goes out sealed: when the harness asks for it, and when it says that it keeps the history
// itself, since nothing else would bring the reasoning back.
func (d *responsesDecoder) sealed() bool {
	if string(d.doc.Get("store")) == "false" {
		return true
	}
	cur := jsonscan.New(d.doc.Get("include"))
	found := false
	for a := cur.Array(); a.Next(); {
		s, _ := cur.String()
		found = found || s == "reasoning.encrypted_content"
	}
	return found
}

// responsesHints are members for a provider's bookkeeping, which an engine behind a chat body has no use for.
var responsesHints = map[string]bool{
	"metadata": true, "client_metadata": true, "prompt_cache_key": true, "prompt_cache_retention": true, "prompt_cache_options": true,
	"safety_identifier": true, "service_tier": true, "user": true,
}

// members translates the parameters, in the order in which the harness sent them.
func (d *responsesDecoder) members(choice []byte) error {
	hasTools := len(d.out.tools) > 0
	for i := range d.doc.Members {
		m := &d.doc.Members[i]
		raw := m.Raw(d.doc.Bytes)
		if isNull(raw) || d.overridden(i) {
			continue
		}
		switch key := m.Key; {
		case key == "model":
			d.req.Model = stringOf(raw)
			d.out.member("model", orEmpty(raw))
		case key == "stream":
			if d.req.Stream = string(raw) == "true"; d.req.Stream {
				d.out.member("stream", raw)
			}
		case key == "max_output_tokens":
			d.maxTokens(raw)
		case key == "reasoning":
			d.reasoning(raw)
		case key == "text":
			if err := d.text(raw); err != nil {
				return err
			}
		case key == "parallel_tool_calls":
			if hasTools {
				d.out.member(key, raw)
			}
		case key == "tool_choice":
			d.writeChoice(choice, raw, hasTools)
		case key == "include":
			d.include(raw)
		case key == "truncation":
			if string(raw) != `"disabled"` {
				d.noteBehaviour(key, raw, "chat has no truncation: the engine refuses what does not fit")
			}
		case key == "max_tool_calls":
			d.noteBehaviour(key, raw, "it limits a provider's built-in tools, which the engine does not have")
		case key == "top_logprobs":
			d.note(key, raw, "logprobs are recorded, not passed on in a translated answer")
		case responsesHints[key]:
			d.note(key, raw, "a provider's bookkeeping, which the engine has no use for")
		case samplingParams[key]:
			d.sampling.add(key, raw)
			d.out.member(key, raw)
		case constrains(key, raw):
			d.req.Constraints = append(d.req.Constraints, key)
			d.out.member(key, raw)
		case key == "chat_template_kwargs": // an engine's own, which its chat endpoint takes too
			d.out.member(key, raw)
		case responsesDone[key]:
		default:
			d.note(key, raw, "unknown here, and chat has nothing like it")
		}
	}
	return nil
}

// responsesDone are the members that are dealt with elsewhere, or whose meaning needs nothing of the engine.
var responsesDone = map[string]bool{
	"input": true, "instructions": true, "tools": true, "previous_response_id": true, "store": true, "background": true, "stream_options": true,
}

// overridden says whether a later member of the same key counts instead of the i-th.
func (d *responsesDecoder) overridden(i int) bool {
	for _, later := range d.doc.Members[i+1:] {
		if later.Key == d.doc.Members[i].Key {
			return true
		}
	}
	return false
}

func (d *responsesDecoder) maxTokens(raw []byte) {
	cur := jsonscan.New(raw)
	if n, ok := cur.Int(); ok {
		d.req.MaxTokens = &n
	}
	d.sampling.add("max_output_tokens", raw)
	d.out.member("max_tokens", raw)
}

func (d *responsesDecoder) reasoning(raw []byte) {
	d.sampling.add("reasoning", raw)
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		key := string(o.Key)
		value := cur.Raw()
		switch {
		case isNull(value):
		case key == "effort":
			d.out.member("reasoning_effort", value)
		case key == "summary" || key == "generate_summary":
			d.note("reasoning."+key, value, "the engine writes no summary: the reasoning itself is passed on")
		default:
			d.note("reasoning."+key, value, "chat has nothing like it")
		}
	}
}

// text translates the output format and the verbosity.
func (d *responsesDecoder) text(raw []byte) error {
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		key := string(o.Key)
		value := cur.Raw()
		switch {
		case isNull(value):
		case key == "format":
			format, err := responseFormat(value)
			if err != nil {
				return err
			}
			if format != nil {
				d.req.Constraints = append(d.req.Constraints, "text.format")
				d.out.member("response_format", format)
			}
		case key == "verbosity":
			d.out.member("verbosity", value)
		default:
			d.note("text."+key, value, "chat has nothing like it")
		}
	}
	return nil
}

// responseFormat translates text.format; nil for plain text.
func responseFormat(raw []byte) ([]byte, error) {
	switch kind := typeOf(raw); kind {
	case "text", "":
		return nil, nil
	case "json_object":
		return []byte(`{"type":"json_object"}`), nil
	case "json_schema":
		out := []byte(`{"type":"json_schema","json_schema":{`)
		first := len(out)
		cur := jsonscan.New(raw)
		for o := cur.Object(); o.Next(); {
			key := string(o.Key)
			value := cur.Raw()
			if key == "type" || isNull(value) {
				continue
			}
			if len(out) > first {
				out = append(out, ',')
			}
			out = append(jsonscan.AppendQuote(out, key), ':')
			out = append(out, value...)
		}
		return append(out, "}}"...), nil
	default:
		return nil, bad("text.format", "the output format "+kind+" cannot be forced on this engine: use json_schema, json_object or text")
	}
}

func (d *responsesDecoder) include(raw []byte) {
	cur := jsonscan.New(raw)
	for a := cur.Array(); a.Next(); {
		value := cur.Raw()
		if string(value) != `"reasoning.encrypted_content"` {
			d.note("include[]", value, "a translated answer does not carry it")
		}
	}
}
