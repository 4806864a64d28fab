package dialect

import (
	"encoding/json"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// DecodeCompletions decodes the body of POST /v1/completions. A text prompt is recorded as one user message; prompts of
// token ids have no text, and of a batch of texts each is a message.
func DecodeCompletions(body []byte) (*Request, error) {
	r, err := decode(record.OpenAICompletions, body)
	if err != nil {
		return nil, err
	}
	prompt := r.Doc.Get("prompt")
	switch cur := jsonscan.New(prompt); cur.Peek() {
	case '"':
		r.Messages = []json.RawMessage{userMessage(prompt)}
	case '[':
		for _, el := range r.elements("prompt") {
			if el[0] == '"' {
				r.Messages = append(r.Messages, userMessage(el))
			}
		}
		if len(r.Messages) == 0 {
			r.Cuts = nil // a list of ids: its elements are numbers
		}
	}
	slices.Sort(r.Cuts)
	cur := jsonscan.New(r.Doc.Get("logprobs"))
	_, r.Asks.Logprobs = cur.Int() // 0 asks for the sampled token's
	return r, nil
}

func userMessage(quoted []byte) json.RawMessage {
	return slices.Concat([]byte(`{"role":"user","content":`), quoted, []byte{'}'})
}
