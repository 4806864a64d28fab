// Package dialect knows the wire formats that harnesses speak: one file per dialect decodes its requests, others write
// its errors and the answers that the proxy gives itself.
//
// Decoding looks at a request and never rewrites it: the bytes go on as they came, except for splices that package proxy
// makes at the places found here.
package dialect

import (
	"encoding/json"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Request is a decoded request.
type Request struct {
	Dialect record.Dialect
	// Doc is the body that goes to the engine: the harness's own, or, for a dialect that the engine does not speak, its
	// translation into a chat body.
	Doc *jsonscan.Doc
	// Original is the harness's own body where Doc is a translation, else nil. Edits say what the translation could not
	// express or left out.
	Original []byte
	Edits    []record.Edit

	Stream bool
	Model  string // "" when the request names none
	// Messages and Tools are in OpenAI's chat format, parts of the body where the dialect is chat.
	Messages []json.RawMessage
	Tools    []json.RawMessage
	// Cuts are the ascending offsets in the harness's body at which messages and tools begin and end.
	Cuts []int
	// Sampling is an object of the sampling parameters that the harness sent, as it spelled them.
	Sampling json.RawMessage
	// Constraints names the parameters that mask logits.
	Constraints []string
	// MaxTokens is the harness's output cap and CapKey the parameter that holds it; nil and the dialect's own name when it
	// sent none.
	MaxTokens *int64
	CapKey    string
	Asks      Asks

	responses *responsesReply // of a Responses request
	google    *googleReply    // of a Google request
}

// Translated says that the engine gets another dialect than the harness speaks.
func (r *Request) Translated() bool { return r.Original != nil }

// Wire is the dialect that the engine gets.
func (r *Request) Wire() record.Dialect {
	if r.Translated() {
		return record.OpenAIChat
	}
	return r.Dialect
}

// Asks is what a harness asked for itself of the data that we ask for too; the rest is ours and is taken out again.
type Asks struct {
	TokenIDs bool
	Logprobs bool
	Usage    bool // of a stream
}

// Error is a request that cannot be served as it is.
type Error struct {
	Status int
	Param  string
	Text   string
}

func (e *Error) Error() string { return e.Text }

// samplingParams are the parameters that shape the sampled distribution or its use.
var samplingParams = map[string]bool{
	"temperature": true, "top_p": true, "top_k": true, "min_p": true, "presence_penalty": true, "frequency_penalty": true, "repetition_penalty": true,
	"repeat_penalty": true, "seed": true, "stop": true, "stop_token_ids": true, "n": true, "max_tokens": true, "max_completion_tokens": true, "min_tokens": true,
	"logit_bias": true, "ignore_eos": true, "reasoning_effort": true, "length_penalty": true, "best_of": true, "use_beam_search": true,
}

// decode reads what the OpenAI dialects share.
func decode(d record.Dialect, body []byte) (*Request, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &Request{Dialect: d, Doc: doc, CapKey: "max_tokens"}
	sampling := append(make([]byte, 0, 128), '{')
	for i := range doc.Members {
		m := &doc.Members[i]
		raw := m.Raw(body)
		cur := jsonscan.New(raw)
		if samplingParams[m.Key] && string(raw) != "null" && doc.Counts(i) {
			if len(sampling) > 1 {
				sampling = append(sampling, ',')
			}
			sampling = jsonscan.AppendQuote(sampling, m.Key)
			sampling = append(append(sampling, ':'), raw...)
		}
		switch m.Key {
		case "model":
			r.Model, _ = cur.String()
		case "stream":
			r.Stream, _ = cur.Bool()
		case "max_tokens", "max_completion_tokens":
			if n, ok := cur.Int(); ok {
				r.MaxTokens, r.CapKey = &n, m.Key
			}
		case "return_token_ids":
			r.Asks.TokenIDs, _ = cur.Bool()
		case "stream_options":
			r.Asks.Usage = asksUsage(raw)
		}
		if constrains(m.Key, raw) && doc.Counts(i) {
			r.Constraints = append(r.Constraints, m.Key)
		}
	}
	r.Sampling = append(sampling, '}')
	return r, nil
}

// asksUsage reads stream_options.
func asksUsage(options []byte) (asks bool) {
	cur := jsonscan.New(options)
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == "include_usage" {
			asks, _ = cur.Bool()
		}
	}
	return asks
}

// constrains says whether a parameter makes the engine mask logits (SPEC 3): the captured logprobs are then not those of
// the policy alone.
func constrains(key string, raw []byte) bool {
	s := string(raw)
	if s == "null" {
		return false
	}
	switch key {
	case "response_format":
		return typeOf(raw) != "text"
	case "tool_choice":
		return s != `"none"` && s != `"auto"`
	case "min_tokens":
		return s != "0"
	case "logit_bias":
		return len(raw) > 0 && raw[0] == '{' && !emptyObject(raw)
	case "allowed_token_ids", "structured_outputs", "bad_words":
		return s != "[]"
	case "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding", "grammar", "json_schema", "regex", "ebnf":
		return true
	}
	return false
}

func emptyObject(raw []byte) bool {
	cur := jsonscan.New(raw)
	o := cur.Object()
	return !o.Next()
}

// typeOf returns the "type" member of an object.
func typeOf(raw []byte) string {
	cur := jsonscan.New(raw)
	kind := ""
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == "type" {
			kind, _ = cur.String()
		}
	}
	return kind
}

// elements returns the elements of a top-level array and adds their borders to the cuts.
func (r *Request) elements(key string) []json.RawMessage {
	for i := len(r.Doc.Members) - 1; i >= 0; i-- {
		m := &r.Doc.Members[i]
		if m.Key != key {
			continue
		}
		raw := m.Raw(r.Doc.Bytes)
		cur := jsonscan.New(raw)
		var out []json.RawMessage
		for a := cur.Array(); a.Next(); {
			el := cur.Raw()
			out = append(out, el)
			r.Cuts = append(r.Cuts, m.Value+a.Value, m.Value+a.Value+len(el))
		}
		return out
	}
	return nil
}
