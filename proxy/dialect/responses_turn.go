package dialect

import (
	"encoding/json"

	"captureproxy/internal/jsonscan"
)

// ResponsesTurn is an earlier request of a session and its answer, for [Previous]: what it brought to the conversation, as
// Responses items. The conversation itself is not decoded for it.
type ResponsesTurn struct {
	Previous string // the id of the response that it goes on from, "" for none
	doc      *jsonscan.Doc
	names    toolNames
	sealed   bool
}

// ReadResponsesTurn reads the body of a request that was answered.
func ReadResponsesTurn(body []byte) (*ResponsesTurn, error) {
	doc, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	d := &responsesDecoder{doc: doc, req: &Request{}}
	d.nameTools()
	previous := ""
	if raw := doc.Get("previous_response_id"); !isNull(raw) {
		previous = stringOf(raw)
	}
	return &ResponsesTurn{Previous: previous, doc: doc, names: d.names, sealed: d.sealed()}, nil
}

// Input appends the items of the request to those before it. previous finds what an item refers to.
func (t *ResponsesTurn) Input(before []json.RawMessage, previous Previous) ([]json.RawMessage, error) {
	return ownInput(t.doc, before, previous, nil)
}

// Output returns the items of its answer.
func (t *ResponsesTurn) Output(a Answer, s *Said) []json.RawMessage {
	return responsesOutput(&Request{responses: &responsesReply{body: t.doc, names: t.names, sealed: t.sealed}}, a, s)
}
