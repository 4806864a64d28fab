package bench

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/record"
)

// startEngine serves the lean engine and returns its address.
func startEngine(t *testing.T) Target {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Engine(t.Context(), l) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return Target{Addr: l.Addr().String(), Path: "/v1"}
}

func TestMarks(t *testing.T) {
	m := mark{kind: markLong, number: 123_456_789_012, gap: 20 * time.Millisecond, size: 999_999}
	text := []byte("bench- bench-x-1 " + m.String() + " and more")
	if got, ok := findMark(text); !ok || got != m {
		t.Errorf("found %+v (%t) in %s", got, ok, text)
	}
	setNumber(text[bytes.Index(text, []byte("bench-l")):], 7)
	if got, ok := findMark(text); !ok || got.number != 7 || got.size != m.size {
		t.Errorf("renumbered, it is %+v", got)
	}
	for _, none := range []string{"", "bench-", "bench-c-00000000000a-000000-0000000", m.String()[:markLen-1]} {
		if got, ok := findMark([]byte(none)); ok {
			t.Errorf("%q is taken for %+v", none, got)
		}
	}
}

type said struct {
	Choices []struct {
		TokenIDs []int32 `json:"token_ids"`
		Message  struct{ Content string }
		Delta    struct{ Content string }
		Logprobs struct{ Content []struct{ Logprob float64 } }
	}
	PromptIDs []int32 `json:"prompt_token_ids"`
}

// asCall is what a perfect proxy would record of an answer.
func asCall(parts ...said) *record.Call {
	choice := record.Choice{}
	text := ""
	for _, p := range parts {
		choice.PromptIDs = append(choice.PromptIDs, p.PromptIDs...)
		for _, c := range p.Choices {
			choice.SampledIDs = append(choice.SampledIDs, c.TokenIDs...)
			for _, row := range c.Logprobs.Content {
				choice.Logprobs = append(choice.Logprobs, row.Logprob)
			}
			text += c.Message.Content + c.Delta.Content
		}
	}
	choice.Message, _ = json.Marshal(map[string]string{"content": text})
	return &record.Call{Outcome: record.Complete, Choices: []record.Choice{choice}}
}

// What the engine answers is the call's own, and the check finds every piece that is not.
func TestEngineAnswersAreTheCallsOwn(t *testing.T) {
	target := startEngine(t)
	c, err := dial(target.Addr, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, number := range []int64{0, 1, 79_999, 80_000, 123_456_789} {
		if err := c.do(newRequest(target, "", mark{kind: markCall}, false).number(number)); err != nil {
			t.Fatal(err)
		}
		var whole said
		if err := json.Unmarshal(c.body, &whole); err != nil {
			t.Fatal(err)
		}
		if wrong := differs(asCall(whole), number, 0); wrong != "" {
			t.Errorf("whole answer %d: %s", number, wrong)
		}

		if err := c.do(newRequest(target, "", mark{kind: markCall, size: 10}, true).number(number)); err != nil {
			t.Fatal(err)
		}
		var parts []said
		for event := range strings.SplitSeq(strings.TrimSuffix(string(c.body), "data: [DONE]\n\n"), "\n\n") {
			if event == "" {
				continue
			}
			var part said
			if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &part); err != nil {
				t.Fatalf("%v: %s", err, event)
			}
			parts = append(parts, part)
		}
		if wrong := differs(asCall(parts...), number, 10); wrong != "" {
			t.Errorf("stream %d: %s", number, wrong)
		}
		if wrong := differs(asCall(parts...), number+1, 10); wrong == "" {
			t.Errorf("stream %d passes for the next one", number)
		}
	}
}

