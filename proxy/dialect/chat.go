package dialect

import (
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// DecodeChat decodes the body of POST /v1/chat/completions.
func DecodeChat(body []byte) (*Request, error) {
	r, err := decode(record.OpenAIChat, body)
	if err != nil {
		return nil, err
	}
	r.Messages = r.elements("messages")
	r.Tools = r.elements("tools")
	if r.Doc.Get("tools") == nil {
		r.Tools = r.elements("functions") // the older spelling
	}
	slices.Sort(r.Cuts)
	cur := jsonscan.New(r.Doc.Get("logprobs"))
	r.Asks.Logprobs, _ = cur.Bool()
	return r, nil
}
