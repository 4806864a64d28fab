package dialect

import (
	"encoding/json"
	"fmt"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Native makes a request that goes to an engine of its own dialect: its bytes as they came. What they say is decoded for the
// record alone, so a request that could not be translated is no error here; it is then recorded without its messages. model
// and stream are what Google's URL says.
func Native(d record.Dialect, body []byte, model string, stream bool, previous Previous) (*Request, error) {
	own, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	var r *Request
	switch d {
	case record.AnthropicMessages:
		r, err = DecodeAnthropic(body)
	case record.OpenAIResponses:
		r, err = DecodeResponses(body, func(id string) ([]json.RawMessage, bool) { // the engine knows what we do not
			items, _ := previous(id)
			return items, true
		})
	case record.Google:
		r, err = DecodeGoogle(body, model, stream)
	default:
		return nil, fmt.Errorf("%s has no native form of its own", d)
	}
	if err != nil {
		r = &Request{Dialect: d, Model: model, Stream: stream, Sampling: json.RawMessage("{}"), responses: &responsesReply{body: own}, google: &googleReply{}}
		if d != record.Google {
			r.Model = stringOf(own.Get("model"))
			r.Stream = string(own.Get("stream")) == "true"
		}
	}
	r.Doc, r.Original, r.Edits = own, nil, nil
	r.cap()
	return r, nil
}

// cap finds the output cap in the harness's own body.
func (r *Request) cap() {
	doc := r.Doc
	switch r.Dialect {
	case record.AnthropicMessages:
		r.CapKey = "max_tokens"
	case record.OpenAIResponses:
		r.CapKey = "max_output_tokens"
	case record.Google:
		r.CapKey = "maxOutputTokens"
		config := GoogleConfig(r.Doc)
		if doc = config; doc.Get("max_output_tokens") != nil { // Google reads both spellings
			r.CapKey = "max_output_tokens"
		}
	}
	r.MaxTokens = nil
	cur := jsonscan.New(doc.Get(r.CapKey))
	if n, ok := cur.Int(); ok {
		r.MaxTokens = &n
	}
}

// GoogleConfig is a Google request's generationConfig, empty where it has none.
func GoogleConfig(body *jsonscan.Doc) *jsonscan.Doc {
	for _, key := range []string{"generationConfig", "generation_config"} {
		if doc, err := jsonscan.ParseDoc(body.Get(key)); err == nil {
			return doc
		}
	}
	return &jsonscan.Doc{}
}

// Reader reads an answer in a dialect other than chat and says it again as chat chunks, for the record: what reaches the
// harness are the engine's own bytes.
type Reader interface {
	// Event reads the data of one event (an object of Google's array). chunk is what it says as one chat chunk, nil for
	// nothing; it is valid until the next call. last says that the answer ends with this event, or, with Google's, that it
	// has come to its last part.
	Event(data []byte) (chunk []byte, last bool)
	// Whole reads an answer in one piece. chunk is nil when it is no answer of the dialect.
	Whole(body []byte) (chunk []byte)
}

// NewReader returns a reader of answers in a dialect.
func NewReader(d record.Dialect) Reader {
	switch d {
	case record.AnthropicMessages:
		return &anthropicReader{}
	case record.OpenAIResponses:
		return &responsesReader{spoken: map[int]bool{}}
	case record.Google:
		return &googleReader{calls: map[int]int{}}
	}
	return nil
}

// nativeDelta is what one event adds to one choice.
type nativeDelta struct {
	index              int
	text, reasoning    string
	refusal            string
	calls              []nativeCall
	finish, stopString string
}

type nativeCall struct {
	index     int
	id, name  string
	custom    bool
	arguments string
}

// appendChunk writes deltas as one chat chunk. usage and fault are JSON, nil for none.
func appendChunk(b []byte, id, model string, deltas []nativeDelta, usage, fault []byte) []byte {
	b = append(b[:0], `{"object":"chat.completion.chunk"`...)
	if id != "" {
		b = jsonscan.AppendQuote(append(b, `,"id":`...), id)
	}
	if model != "" {
		b = jsonscan.AppendQuote(append(b, `,"model":`...), model)
	}
	b = append(b, `,"choices":[`...)
	for i := range deltas {
		if i > 0 {
			b = append(b, ',')
		}
		b = deltas[i].append(b)
	}
	b = append(b, ']')
	if usage != nil {
		b = append(append(b, `,"usage":`...), usage...)
	}
	if fault != nil {
		b = append(append(b, `,"error":`...), fault...)
	}
	return append(b, '}')
}

func (d *nativeDelta) append(b []byte) []byte {
	b = fmt.Appendf(b, `{"index":%d,"delta":{"role":"assistant"`, d.index)
	for _, f := range []struct{ name, text string }{{"content", d.text}, {"reasoning_content", d.reasoning}, {"refusal", d.refusal}} {
		if f.text != "" {
			b = fmt.Appendf(b, `,"%s":`, f.name)
			b = jsonscan.AppendQuote(b, f.text)
		}
	}
	for i := range d.calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		b = d.calls[i].append(b)
	}
	if len(d.calls) > 0 {
		b = append(b, ']')
	}
	b = append(b, '}')
	if d.finish != "" {
		b = jsonscan.AppendQuote(append(b, `,"finish_reason":`...), d.finish)
	}
	if d.stopString != "" {
		b = jsonscan.AppendQuote(append(b, `,"stop_reason":`...), d.stopString)
	}
	return append(b, '}')
}

func (c *nativeCall) append(b []byte) []byte {
	b = fmt.Appendf(b, `{"index":%d`, c.index)
	if c.id != "" {
		b = jsonscan.AppendQuote(append(b, `,"id":`...), c.id)
	}
	kind, field := "function", "arguments"
	if c.custom {
		kind, field = "custom", "input"
	}
	b = fmt.Appendf(b, `,"type":"%s","%s":{`, kind, kind)
	if c.name != "" {
		b = jsonscan.AppendQuote(append(b, `"name":`...), c.name)
		b = append(b, ',')
	}
	b = fmt.Appendf(b, `"%s":`, field)
	b = jsonscan.AppendQuote(b, c.arguments)
	return append(b, "}}"...)
}

// withCounts is a provider's usage object under the names that chat has for its counts; its own members stay beside them.
func withCounts(raw []byte, prompt, completion int64) []byte {
	counts := fmt.Appendf(nil, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d`, prompt, completion, prompt+completion)
	doc, err := jsonscan.ParseDoc(raw)
	if err != nil || len(doc.Members) == 0 {
		return append(counts, '}')
	}
	return slices.Concat(counts, []byte(","), raw[1:])
}
