package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"captureproxy/internal/record"
)

// A record is stored as JSON, so that fields can be added to it, with its raw JSON fields beside it, so that they come
// back byte for byte (encoding/json would respell them).

// eachCallRaw passes the raw JSON fields of c that the JSON form would hold through visit, in a fixed order.
func eachCallRaw(c *record.Call, visit func(json.RawMessage) json.RawMessage) {
	c.RequestedSampling = visit(c.RequestedSampling)
	c.SubmittedSampling = visit(c.SubmittedSampling)
	eachEditRaw(c.Edits, visit)
	c.Policy.Engine = visit(c.Policy.Engine)
	c.Usage.Raw = visit(c.Usage.Raw)
	for i := range c.Choices {
		c.Choices[i].StopReason = visit(c.Choices[i].StopReason)
	}
}

// eachSessionRaw does the same for a session.
func eachSessionRaw(s *record.Session, visit func(json.RawMessage) json.RawMessage) {
	s.Spec.Run = visit(s.Spec.Run)
	s.Spec.Sampling = visit(s.Spec.Sampling)
	s.Spec.EvalSampling = visit(s.Spec.EvalSampling)
	eachEditRaw(s.Engine.ParamEdits, visit)
	for _, name := range slices.Sorted(maps.Keys(s.Metadata)) {
		s.Metadata[name] = visit(s.Metadata[name])
	}
}

func eachEditRaw(edits []record.Edit, visit func(json.RawMessage) json.RawMessage) {
	for i := range edits {
		edits[i].From = visit(edits[i].From)
		edits[i].To = visit(edits[i].To)
	}
}

// appendCallRecord writes a call's record. It only reads c.
func appendCallRecord(b []byte, c *record.Call) ([]byte, error) {
	var room [2048]byte
	text, err := appendCallJSON(room[:0], c)
	if err != nil {
		return nil, err
	}
	var raws [32]json.RawMessage
	list := callRaws(raws[:0], c)
	n := len(text) + 2*binary.MaxVarintLen32
	for _, raw := range list {
		n += len(raw) + binary.MaxVarintLen32
	}
	return appendRaws(appendBytes(slices.Grow(b, n), text), list), nil
}

// callRaws lists the raw fields in the order of eachCallRaw.
func callRaws(list []json.RawMessage, c *record.Call) []json.RawMessage {
	list = append(list, c.RequestedSampling, c.SubmittedSampling)
	for i := range c.Edits {
		list = append(list, c.Edits[i].From, c.Edits[i].To)
	}
	list = append(list, c.Policy.Engine, c.Usage.Raw)
	for i := range c.Choices {
		list = append(list, c.Choices[i].StopReason)
	}
	return list
}

func appendSessionRecord(b []byte, s *record.Session) ([]byte, error) {
	bare := *s
	bare.Engine.ParamEdits = slices.Clone(s.Engine.ParamEdits)
	bare.Metadata = maps.Clone(s.Metadata)
	var raws []json.RawMessage
	eachSessionRaw(&bare, take(&raws))
	return appendRecord(b, &bare, raws)
}

// take moves raws out of a record.
func take(raws *[]json.RawMessage) func(json.RawMessage) json.RawMessage {
	return func(raw json.RawMessage) json.RawMessage {
		*raws = append(*raws, raw)
		return nil
	}
}

func appendRecord(b []byte, v any, raws []json.RawMessage) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("store: cannot encode the record: %w", err)
	}
	return appendRaws(appendBytes(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))), raws), nil
}

func appendRaws(b []byte, raws []json.RawMessage) []byte {
	b = binary.AppendUvarint(b, uint64(len(raws)))
	for _, raw := range raws {
		if raw == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(raw))+1)
		b = append(b, raw...)
	}
	return b
}

// record reads what appendRecord wrote into v; each is the function that passes v's raw fields through a visitor.
func (r *reader) record(v any, each func(func(json.RawMessage) json.RawMessage)) {
	text := r.lengthAndBytes()
	n := r.count()
	if r.err != nil {
		return
	}
	if err := json.Unmarshal(text, v); err != nil {
		r.b, r.err = nil, fmt.Errorf("%w: %w", errPayload, err)
		return
	}
	each(func(json.RawMessage) json.RawMessage {
		n--
		length := r.number()
		if length == 0 {
			return nil
		}
		return append(json.RawMessage{}, r.bytes(length-1)...)
	})
	if n != 0 {
		r.fail()
	}
}

func (r *reader) callRecord() *record.Call {
	c := new(record.Call)
	r.record(c, func(visit func(json.RawMessage) json.RawMessage) { eachCallRaw(c, visit) })
	return c
}

func (r *reader) sessionRecord() *record.Session {
	s := new(record.Session)
	r.record(s, func(visit func(json.RawMessage) json.RawMessage) { eachSessionRaw(s, visit) })
	return s
}

// sessionPayload is the payload of a session frame: how many calls the session has so far, and its record.
func sessionPayload(b []byte, calls int, encoded []byte) []byte {
	b = binary.AppendUvarint(b, uint64(calls))
	return append(b, encoded...)
}

func parseSessionPayload(payload []byte) (calls int, s *record.Session, err error) {
	r := reader{b: payload}
	calls = r.number()
	s = r.sessionRecord()
	return calls, s, r.err
}
