package dialect

import (
	"strconv"
	"strings"

	"captureproxy/internal/jsonscan"
)

// outputFormat is what generationConfig says about the form of the answer.
type outputFormat struct {
	mime      string
	mimeKey   string
	schema    []byte // as JSON Schema
	schemaKey string
}

// googleParams are the parameters of generationConfig that chat has under another name.
var googleParams = map[string]string{
	"maxOutputTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "topK": "top_k", "stopSequences": "stop",
	"seed": "seed", "presencePenalty": "presence_penalty", "frequencyPenalty": "frequency_penalty",
}

// generation translates generationConfig.
func (d *googleDecoder) generation(raw []byte) error {
	config, err := jsonscan.ParseDoc(raw)
	if err != nil {
		return bad("generationConfig", "generationConfig must be an object")
	}
	spelled := make([]string, len(config.Members))
	for i := range config.Members {
		spelled[i] = config.Members[i].Key
	}
	camelKeys(config)
	for i := range config.Members {
		m := &config.Members[i]
		value := m.Raw(config.Bytes)
		if isNull(value) || lastMember(config, m.Key) != m {
			continue
		}
		if param, known := googleParams[m.Key]; known {
			d.sampling.add(spelled[i], value)
			d.param(param, value)
			continue
		}
		if err := d.special(m.Key, spelled[i], value); err != nil {
			return err
		}
	}
	return d.responseFormat()
}

// param writes a parameter. Protobuf's JSON may spell numbers as strings.
func (d *googleDecoder) param(param string, value []byte) {
	value = number(value)
	if param == "max_tokens" {
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			d.req.MaxTokens = &n
		}
	}
	if param == "stop" && string(value) == "[]" {
		return
	}
	d.out.member(param, value)
}

// number is a number that may be spelled as a string; anything else stays as it is.
func number(raw []byte) []byte {
	if text := inside(raw); len(text) > 0 {
		cur := jsonscan.New(text)
		if b := cur.Peek(); b == '-' || '0' <= b && b <= '9' {
			if cur.Skip(); cur.End() == nil {
				return text
			}
		}
	}
	return raw
}

// special translates the parameters that are no plain numbers.
func (d *googleDecoder) special(key, spelled string, value []byte) error {
	path := "generationConfig." + key
	switch key {
	case "candidateCount":
		d.sampling.add(spelled, value)
		value = number(value)
		if string(value) == "1" || string(value) == "0" {
			return nil
		}
		if d.req.Stream {
			return bad(path, "a stream has one candidate: ask for several without streaming")
		}
		d.out.member("n", value)
	case "responseMimeType":
		d.format.mime, d.format.mimeKey = stringOf(value), path
	case "responseSchema":
		schema, err := jsonSchema(value)
		if err != nil {
			return bad(path, "responseSchema is no schema: "+err.Error())
		}
		d.format.schema, d.format.schemaKey = schema, path
	case "responseJsonSchema", "_responseJsonSchema":
		d.format.schema, d.format.schemaKey = value, path
	case "thinkingConfig":
		d.thinking(path, spelled, value)
	case "responseModalities":
		if strings.ToUpper(string(value)) != `["TEXT"]` && string(value) != "[]" {
			d.noteBehaviour(path, value, "the engine answers with text")
		}
	case "responseLogprobs", "logprobs":
		d.note(path, value, "logprobs are recorded, not passed on in a translated answer")
	default:
		d.note(path, value, "chat has nothing like it")
	}
	return nil
}

// thinking takes what says whether thoughts are shown; how much to think has no common word in chat.
func (d *googleDecoder) thinking(path, spelled string, value []byte) {
	d.sampling.add(spelled, value)
	config := camelDoc(value)
	if config == nil {
		return
	}
	for i := range config.Members {
		m := &config.Members[i]
		raw := m.Raw(config.Bytes)
		switch {
		case isNull(raw):
		case m.Key == "includeThoughts":
			d.req.google.hideThoughts = string(raw) == "false"
		default:
			d.noteBehaviour(path+"."+m.Key, raw, "how much to think has no common word in chat: the engine does as it is set up")
		}
	}
}

// responseFormat writes what was asked for the form of the answer. It is forced, so it constrains.
func (d *googleDecoder) responseFormat() error {
	f := &d.format
	switch {
	case f.schema != nil && (f.mime == "" || f.mime == "application/json"):
		format := append([]byte(`{"type":"json_schema","json_schema":{"name":"response","schema":`), f.schema...)
		d.out.member("response_format", append(format, "}}"...))
		d.req.Constraints = append(d.req.Constraints, f.schemaKey)
	case f.mime == "application/json":
		d.out.member("response_format", []byte(`{"type":"json_object"}`))
		d.req.Constraints = append(d.req.Constraints, f.mimeKey)
	case f.mime == "text/plain" || f.mime == "":
	default:
		return bad(f.mimeKey, "answers of type "+f.mime+" cannot be forced on this engine: use text/plain or application/json")
	}
	return nil
}
