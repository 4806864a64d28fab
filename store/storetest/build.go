package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"captureproxy/internal/record"
	"captureproxy/store"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// TB is what the helpers need of a test; *testing.T, *testing.B and *rapid.T have it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Session returns a small session; n tells sessions apart and orders them by creation.
func Session(n int) *record.Session {
	return &record.Session{
		ID: fmt.Sprintf("s%04d", n), Instance: fmt.Sprintf("%016x", n), Status: record.Running,
		CreatedAt: start.Add(time.Duration(n) * time.Second), Spec: record.Spec{Purpose: record.PurposeAuto},
	}
}

// Call returns the standard call of SPEC 9 with contents that depend on its session and number: 1,000 prompt ids, 64
// sampled ids with logprobs, 350 bytes of text.
func Call(s *record.Session, number int) *record.Call {
	text := fmt.Sprintf("%s/%d ", s.ID, number)
	for len(text) < 350 {
		text += "the quick brown fox jumps over the lazy dog "
	}
	quoted, _ := json.Marshal(text[:350])
	question := json.RawMessage(fmt.Sprintf(`{"role":"user","content":%s}`, quoted))
	c := &record.Call{
		Session: s.ID, Instance: s.Instance, Number: number, Dialect: record.OpenAIChat, RequestID: "req", Model: "m", Served: "m",
		Messages:          []json.RawMessage{json.RawMessage(`{"role":"system","content":"You are a coding agent."}`), question},
		RequestedSampling: json.RawMessage(`{}`), SubmittedSampling: json.RawMessage(`{"temperature": 1.0}`),
		Timing:  record.Timing{Received: start, Dispatched: start, FirstToken: start, LastToken: start, Recorded: start},
		Outcome: record.Complete, Status: 200, Usage: record.Usage{Raw: json.RawMessage(`{"prompt_tokens": 1000}`)},
		Choices: []record.Choice{{
			Outcome: record.Complete, FinishReason: "stop", HasIDs: true, HasLogprobs: true,
			PromptIDs: make([]int32, 1000), SampledIDs: make([]int32, 64), Logprobs: make([]float64, 64),
			Message: json.RawMessage(`{"role":"assistant","content":"done"}`),
		}},
	}
	c.Body, c.Cuts = Body(c.Messages)
	seed := uint32(number)*7919 + uint32(len(s.ID))
	for _, b := range []byte(s.ID) {
		seed = seed*31 + uint32(b)
	}
	next := func() int32 {
		seed = seed*1664525 + 1013904223
		return int32(seed >> 15)
	}
	for i := range c.Choices[0].PromptIDs {
		c.Choices[0].PromptIDs[i] = next()
	}
	for i := range c.Choices[0].SampledIDs {
		c.Choices[0].SampledIDs[i] = next()
		c.Choices[0].Logprobs[i] = float64(-float32(i) / 7)
	}
	return c
}

// Body builds a chat request around messages, which become parts of its memory, as in a request that was read.
func Body(messages []json.RawMessage) ([]byte, []int) {
	b := []byte(`{"model":"m","messages":[`)
	cuts := []int{}
	for i, m := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		cuts = append(cuts, len(b), len(b)+len(m))
		b = append(b, m...)
	}
	b = append(b, `],"stream":true}`...)
	for i := range messages {
		messages[i] = b[cuts[2*i]:cuts[2*i+1]:cuts[2*i+1]]
	}
	return b, cuts
}

// exact compares records: NaN by NaN, times by moment, and nil apart from empty only where the two mean something else.
var exact = cmp.Options{
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmpopts.IgnoreFields(record.Call{}, "Body", "Cuts"),
	cmp.FilterValues(func(a, b []record.Edit) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
	cmp.FilterValues(func(a, b []record.Remark) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
	cmp.FilterValues(func(a, b []record.Choice) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
	cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
}

// same fails unless two records are equal.
func same[T any](t TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, exact); diff != "" {
		t.Fatalf("%s differs (-want +got):\n%s", what, diff)
	}
}

// CheckCalls fails unless the store holds exactly these calls of the session, in this order, bodies included.
func CheckCalls(t TB, s store.Store, session string, want ...*record.Call) {
	t.Helper()
	got, err := s.Calls(context.Background(), session)
	if err != nil {
		t.Fatalf("Calls(%q): %v", session, err)
	}
	if len(got) != len(want) {
		t.Fatalf("Calls(%q): %d calls, want %d", session, len(got), len(want))
	}
	for i := range want {
		same(t, fmt.Sprintf("call %d", want[i].Number), got[i], want[i])
		if got[i].Body != nil || got[i].Cuts != nil {
			t.Fatalf("Calls(%q) gives bodies", session)
		}
		body, err := s.Body(context.Background(), session, want[i].Number)
		if err != nil {
			t.Fatalf("Body(%q, %d): %v", session, want[i].Number, err)
		}
		if string(body) != string(want[i].Body) {
			t.Fatalf("Body(%q, %d) = %q, want %q", session, want[i].Number, body, want[i].Body)
		}
	}
}

// CheckPast fails unless the store's past of the session is these calls, without what a past leaves out.
func CheckPast(t TB, s store.Store, session string, want ...*record.Call) {
	t.Helper()
	past, err := s.Past(context.Background(), session)
	if err != nil {
		t.Fatalf("Past(%q): %v", session, err)
	}
	if len(past.Calls) != len(want) {
		t.Fatalf("Past(%q): %d calls, want %d", session, len(past.Calls), len(want))
	}
	for i, c := range want {
		bare := *c
		bare.Messages, bare.Tools, bare.Choices = nil, nil, append([]record.Choice(nil), c.Choices...)
		for j := range bare.Choices {
			bare.Choices[j].PromptIDs = nil
		}
		same(t, fmt.Sprintf("the past's call %d", c.Number), past.Calls[i], &bare)
		if body := past.Body(past.Calls[i]); string(body) != string(c.Body) {
			t.Fatalf("the past's body of call %d is %q, want %q", c.Number, body, c.Body)
		}
	}
	if past.Body(want[0]) != nil {
		t.Fatalf("a past gives the body of a call that is not its own")
	}
}

// Create creates sessions.
func Create(t TB, s store.Store, sessions ...*record.Session) {
	t.Helper()
	for _, r := range sessions {
		if err := s.CreateSession(context.Background(), r); err != nil {
			t.Fatalf("CreateSession(%q): %v", r.ID, err)
		}
	}
}

// Append appends calls and waits until they are durable.
func Append(t TB, s store.Store, calls ...*record.Call) {
	t.Helper()
	var done []<-chan error
	for _, c := range calls {
		done = append(done, s.Append(c))
	}
	for i, d := range done {
		if err := <-d; err != nil {
			t.Fatalf("Append(call %d of %q): %v", calls[i].Number, calls[i].Session, err)
		}
	}
}
