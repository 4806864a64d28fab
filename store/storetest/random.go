package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"captureproxy/internal/record"
)

// Any field that is added to a record is generated too, so that a store which forgets it fails.

func anyOf[T any](g *rapid.Generator[T]) *rapid.Generator[any] { return g.AsAny() }

// rawJSON is JSON with what encoding/json would respell: spaces, number forms, HTML characters, key order; and none.
var rawJSON = rapid.SampledFrom([]json.RawMessage{
	nil, json.RawMessage(`null`), json.RawMessage(` {"b": 1.0, "a": [1e2, "<&>"]} `), json.RawMessage(`"\u0041\/"`), json.RawMessage(`{}`),
	json.RawMessage(`12345678901234567890`),
})

var moment = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "never") {
		return time.Time{}
	}
	return start.Add(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "ns")) * time.Microsecond / 1000).Truncate(time.Microsecond)
})

var logprob = rapid.OneOf(
	rapid.Map(rapid.Float32(), func(f float32) float64 { return float64(f) }),
	rapid.Float64(),
	rapid.SampledFrom([]float64{math.NaN(), math.Inf(-1), math.Copysign(0, -1), 0, -9999, math.SmallestNonzeroFloat64, math.Float64frombits(0x7ff8000000000123)}),
)

// config is how records are made.
func config() rapid.MakeConfig {
	return rapid.MakeConfig{
		Types: map[reflect.Type]*rapid.Generator[any]{
			reflect.TypeFor[json.RawMessage](): anyOf(rawJSON),
			reflect.TypeFor[time.Time]():       anyOf(moment),
		},
		Fields: map[reflect.Type]map[string]*rapid.Generator[any]{
			reflect.TypeFor[record.Call](): {
				"Body":     anyOf(rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 200)),
				"Cuts":     anyOf(rapid.SliceOfN(rapid.IntRange(-3, 210), 0, 6)),
				"Messages": anyOf(messages),
				"Tools":    anyOf(messages),
				"Choices":  anyOf(rapid.SliceOfN(rapid.MakeCustom[record.Choice](choiceConfig()), 0, 3)),
			},
		},
	}
}

func choiceConfig() rapid.MakeConfig {
	return rapid.MakeConfig{
		Types: map[reflect.Type]*rapid.Generator[any]{reflect.TypeFor[json.RawMessage](): anyOf(rawJSON)},
		Fields: map[reflect.Type]map[string]*rapid.Generator[any]{
			reflect.TypeFor[record.Choice](): {
				"PromptIDs": anyOf(prompt), "SampledIDs": anyOf(ids(5)), "Logprobs": anyOf(rapid.OneOf(rapid.Just[[]float64](nil), rapid.SliceOfN(logprob, 0, 5))),
			},
		},
	}
}

func ids(n int) *rapid.Generator[[]int32] {
	return rapid.OneOf(rapid.Just[[]int32](nil), rapid.SliceOfN(rapid.Int32(), 0, n))
}

// prompt makes prompts that share beginnings, around the borders of blocks.
var prompt = rapid.Custom(func(t *rapid.T) []int32 {
	p := make([]int32, rapid.SampledFrom([]int{0, 1, 127, 128, 129, 255, 256, 257, 300, 512}).Draw(t, "length"))
	for i := range p {
		p[i] = int32(i)
	}
	if len(p) > 0 && rapid.Bool().Draw(t, "changed") {
		p[rapid.IntRange(0, len(p)-1).Draw(t, "where")] = rapid.Int32Range(-1, 1<<30).Draw(t, "id")
	}
	if len(p) == 0 && rapid.Bool().Draw(t, "nil") {
		return nil
	}
	return p
})

// messages makes lists that share beginnings and items.
var messages = rapid.Custom(func(t *rapid.T) []json.RawMessage {
	if rapid.Bool().Draw(t, "nil") {
		return nil
	}
	list := []json.RawMessage{}
	for i := range rapid.IntRange(0, 6).Draw(t, "n") {
		n := i
		if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
			n = rapid.IntRange(0, 3).Draw(t, "which")
		}
		list = append(list, json.RawMessage(fmt.Sprintf(`{"role":"user", "content":"%0*d"}`, 4*n+1, n)))
	}
	return list
})

// AnyCall generates calls of a session.
func AnyCall(s *record.Session, number int) *rapid.Generator[*record.Call] {
	return rapid.Map(rapid.MakeCustom[record.Call](config()), func(c record.Call) *record.Call {
		c.Session, c.Instance, c.Number = s.ID, s.Instance, number
		return &c
	})
}

// AnySession generates sessions; n tells them apart.
func AnySession(n int) *rapid.Generator[*record.Session] {
	return rapid.Map(rapid.MakeCustom[record.Session](config()), func(s record.Session) *record.Session {
		plain := Session(n)
		s.ID, s.Instance, s.CreatedAt = plain.ID, plain.Instance, plain.CreatedAt
		if len(s.SealedKey) == 0 { // no key has one form
			s.SealedKey = nil
		}
		return &s
	})
}
