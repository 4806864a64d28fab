package dialect

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
)

type failer interface {
	Helper()
	Fatalf(string, ...any)
}

// received is what OpenAI's own client makes of a stream.
type received struct {
	responses.Response
	snapshot responses.ResponseAccumulatorSnapshot // what the deltas alone add up to
	events   []string
}

// receive reads a stream with OpenAI's own client and checks every event: its type is known, nothing that the client's types
// require is missing, and the events are numbered.
func receive(t failer, stream []byte) *received {
	t.Helper()
	got := &received{}
	var all, deltas responses.ResponseAccumulator
	next := ssestream.NewStream[responses.ResponsesServerEventUnion](sse(stream), nil)
	for next.Next() {
		e := next.Current()
		var known responses.ResponseStreamEventUnion
		if err := json.Unmarshal([]byte(e.RawJSON()), &known); err != nil {
			t.Fatalf("%s: %v", e.RawJSON(), err)
		}
		required(t, reflect.ValueOf(known), e.RawJSON())
		if known.SequenceNumber != int64(len(got.events)) {
			t.Fatalf("event %d has number %d", len(got.events), known.SequenceNumber)
		}
		got.events = append(got.events, e.Type)
		if err := all.AddEvent(e); err != nil && e.Type != "error" {
			t.Fatalf("%s: %v", e.RawJSON(), err)
		}
		if !strings.HasSuffix(e.Type, ".done") && e.Type != "response.completed" && e.Type != "response.incomplete" {
			if err := deltas.AddEvent(e); err != nil && e.Type != "error" {
				t.Fatalf("%s: %v", e.RawJSON(), err)
			}
		}
	}
	if err := next.Err(); err != nil {
		t.Fatalf("%v", err)
	}
	got.snapshot = deltas.Snapshot()
	if slices.Contains(got.events, "error") {
		return got
	}
	r, err := all.ReconstructedResponse()
	if err != nil {
		t.Fatalf("%v in %v", err, got.events)
	}
	got.Response = *r
	return got
}

func sse(stream []byte) ssestream.Decoder {
	return ssestream.NewDecoder(&http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(stream))})
}

// required checks that raw has the members that the client's types call required, all the way down.
func required(t failer, v reflect.Value, raw string) {
	t.Helper()
	if as := v.MethodByName("AsAny"); as.IsValid() {
		v = as.Call(nil)[0].Elem()
		if !v.IsValid() {
			t.Fatalf("of no known type: %s", raw)
		}
	}
	if raw == "null" {
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal([]byte(raw), &items) == nil && len(items) == v.Len() {
			for i, item := range items {
				required(t, v.Index(i), string(item))
			}
		}
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(raw), &members) != nil {
			return
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			value, there := members[key]
			if field.Tag.Get("api") == "required" && !there {
				t.Fatalf("%s has no %s: %s", v.Type(), key, raw)
			}
			if there {
				required(t, v.Field(i), string(value))
			}
		}
	}
}
