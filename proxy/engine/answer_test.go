package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/wiretest"
)

var everything = Strip{TokenIDs: true, Logprobs: true, Usage: true}

// stream reads an event stream and returns the answer and what the harness gets.
func stream(t testing.TB, body []byte, strip *Strip) (*Answer, string) {
	t.Helper()
	a := &Answer{}
	var out strings.Builder
	for er := NewEventReader(bytes.NewReader(body), nil); ; {
		ev, err := er.Next()
		if err != nil {
			return a, out.String()
		}
		edited, drop := a.Chunk(ev.Data, strip)
		switch {
		case drop:
		case edited != nil:
			out.WriteString("data: " + string(edited) + "\n\n")
		default:
			out.Write(ev.Raw)
		}
	}
}

// What the recorded engine says streamed and whole is the same turn: ids, logprobs, usage and finish reason.
func TestRecordedPairs(t *testing.T) {
	pairs := 0
	for _, whole := range wiretest.All(t, "vllm-0.32.0") {
		base, ok := strings.CutSuffix(whole.Name, "_full")
		if !ok || !strings.HasPrefix(whole.Name, "b_") || whole.Status != 200 {
			continue
		}
		file := base + "_stream"
		if !exists(t, file) {
			continue
		}
		pairs++
		t.Run(base, func(t *testing.T) {
			streamed := wiretest.Load(t, "vllm-0.32.0", file)
			a, _ := stream(t, streamed.Body, &Strip{})
			b := &Answer{}
			if edited, ok := b.Whole(whole.Body, &Strip{}); edited != nil || !ok {
				t.Fatalf("whole: edited %s, ok %v", edited, ok)
			}
			if !a.Done || !a.Finished() || !b.Finished() || len(a.Choices) != len(b.Choices) {
				t.Fatalf("done %v, finished %v %v", a.Done, a.Finished(), b.Finished())
			}
			for i := range a.Choices {
				x, y := a.Choices[i], b.Choices[i]
				// Lengths are compared where the two samples are the same; `n_*` and the like differ by design.
				if !slices.Equal(a.Prompt(x), b.Prompt(y)) {
					t.Errorf("prompt ids differ")
				}
				if !slices.Equal(x.SampledIDs, y.SampledIDs) || !slices.Equal(x.Logprobs, y.Logprobs) {
					t.Errorf("streamed %v %v\nwhole    %v %v", x.SampledIDs, x.Logprobs, y.SampledIDs, y.Logprobs)
				}
				if x.HasIDs != y.HasIDs || x.HasLogprobs != y.HasLogprobs {
					t.Errorf("ids %v %v, logprobs %v %v", x.HasIDs, y.HasIDs, x.HasLogprobs, y.HasLogprobs)
				}
			}
			if a.Usage.Completion == nil || *a.Usage.Completion != *b.Usage.Completion || *a.Usage.Prompt != *b.Usage.Prompt {
				t.Errorf("usage %s, %s", a.Usage.Raw, b.Usage.Raw)
			}
			if x := a.Choices[0]; x.HasIDs && len(x.SampledIDs) != int(*a.Usage.Completion) {
				t.Errorf("%d ids, usage says %d", len(x.SampledIDs), *a.Usage.Completion)
			}
		})
	}
	if pairs < 15 {
		t.Fatalf("only %d pairs found", pairs)
	}
}

func exists(t *testing.T, name string) bool {
	for _, e := range wiretest.All(t, "vllm-0.32.0") {
		if e.Name == name {
			return true
		}
	}
	return false
}

// After stripping, a recorded answer holds none of the token data, and nothing else is missing: the JSON with the
// stripped fields taken out by a decoder is the same.
func TestStripRecorded(t *testing.T) {
	for _, e := range wiretest.All(t, "vllm-0.32.0") {
		if e.Status != 200 || !strings.HasPrefix(e.Name, "b_") && !strings.HasPrefix(e.Name, "a") && !strings.HasPrefix(e.Name, "c_") {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			if !e.SSE() {
				edited, ok := (&Answer{}).Whole(e.Body, &everything)
				if !ok {
					t.Fatal("no answer")
				}
				if edited == nil {
					edited = e.Body
				}
				checkStripped(t, e.Body, edited, false)
				return
			}
			_, out := stream(t, e.Body, &everything)
			var kept [][]byte
			for er := NewEventReader(strings.NewReader(out), nil); ; {
				ev, err := er.Next()
				if err != nil {
					break
				}
				if len(ev.Data) > 0 {
					kept = append(kept, append([]byte(nil), ev.Data...))
				}
			}
			i := 0
			for er := NewEventReader(bytes.NewReader(e.Body), nil); ; {
				ev, err := er.Next()
				if err != nil {
					break
				}
				if empty(t, ev.Data) {
					continue
				}
				if i >= len(kept) {
					t.Fatalf("missing: %s", ev.Data)
				}
				if string(ev.Data) == "[DONE]" {
					if string(kept[i]) != "[DONE]" {
						t.Fatalf("got %s", kept[i])
					}
				} else {
					checkStripped(t, ev.Data, kept[i], true)
				}
				i++
			}
			if i != len(kept) {
				t.Errorf("%d chunks kept, want %d", len(kept), i)
			}
		})
	}
}

