package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// bugCase is one of the public bug reports of ../shared/cases.
type bugCase struct {
	ID    string
	Input struct {
		Request  caseRequest
		Requests []caseRequest
		Upstream caseUpstreams
	}
}

type caseRequest struct {
	Line    string `json:"request_line"`
	Headers map[string]string
	Body    json.RawMessage
}

type caseUpstream struct {
	Variant     string
	Status      int
	ContentType string `json:"content_type"`
	Raw         string
	Writes      []string
}

type caseUpstreams []caseUpstream

func (u *caseUpstreams) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"': // the upstream in words
		return nil
	case '[':
		return json.Unmarshal(b, (*[]caseUpstream)(u))
	}
	*u = make([]caseUpstream, 1)
	return json.Unmarshal(b, &(*u)[0])
}

func loadCase(t *testing.T, id string) *bugCase {
	t.Helper()
	file, err := os.ReadFile(wiretest.Shared(t, "cases", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(file, &all); err != nil {
		t.Fatal(err)
	}
	for _, raw := range all {
		var head struct{ ID string }
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		if head.ID != id {
			continue
		}
		var compact bytes.Buffer // the file is indented, harnesses' bodies are not
		c := &bugCase{}
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(compact.Bytes(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatalf("no case %s", id)
	return nil
}

// play sends the case's request through a proxy whose engine answers as variant n says.
func (c *bugCase) play(t *testing.T, n int) (*rig, *script, string, error) {
	t.Helper()
	u := c.Input.Upstream[n]
	up := newScript(t, answers(u.Status, u.ContentType, u.Raw))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	_, body, err := r.try("/v1/chat/completions", string(c.Input.Request.Body))
	return r, up, string(body), err
}

func TestBC01_ids_behind_a_parser(t *testing.T) {
	c := loadCase(t, "BC01")
	r, _, _, _ := c.play(t, 0)
	short := r.only()
	if short.Outcome != record.IncompleteCapture || !slices.Equal(short.Choices[0].SampledIDs, []int32{24, 25, 99}) {
		t.Errorf("short: %s %v", short.Outcome, short.Choices[0].SampledIDs)
	}
	if !strings.Contains(short.Detail, "3") || !strings.Contains(short.Detail, "7") {
		t.Errorf("both counts belong into %q", short.Detail)
	}
	if r.document(export.Options{}).Trainable {
		t.Error("a turn with missing ids is trainable")
	}
	r, _, _, _ = c.play(t, 1)
	if got := r.only().Choices[0].SampledIDs; !slices.Equal(got, []int32{20, 21, 22, 23, 24, 25, 99}) {
		t.Errorf("complete: %v", got)
	}
}

func TestBC02_ids_and_logprobs_are_two_streams(t *testing.T) {
	c := loadCase(t, "BC02")
	r, _, _, _ := c.play(t, 0)
	late := r.only()
	if late.Outcome != record.Complete || !slices.Equal(late.Choices[0].SampledIDs, []int32{5, 6, 7, 99}) || !slices.Equal(late.Choices[0].Logprobs, []float64{-0.1, -0.2, -0.3, -0.01}) {
		t.Errorf("late logprobs: %s %s %v %v", late.Outcome, late.Detail, late.Choices[0].SampledIDs, late.Choices[0].Logprobs)
	}
	r, _, _, _ = c.play(t, 1)
	missing := r.only()
	if missing.Outcome != record.IncompleteCapture || len(missing.Choices[0].SampledIDs) != 4 || len(missing.Choices[0].Logprobs) != 2 {
		t.Errorf("missing logprobs: %s %v %v", missing.Outcome, missing.Choices[0].SampledIDs, missing.Choices[0].Logprobs)
	}
	if r.document(export.Options{}).Trainable {
		t.Error("a turn with missing logprobs is trainable")
	}
}

func TestBC03_done_is_no_success(t *testing.T) {
	c := loadCase(t, "BC03")
	r, _, body, err := c.play(t, 0)
	call := r.eventually(1)[0]
	if call.Outcome != record.UpstreamError || !slices.Equal(call.Choices[0].SampledIDs, []int32{5}) || !strings.Contains(call.Detail, "engine step failed") {
		t.Errorf("error event: %s %q %v", call.Outcome, call.Detail, call.Choices)
	}
	if err == nil || strings.Contains(body, "[DONE]") || !strings.Contains(body, `data: {"error":{"message":"engine step failed"`) {
		t.Errorf("the harness got %q, %v", body, err)
	}
	r, _, body, err = c.play(t, 1)
	if call := r.eventually(1)[0]; call.Outcome != record.UpstreamError || err == nil || strings.Contains(body, "[DONE]") {
		t.Errorf("only [DONE]: %s, %q, %v", call.Outcome, body, err)
	}
	// C: bare text, then silence: the idle limit ends it.
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		io.WriteString(w, c.Input.Upstream[2].Raw)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r = newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m", engine: idle(300 * time.Millisecond)})
	_, data, err := r.try("/v1/chat/completions", simpleStream)
	if call := r.eventually(1)[0]; call.Outcome != record.UpstreamError || !strings.Contains(call.Detail, "idle limit") || err == nil || string(data) != c.Input.Upstream[2].Raw {
		t.Errorf("silence: %s %q, %q, %v", call.Outcome, call.Detail, data, err)
	}
}

func TestBC06_a_retry_needs_a_sign(t *testing.T) {
	up := newScript(t, answers(200, sse, chunks(`"delta":{"content":"5"},"finish_reason":"stop"`)))
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	for _, q := range loadCase(t, "BC06").Input.Requests {
		var header []string
		for k, v := range q.Headers {
			header = append(header, k, v)
		}
		r.post("/v1/chat/completions", string(q.Body), header...)
	}
	calls := r.calls()
	if len(calls) != 3 || calls[0].RetryOf != 0 || calls[1].RetryOf != 1 || calls[2].RetryOf != 0 {
		t.Errorf("retry_of: %d %d %d", calls[0].RetryOf, calls[1].RetryOf, calls[2].RetryOf)
	}
}

// An attempt that did not end as a node makes the same body again a retry, sign or not.
func TestBC06_a_failed_attempt_is_a_sign(t *testing.T) {
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 0 {
			answers(500, "application/json", `{"error":{"message":"boom"}}`)(w, r, n)
			return
		}
		answers(200, sse, chunks(`"delta":{"content":"5"},"finish_reason":"stop"`))(w, r, n)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	r.post("/v1/chat/completions", simpleStream)
	r.post("/v1/chat/completions", simpleStream)
	if calls := r.calls(); calls[0].Outcome != record.UpstreamError || calls[1].RetryOf != 1 {
		t.Errorf("%s, retry of %d", calls[0].Outcome, calls[1].RetryOf)
	}
}

func TestBC11_our_own_fields_are_never_the_harness_s_trouble(t *testing.T) {
	c := loadCase(t, "BC11")
	refusal := c.Input.Upstream[0]
	good := chunks(`"delta":{"role":"assistant","content":"5"},"finish_reason":null`, `"delta":{},"finish_reason":"stop"`)
	up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "return_token_ids") {
			answers(refusal.Status, refusal.ContentType, refusal.Raw)(w, r, n)
			return
		}
		answers(200, sse, good)(w, r, n)
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	for range 2 {
		resp, body := r.post("/v1/chat/completions", string(c.Input.Request.Body))
		if resp.StatusCode != 200 || string(body) != good {
			t.Errorf("the harness got %d %q", resp.StatusCode, body)
		}
	}
	if up.count() != 3 {
		t.Errorf("%d requests reached the engine, want 3: the profile remembers", up.count())
	}
	if sent := string(up.got(2).body); strings.Contains(sent, "token_ids") || strings.Contains(sent, "logprobs") || strings.Contains(sent, "stream_options") {
		t.Errorf("sent %s", sent)
	}
	for _, call := range r.calls() {
		if call.Outcome != record.IncompleteCapture {
			t.Errorf("outcome %s", call.Outcome)
		}
	}
	if r.document(export.Options{}).Trainable {
		t.Error("trainable without ids")
	}
	for n := 1; n <= 2; n++ {
		r, _, body, err := c.play(t, n)
		ch := r.only().Choices[0]
		if err != nil || !slices.Equal(ch.PromptIDs, []int32{1, 2}) || !slices.Equal(ch.SampledIDs, []int32{5, 99}) {
			t.Errorf("%s: %v %v, %v", c.Input.Upstream[n].Variant, ch.PromptIDs, ch.SampledIDs, err)
		}
		if strings.Contains(body, "sglext") || strings.Contains(body, "token_ids") || strings.Contains(body, "usage") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("the harness got %s", body)
		}
	}
}

func TestBC12_unknown_fields_pass_both_ways(t *testing.T) {
	c := loadCase(t, "BC12")
	r, up, body, err := c.play(t, 0)
	sent, asked := string(up.got(0).body), string(c.Input.Request.Body)
	if !strings.HasPrefix(sent, asked[:len(asked)-1]) {
		t.Errorf("sent %s\nasked %s", sent, asked)
	}
	want := strings.NewReplacer(`,"prompt_token_ids":[1]`, "", `,"token_ids":[5]`, "", `,"token_ids":[99]`, "").Replace(c.Input.Upstream[0].Raw)
	if body != want || err != nil {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	if stored, err := r.store.Body(t.Context(), "s1", 1); err != nil || string(stored) != asked {
		t.Errorf("stored %s, %v", stored, err)
	}
}

func TestBC15_aborted_by_the_engine(t *testing.T) {
	c := loadCase(t, "BC15")
	r, _, _, _ := c.play(t, 0)
	call := r.only()
	if call.Outcome != record.Aborted || !slices.Equal(call.Choices[0].SampledIDs, []int32{5, 6}) || call.Choices[0].FinishReason != "abort" {
		t.Errorf("%s %v", call.Outcome, call.Choices[0])
	}
	if r.document(export.Options{}).Trainable {
		t.Error("an aborted turn is trainable by default")
	}
	r, _, _, _ = c.play(t, 1)
	if call := r.only(); call.Outcome != record.Aborted || len(call.Choices[0].SampledIDs) != 0 {
		t.Errorf("%s %v", call.Outcome, call.Choices[0].SampledIDs)
	}
}

func TestBC17_parameters_that_switch_token_data_off(t *testing.T) {
	c := loadCase(t, "BC17")
	u := c.Input.Upstream[0]
	for i, want := range []string{`"top_logprobs":0`, `"include_reasoning":true`, `"logprobs":true,"top_logprobs":0`} {
		up := newScript(t, answers(u.Status, u.ContentType, u.Raw))
		r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
		_, body := r.post("/v1/chat/completions", string(c.Input.Requests[i].Body))
		if sent := string(up.got(0).body); !strings.Contains(sent, want) || strings.Contains(sent, "null") {
			t.Errorf("%d: sent %s", i, sent)
		}
		if strings.Contains(string(body), "token_ids") || strings.Contains(string(body), "usage") {
			t.Errorf("%d: the harness got %s", i, body)
		}
		// This engine gave no token data all the same: said per call, never an all-zero mask.
		if call := r.only(); call.Outcome != record.IncompleteCapture || len(call.Edits) == 0 {
			t.Errorf("%d: %s, %d edits", i, call.Outcome, len(call.Edits))
		}
	}
}

// include_reasoning: false goes up as true; the harness gets no reasoning all the same.
func TestBC17_reasoning_stays_hidden(t *testing.T) {
	up := newScript(t, answers(200, sse, chunks(`"delta":{"role":"assistant","content":""},"finish_reason":null`, `"delta":{"reasoning":"hm"},"finish_reason":null,"token_ids":[5]`,
		`"delta":{"content":"x"},"finish_reason":"stop","token_ids":[6]`)))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	_, body := r.post("/v1/chat/completions", `{"model":"m","stream":true,"include_reasoning":false,"messages":[]}`)
	if strings.Contains(string(body), "hm") || strings.Contains(string(body), "reasoning") {
		t.Errorf("the harness got %s", body)
	}
	ch := r.only().Choices[0]
	if !slices.Equal(ch.SampledIDs, []int32{5, 6}) || string(ch.Message) != `{"role":"assistant","content":"x"}` {
		t.Errorf("%v %s", ch.SampledIDs, ch.Message)
	}
}

func TestBC18_the_policy_at_four_moments(t *testing.T) {
	proceed := make(chan struct{})
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		all := chunks(`"delta":{"role":"assistant","content":"a"},"finish_reason":null`, `"delta":{"content":"b"},"finish_reason":null`, `"delta":{},"finish_reason":"stop"`)
		second := strings.Index(all, `"b"`)
		cut := second + strings.Index(all[second:], "\n\n") + 2
		io.WriteString(w, all[:cut])
		w.(http.Flusher).Flush()
		<-proceed
		io.WriteString(w, all[cut:])
	})
	r := newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	if err := r.sessions.SetPolicy(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.post("/v1/chat/completions", simpleStream)
	}()
	for up.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // both chunks are on their way; the first token's version is read when it arrives
	if err := r.sessions.SetPolicy(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	<-done
	p := r.only().Policy
	if *p.Dispatch != 1 || *p.FirstToken != 1 || *p.End != 2 {
		t.Errorf("dispatch %d, first token %d, end %d", *p.Dispatch, *p.FirstToken, *p.End)
	}
}

func TestBC23_sampling_is_recorded_as_asked_and_as_sent(t *testing.T) {
	c := loadCase(t, "BC23")
	up := newScript(t, answers(200, sse, c.Input.Upstream[0].Raw))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	for _, q := range c.Input.Requests {
		r.post("/v1/chat/completions", string(q.Body))
	}
	calls := r.calls()
	if got := string(calls[0].RequestedSampling); got != `{"temperature":0.6,"top_p":0.9,"top_k":20,"logit_bias":{"7":-5}}` {
		t.Errorf("asked: %s", got)
	}
	if got := string(calls[0].SubmittedSampling); got != `{"temperature":0.6,"top_p":1,"top_k":-1,"logit_bias":{"7":-5},"min_p":0,"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1}` {
		t.Errorf("sent: %s", got)
	}
	if !slices.Equal(calls[0].Constraints, []string{"logit_bias"}) {
		t.Errorf("constraints: %v", calls[0].Constraints)
	}
	if string(calls[1].RequestedSampling) != "{}" || !strings.HasPrefix(string(calls[1].SubmittedSampling), `{"temperature":1.0,"top_p":1,`) {
		t.Errorf("asked %s, sent %s", calls[1].RequestedSampling, calls[1].SubmittedSampling)
	}
	doc := r.document(export.Options{})
	if len(doc.Turns) != 2 || !strings.Contains(fmt.Sprint(doc.Turns[0].Validation), "constrained_sampling") || strings.Contains(fmt.Sprint(doc.Turns[1].Validation), "FATAL") {
		t.Errorf("%v\n%v", doc.Turns[0].Validation, doc.Turns[1].Validation)
	}
}

// 1.75 MB of prompt ids and 12 MB of arguments, each one line, pass and are read.
func TestBC26_lines_of_any_length(t *testing.T) {
	var ids strings.Builder
	for i := 100000; i < 350000; i++ {
		fmt.Fprintf(&ids, ",%d", i)
	}
	arguments := strings.Repeat("x", 12_000_000)
	stream := `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"prompt_token_ids":[` + ids.String()[1:] + "]}\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":"` + arguments + `"}}]},"finish_reason":null,"token_ids":[5]}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","token_ids":[99]}]}` + "\n\n" +
		`data: {"id":"c1","choices":[],"usage":{"prompt_tokens":250000,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	up := newScript(t, answers(200, sse, stream))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	_, body := r.post("/v1/chat/completions", simpleStream)
	if !strings.Contains(string(body), arguments) || strings.Contains(string(body), "token_ids") {
		t.Error("the arguments did not arrive, or ids did")
	}
	ch := r.only().Choices[0]
	if len(ch.PromptIDs) != 250000 || ch.PromptIDs[249999] != 349999 || !slices.Equal(ch.SampledIDs, []int32{5, 99}) {
		t.Errorf("%d prompt ids, sampled %v", len(ch.PromptIDs), ch.SampledIDs)
	}
}

func TestBC30_partial_and_odd_token_data(t *testing.T) {
	c := loadCase(t, "BC30")
	for n, want := range []record.Outcome{record.IncompleteCapture, record.IncompleteCapture, record.IncompleteCapture} {
		r, _, _, err := c.play(t, n)
		call := r.only()
		if call.Outcome != want || err != nil {
			t.Errorf("%d: %s %s, %v", n, call.Outcome, call.Detail, err)
		}
		if r.document(export.Options{}).Trainable {
			t.Errorf("%d: trainable", n)
		}
		if n == 1 && (len(call.Choices[0].Logprobs) != 3 || call.Choices[0].Logprobs[1] != -9999) {
			t.Errorf("recorded logprobs: %v", call.Choices[0].Logprobs)
		}
		if n == 2 && (call.Usage.Prompt == nil || *call.Usage.Prompt != 1 || string(call.Usage.Raw) != `{"prompt_tokens":1,"completion_tokens":1}`) {
			t.Errorf("usage %s", call.Usage.Raw)
		}
	}
}

func TestBC35_usage_is_asked_for_where_it_may_be(t *testing.T) {
	c := loadCase(t, "BC35")
	for i, q := range c.Input.Requests {
		if !strings.HasSuffix(q.Line, "/v1/chat/completions") {
			continue
		}
		up := newScript(t, func(w http.ResponseWriter, r *http.Request, n int) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `"stream":true`) {
				answers(200, sse, `data: {"choices":[{"index":0,"delta":{"content":"5"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`+"\n\n"+
					`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`+"\n\ndata: [DONE]\n\n")(w, r, n)
				return
			}
			answers(200, "application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":"5"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)(w, r, n)
		})
		r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
		_, body := r.post("/v1/chat/completions", string(q.Body))
		var asked, sent struct {
			Stream  bool
			Options json.RawMessage `json:"stream_options"`
		}
		if json.Unmarshal(q.Body, &asked) != nil || json.Unmarshal(up.got(0).body, &sent) != nil {
			t.Fatal("not JSON")
		}
		wanted := strings.Contains(strings.ReplaceAll(string(asked.Options), " ", ""), `"include_usage":true`)
		switch {
		case !asked.Stream && string(sent.Options) != string(asked.Options):
			t.Errorf("%d: stream_options %s became %s", i, asked.Options, sent.Options)
		case asked.Stream && !strings.Contains(strings.ReplaceAll(string(sent.Options), " ", ""), `"include_usage":true`):
			t.Errorf("%d: sent %s", i, sent.Options)
		case asked.Stream && strings.Contains(string(body), "usage") != wanted:
			t.Errorf("%d: asked %s, the harness got %s", i, asked.Options, body)
		}
	}
}

func TestBC37_keepalives_pass(t *testing.T) {
	c := loadCase(t, "BC37")
	r, _, body, err := c.play(t, 0)
	want := strings.NewReplacer(`,"prompt_token_ids":[1]`, "", `,"token_ids":[5]`, "").Replace(c.Input.Upstream[0].Raw)
	if body != want || err != nil {
		t.Errorf("got  %q\nwant %q", body, want)
	}
	if call := r.only(); len(call.Remarks) != 0 || string(call.Choices[0].Message) != `{"role":"assistant","content":"5"}` {
		t.Errorf("%v %s", call.Remarks, call.Choices[0].Message)
	}
	// B: nothing of ours gets between the halves of an event.
	writes := c.Input.Upstream[1].Writes
	up := newScript(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", sse)
		for _, part := range writes {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	r = newRig(t, up.URL, rigOptions{level: record.LevelText, model: "m"})
	if _, body := r.post("/v1/chat/completions", simpleStream); string(body) != strings.Join(writes, "") {
		t.Errorf("got %q", body)
	}
}

func TestBC42_the_engine_s_own_prompt_is_the_prompt(t *testing.T) {
	up := newScript(t, answers(200, "application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop","token_ids":[9],"logprobs":{"content":[{"token":"x","logprob":-0.5}]}}],`+
		`"prompt_token_ids":[1,700,700,700,700,8],"usage":{"prompt_tokens":6,"completion_tokens":1}}`))
	r := newRig(t, up.URL, rigOptions{level: record.LevelTokens, model: "m"})
	r.post("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},{"type":"text","text":"what"}]}]}`)
	call := r.only()
	if call.Outcome != record.Complete || len(call.Choices[0].PromptIDs) != 6 || call.PromptSource != record.PromptEngine || up.count() != 1 {
		t.Errorf("%s %s, %d prompt ids from %s, %d requests", call.Outcome, call.Detail, len(call.Choices[0].PromptIDs), call.PromptSource, up.count())
	}
}