func TestDiffersFindsForeignParts(t *testing.T) {
	good := func() *record.Call {
		var s said
		body := newAnswer().number(77)
		if err := json.Unmarshal(body[bytes.Index(body, []byte("\r\n\r\n"))+4:], &s); err != nil {
			t.Fatal(err)
		}
		return asCall(s)
	}
	if wrong := differs(good(), 77, 0); wrong != "" {
		t.Fatal(wrong)
	}
	for name, spoil := range map[string]func(*record.Call, *record.Choice){
		"outcome":      func(c *record.Call, _ *record.Choice) { c.Outcome = record.IncompleteCapture },
		"no choice":    func(c *record.Call, _ *record.Choice) { c.Choices = nil },
		"prompt id":    func(_ *record.Call, ch *record.Choice) { ch.PromptIDs[1]++ },
		"short prompt": func(_ *record.Call, ch *record.Choice) { ch.PromptIDs = ch.PromptIDs[1:] },
		"sampled id":   func(_ *record.Call, ch *record.Choice) { ch.SampledIDs[63]++ },
		"logprob":      func(_ *record.Call, ch *record.Choice) { ch.Logprobs[0] -= 1e-12 },
		"order":        func(_ *record.Call, ch *record.Choice) { slices.Reverse(ch.SampledIDs) },
		"text": func(_ *record.Call, ch *record.Choice) {
			ch.Message = bytes.Replace(ch.Message, []byte("77-"), []byte("78-"), 1)
		},
	} {
		call := good()
		spoil(call, &call.Choices[0])
		if differs(call, 77, 0) == "" {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// The load generator counts what it got, and tells of what it did not get.
func TestLoad(t *testing.T) {
	target := startEngine(t)
	for _, job := range []Job{
		{Target: target, Conns: 3, Calls: 5},
		{Target: target, Conns: 2, Calls: 2, Stream: true, Chunks: 7, First: 1000},
		{Target: target, Conns: 2, Calls: 3, Rate: 1000, Spread: 2},
	} {
		r, err := Load(job)
		if err != nil {
			t.Fatal(err)
		}
		if r.Calls != job.Conns*job.Calls || len(r.Failed) > 0 || r.Latency.N != r.Calls || r.TTFB.N != r.Calls {
			t.Errorf("%+v: %+v", job, r)
		}
		if job.Stream && r.Delay.N != job.Conns*job.Calls*job.Chunks {
			t.Errorf("%d chunks were timed", r.Delay.N)
		}
	}
	r, err := Load(Job{Target: Target{Addr: target.Addr, Path: "/nowhere"}, Conns: 1, Calls: 1})
	if err != nil || r.Calls != 1 { // the engine answers wherever chat completions are asked for
		t.Errorf("%v, %+v", err, r)
	}
	if r, err = Load(Job{Target: target, Conns: 1, Calls: 2, Stream: true, Chunks: 0}); err != nil || r.Calls != 2 {
		t.Errorf("streams without chunks: %v, %+v", err, r)
	}
	r, err = Load(Job{Target: target, Long: []LongJob{{Turns: 4, Tokens: 800}, {Turns: 1, Tokens: 100}}})
	if err != nil || len(r.Long) != 2 || r.Long[0].TextBytes == 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if _, err = Load(Job{Target: target, Long: []LongJob{{Turns: 4, Tokens: 100}}}); err == nil {
		t.Error("a turn of 25 tokens has no room for 64 sampled ones")
	}
}

func TestLoadTellsOfFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	foreign := newAnswer().number(4711)
	go func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1<<16)) //nolint:errcheck // what it asks is all the same
			switch i {
			case 0:
				c.Write(foreign) //nolint:errcheck
			case 1:
				c.Write([]byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops")) //nolint:errcheck
			}
			c.Close()
		}
	}()
	r, err := Load(Job{Target: Target{Addr: l.Addr().String()}, Conns: 1, Calls: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Calls != 0 || len(r.Failed) != 3 || r.Mixed != 1 || !strings.Contains(strings.Join(r.Problems, "\n"), "status 500: oops") {
		t.Errorf("%+v", r)
	}
}

func TestQuantiles(t *testing.T) {
	var ns []int64
	for i := range int64(101) {
		ns = append(ns, (100-i)*1000)
	}
	if got, want := quantiles(ns), (Quantiles{101, 50, 90, 99, 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := quantiles(nil); got != (Quantiles{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