// empty says whether a chunk holds nothing that a harness which asked for no token data could use.
func empty(t *testing.T, data []byte) bool {
	if string(data) == "[DONE]" {
		return false
	}
	if len(data) == 0 {
		return true
	}
	var c struct {
		Choices []struct {
			Delta  map[string]json.RawMessage
			Text   *string
			Finish *string         `json:"finish_reason"`
			IDs    json.RawMessage `json:"token_ids"`
			Rows   json.RawMessage `json:"logprobs"`
		}
		Usage json.RawMessage
		Error json.RawMessage
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	if c.Error != nil {
		return false
	}
	ours := len(c.Choices) == 0 && c.Usage != nil
	for _, ch := range c.Choices {
		if len(ch.Delta) > 0 || ch.Finish != nil || ch.Text != nil && *ch.Text != "" {
			return false
		}
		ours = ours || string(ch.IDs) != "null" && ch.IDs != nil || string(ch.Rows) != "null"
	}
	return ours
}

func checkStripped(t *testing.T, before, after []byte, stream bool) {
	t.Helper()
	var x, y map[string]any
	if err := json.Unmarshal(before, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &y); err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	drop := func(m map[string]any, key string) {
		if m[key] != nil {
			delete(m, key)
		}
	}
	drop(x, "prompt_token_ids")
	if stream {
		delete(x, "usage")
	}
	for _, c := range x["choices"].([]any) {
		c := c.(map[string]any)
		drop(c, "token_ids")
		drop(c, "prompt_token_ids")
		if c["logprobs"] != nil {
			c["logprobs"] = nil
		}
	}
	want, _ := json.Marshal(x)
	got, _ := json.Marshal(y)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// However a recorded stream is cut into reads, it gives the same answer and the same bytes.
func TestEverySplitPoint(t *testing.T) {
	for _, name := range []string{"b_call_tools_stream", "b_think_stream", "c_n2_stream"} {
		body := wiretest.Load(t, "vllm-0.32.0", name).Body
		want, wantOut := stream(t, body, &everything)
		for split := 1; split < len(body); split++ {
			a := &Answer{}
			var out bytes.Buffer
			er := NewEventReader(&twoReads{body[:split], body[split:]}, nil)
			for {
				ev, err := er.Next()
				if err != nil {
					break
				}
				if edited, drop := a.Chunk(ev.Data, &everything); edited != nil {
					out.WriteString("data: " + string(edited) + "\n\n")
				} else if !drop {
					out.Write(ev.Raw)
				}
			}
			if out.String() != wantOut || !slices.Equal(a.Choices[0].SampledIDs, want.Choices[0].SampledIDs) ||
				!slices.Equal(a.Choices[0].Logprobs, want.Choices[0].Logprobs) || !bytes.Equal(a.Choices[0].Message(), want.Choices[0].Message()) {
				t.Fatalf("%s split at %d differs", name, split)
			}
		}
	}
}

type twoReads struct{ first, second []byte }

func (r *twoReads) Read(p []byte) (int, error) {
	if len(r.first) == 0 {
		r.first, r.second = r.second, nil
	}
	if len(r.first) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.first)
	r.first = r.first[n:]
	return n, nil
}

func TestToolCallFragments(t *testing.T) {
	for name, c := range map[string]struct {
		deltas []string
		want   string
	}{
		"indexed": {[]string{`[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]`, `[{"index":0,"function":{"arguments":":1}"}}]`,
			`[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`},
			`[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`},
		"no index": {[]string{`[{"id":"a","function":{"name":"f","arguments":"{"}}]`, `[{"function":{"arguments":"}"}}]`, `[{"id":"b","function":{"name":"g","arguments":"{}"}}]`},
			`[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`},
		"one index for all": {[]string{`[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`, `[{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}]`, `[{"index":0,"function":{"arguments":"}"}}]`},
			`[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`},
		"id and name again": {[]string{`[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]`, `[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]`},
			`[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`},
		"null id and name": {[]string{`[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`, `[{"index":0,"id":null,"function":{"name":null,"arguments":"{}"}}]`},
			`[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`},
	} {
		a := &Answer{}
		for _, d := range c.deltas {
			a.Chunk([]byte(`{"choices":[{"index":0,"delta":{"tool_calls":`+d+`}}]}`), &Strip{})
		}
		want := `{"role":"assistant","content":null,"tool_calls":` + c.want + `}`
		if got := string(a.Choices[0].Message()); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestTokenData(t *testing.T) {
	a := &Answer{}
	a.Chunk([]byte(`{"choices":[{"index":0,"delta":{},"token_ids":[1,2],"logprobs":{"content":[{"token":"token_id:1","logprob":-0.5},{"token":"token_id:3","logprob":null}]}}]}`), &Strip{})
	a.Chunk([]byte(`{"choices":[{"delta":{"content":"x"},"token_ids":[5],"logprobs":{"content":[{"token":"x","logprob":NaN}]}}]}`), &Strip{})
	c := a.Choices[0]
	if !slices.Equal(c.SampledIDs, []int32{1, 2, 5}) || len(c.Logprobs) != 3 || c.Logprobs[0] != -0.5 || !math.IsNaN(c.Logprobs[1]) || !math.IsNaN(c.Logprobs[2]) {
		t.Fatal(c.SampledIDs, c.Logprobs)
	}
	if r := c.Remarks(); len(r) != 1 || r[0].Code != "logprob_misalign" || r[0].Detail != "row 1 is spelled token_id:3, the id there is 2" {
		t.Fatal(r)
	}
	for _, bad := range []string{`[1,2.0,3]`, `[1,null,3]`, `[1,"2"]`, `[4294967296]`} {
		a := &Answer{}
		a.Chunk([]byte(`{"prompt_token_ids":[1],"choices":[{"index":0,"delta":{"content":"x"},"token_ids":`+bad+`}]}`), &Strip{})
		a.Chunk([]byte(`{"choices":[{"index":0,"delta":{"content":"x"},"token_ids":[9]}]}`), &Strip{})
		c := a.Choices[0]
		if len(c.SampledIDs) != 0 || len(c.Remarks()) != 1 || c.Remarks()[0].Code != "invalid_token_id" {
			t.Errorf("%s: %v %v", bad, c.SampledIDs, c.Remarks())
		}
	}
}

func TestPromptIDsThatDiffer(t *testing.T) {
	a := &Answer{}
	a.Chunk([]byte(`{"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_token_ids":[1,2]}`), &Strip{})
	a.Chunk([]byte(`{"choices":[{"index":1,"delta":{"role":"assistant"}}],"prompt_token_ids":[1,2]}`), &Strip{})
	if len(a.Remarks()) != 0 || !slices.Equal(a.Prompt(a.Choices[1]), []int32{1, 2}) {
		t.Fatal(a.Remarks())
	}
	a.Chunk([]byte(`{"choices":[{"index":1,"delta":{"role":"assistant"}}],"prompt_token_ids":[1,3]}`), &Strip{})
	if r := a.Remarks(); len(r) != 1 || r[0].Code != "capture_conflict" {
		t.Fatal(r)
	}
}

// Unknown fields of a chunk stay, in order and spelling (BC12).
func TestStripKeepsTheRest(t *testing.T) {
	in := `{ "id":"c1", "x_meta":{"a":1.50}, "choices":[ {"token_ids":[5], "index":0,"delta":{"content":"\u00e9"},"x":[1, 2],"logprobs":{"content":[]}} ],"model":"served","prompt_token_ids":[1] }`
	want := `{ "id":"c1", "x_meta":{"a":1.50}, "choices":[ {"index":0,"delta":{"content":"\u00e9"},"x":[1, 2],"logprobs":null} ],"model":"gpt" }`
	edited, drop := (&Answer{}).Chunk([]byte(in), &Strip{TokenIDs: true, Logprobs: true, Usage: true, Model: []byte(`"gpt"`)})
	if drop || string(edited) != want {
		t.Errorf("drop %v\ngot  %s\nwant %s", drop, edited, want)
	}
}

func BenchmarkChunk(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-a16464fa7eca1bc9","object":"chat.completion.chunk","created":1796066909,"model":"tiny","choices":[{"index":0,"delta":{"content":"word"},"logprobs":{"content":[{"token":"\":","logprob":-0.012975780293345451,"bytes":[34,58],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[371]}]}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	a := &Answer{}
	for b.Loop() {
		a.Chunk(data, &everything)
	}
}

// A piece of JSON that was cut may end in the middle of a number: nothing of it is read.
func TestCutPiecesGiveNoIDs(t *testing.T) {
	for _, data := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[13225,1`, `{"choices":[{"index":0,"token_ids":[7]`, `{"prompt_token_ids":[1,2,3`,
		`{"choices":[{"index":0,"logprobs":{"content":[{"token":"a","logprob":-0.1`,
	} {
		var a Answer
		if edited, drop := a.Chunk([]byte(data), &Strip{}); edited != nil || drop || a.Garbled != 1 || len(a.PromptIDs) > 0 {
			t.Errorf("%s: %q, %v, %+v", data, edited, drop, a)
		}
		for _, c := range a.Choices {
			if len(c.SampledIDs)+len(c.Logprobs) > 0 {
				t.Errorf("%s: ids %v, logprobs %v", data, c.SampledIDs, c.Logprobs)
			}
		}
	}
}
