package dialect

import (
	"slices"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// googleReply is what answering a Google request needs to remember of it.
type googleReply struct {
	hideThoughts bool // the harness wants no thought parts
}

// googleDecoder translates one request.
type googleDecoder struct {
	translation
	out      *chatBody
	req      *Request
	sampling sampling
	allowed  []string // the functions that toolConfig allows, nil for all
	choice   string   // tool_choice, JSON; "" for none
	format   outputFormat
}

// DecodeGoogle translates the body of :generateContent and :streamGenerateContent to a chat body. The model stands in the
// URL, and so does whether to stream.
//
// All members may be spelled in camel case or with underscores, as protobuf's JSON may. Contents become messages in their
// order, functionResponse parts one tool message each; neighbouring contents of the model are one reply. Calls without an id
// get one, and responses without an id belong to the first call of their name that has none yet.
func DecodeGoogle(body []byte, model string, stream bool) (*Request, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	camelKeys(doc)
	d := &googleDecoder{
		out: newChatBody(len(body) + len(body)/8),
		req: &Request{Dialect: record.Google, Original: body, Stream: stream, Model: model, CapKey: "max_tokens", google: &googleReply{}},
	}
	if !isNull(doc.Get("cachedContent")) {
		return nil, bad("cachedContent", "cached content is kept by the provider, and none is behind this engine: send the contents themselves")
	}
	if err := d.toolConfig(doc.Get("toolConfig")); err != nil {
		return nil, err
	}
	if err := d.history(doc); err != nil {
		return nil, err
	}
	if err := d.tools(doc); err != nil {
		return nil, err
	}
	if err := d.members(doc); err != nil {
		return nil, err
	}
	if err := d.out.finish(d.req); err != nil {
		return nil, err
	}
	d.req.Sampling = d.sampling.object()
	d.req.Edits = d.list()
	slices.Sort(d.req.Cuts)
	return d.req, nil
}

// CountTokensGoogle translates the body of :countTokens: contents alone, or a whole request in generateContentRequest. What
// is to be counted are the result's Messages and Tools.
func CountTokensGoogle(body []byte, model string) (*Request, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	camelKeys(doc)
	if inner := doc.Get("generateContentRequest"); !isNull(inner) {
		body = inner
	}
	return DecodeGoogle(body, model, false)
}

// camelKeys respells a document's keys in camel case, in its index alone.
func camelKeys(doc *jsonscan.Doc) {
	for i := range doc.Members {
		doc.Members[i].Key = camel(doc.Members[i].Key)
	}
}

func camel(key string) string {
	if strings.IndexByte(key, '_') < 0 {
		return key
	}
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		if key[i] == '_' && i > 0 && i+1 < len(key) && 'a' <= key[i+1] && key[i+1] <= 'z' {
			i++
			b.WriteByte(key[i] - 'a' + 'A')
			continue
		}
		b.WriteByte(key[i])
	}
	return b.String()
}

// camelDoc parses an object whose keys may be spelled either way; nil when raw is none.
func camelDoc(raw []byte) *jsonscan.Doc {
	doc, err := jsonscan.ParseDoc(raw)
	if err != nil {
		return nil
	}
	camelKeys(doc)
	return doc
}

// members writes the parameters.
func (d *googleDecoder) members(doc *jsonscan.Doc) error {
	d.out.member("model", jsonscan.AppendQuote(nil, d.req.Model))
	if d.req.Stream {
		d.out.member("stream", []byte("true"))
	}
	switch {
	case d.choice == "":
	case len(d.out.tools) == 0:
		if d.choice != `"none"` {
			d.noteBehaviour("toolConfig", doc.Get("toolConfig"), "there are no functions to choose from")
		}
	default:
		if constrains("tool_choice", []byte(d.choice)) {
			d.req.Constraints = append(d.req.Constraints, "toolConfig")
		}
		d.out.member("tool_choice", []byte(d.choice))
	}
	for i := range doc.Members {
		m := &doc.Members[i]
		raw := m.Raw(doc.Bytes)
		if isNull(raw) || lastMember(doc, m.Key) != m {
			continue
		}
		switch m.Key {
		case "contents", "systemInstruction", "tools", "toolConfig", "cachedContent":
		case "model": // the URL's counts
		case "generationConfig":
			if err := d.generation(raw); err != nil {
				return err
			}
		case "safetySettings", "labels", "serviceTier", "store":
			d.note(m.Key, raw, "a provider's own, which the engine has no use for")
		default:
			d.note(m.Key, raw, "unknown here, and chat has nothing like it")
		}
	}
	return nil
}

// toolConfig reads how functions may be called.
func (d *googleDecoder) toolConfig(raw []byte) *Error {
	config := camelDoc(raw)
	if config == nil {
		return nil
	}
	calling := camelDoc(config.Get("functionCallingConfig"))
	for i := range config.Members {
		if m := &config.Members[i]; m.Key != "functionCallingConfig" && !isNull(m.Raw(config.Bytes)) {
			d.note("toolConfig."+m.Key, m.Raw(config.Bytes), "it is for a provider's built-in tools")
		}
	}
	if calling == nil {
		return nil
	}
	cur := jsonscan.New(calling.Get("allowedFunctionNames"))
	for a := cur.Array(); a.Next(); {
		if name, ok := cur.String(); ok {
			d.allowed = append(d.allowed, name)
		}
	}
	mode := strings.ToUpper(stringOf(calling.Get("mode")))
	switch mode {
	case "ANY":
		d.choice = `"required"`
		if len(d.allowed) == 1 {
			choice := jsonscan.AppendQuote([]byte(`{"type":"function","function":{"name":`), d.allowed[0])
			d.choice = string(append(choice, "}}"...))
			d.allowed = nil
		}
	case "NONE":
		d.choice = `"none"`
		d.allowed = nil
	case "AUTO", "", "MODE_UNSPECIFIED":
		d.allowed = nil
	case "VALIDATED":
		d.noteBehaviour("toolConfig.functionCallingConfig.mode", calling.Get("mode"), "the engine does not hold calls to their schema: the model is free, as with AUTO")
	default:
		return bad("toolConfig.functionCallingConfig.mode", "unknown mode "+mode+": use AUTO, ANY, NONE or VALIDATED")
	}
	if d.allowed != nil {
		d.note("toolConfig.functionCallingConfig.allowedFunctionNames", calling.Get("allowedFunctionNames"), "only the allowed functions are given to the engine")
	}
	return nil
}
