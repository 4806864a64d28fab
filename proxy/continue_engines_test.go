package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
)

// forcedCalls are the requests that reached the engine with prompt ids, the probe's own excepted.
func forcedCalls(e *fakeengine.Engine) (n int) {
	for _, r := range e.Requests() {
		if strings.Contains(string(r.Body), "prompt_token_ids") && !strings.Contains(string(r.Body), "Say hello.") {
			n++
		}
	}
	return n
}

// An engine that took prompt ids and then does not: one attempt, true records, no harness harmed.
func TestContinuityEngines(t *testing.T) {
	for _, mode := range []fakeengine.ForcedMode{fakeengine.ForcedIgnored, fakeengine.ForcedRefused, fakeengine.ForcedTruncated, fakeengine.ForcedAltered} {
		t.Run(string(mode), func(t *testing.T) {
			// The probe measures once; the second call of the session is still followed, the third not.
			r, e := newContinuityRig(t, fakeengine.Options{Odd: odd, Forced: fakeengine.Forced{Mode: mode, After: 2}}, "on")
			r.play(wires[record.OpenAIChat])
			if r.up.Profile().Forced != "" {
				t.Error("the profile still has the ability")
			}
			doc := r.document(export.Options{})
			sources, whys := bridged(doc)
			if want := []record.PromptSource{"engine", "forced", "engine", "engine"}; !slices.Equal(sources, want) || doc.Stats.Forced != 1 {
				t.Errorf("prompts from %v, n_forced %d", sources, doc.Stats.Forced)
			}
			if len(whys) != 2 || !strings.HasPrefix(whys[0], "engine_cannot: ") || !strings.HasPrefix(whys[1], "engine_cannot: ") {
				t.Errorf("reasons %q", whys)
			}
			if n := forcedCalls(e.Engine); n != 2 {
				t.Errorf("%d attempts with prompt ids, want the good one and one in vain", n)
			}
			if len(doc.FailedCalls) > 0 || len(doc.Turns) != 4 {
				t.Errorf("%d turns, failed %+v", len(doc.Turns), doc.FailedCalls)
			}
			sameAsTruth(t, e.Engine, r.calls())
		})
	}
	t.Run("never", func(t *testing.T) {
		r, e := newContinuityRig(t, fakeengine.Options{Odd: odd, Forced: fakeengine.Forced{Mode: fakeengine.ForcedIgnored}}, "on")
		r.play(wires[record.OpenAIChat])
		if _, whys := bridged(r.document(export.Options{})); len(whys) != 3 || forcedCalls(e.Engine) != 0 {
			t.Errorf("%d attempts, reasons %q", forcedCalls(e.Engine), whys)
		}
	})
}

// SGLang takes the ids in another field.
func TestContinuityOnSGLang(t *testing.T) {
	r, e := newContinuityRig(t, fakeengine.Options{Wire: fakeengine.WireSGLang, Odd: odd, Reasoning: true}, "on")
	r.play(wires[record.OpenAIChat])
	r.oneRow(4, record.OpenAIChat)
	if doc := r.document(export.Options{}); doc.Stats.Forced != 3 {
		sources, whys := bridged(doc)
		t.Errorf("%v %v, profile %q", sources, whys, r.up.Profile().Forced)
	}
	sameAsTruth(t, e.Engine, r.calls())
}

// Streamed, with the official SDK.
func TestContinuityStreamed(t *testing.T) {
	for _, wire := range []fakeengine.Wire{fakeengine.WireVLLM, fakeengine.WireSGLang} {
		t.Run(string(wire), func(t *testing.T) {
			r, _ := newContinuityRig(t, fakeengine.Options{Wire: wire, Odd: odd, Reasoning: true}, "on")
			r.agent(t.Context())
			r.oneRow(4, record.OpenAIChat)
			if doc := r.document(export.Options{}); doc.Stats.Forced != 3 {
				t.Errorf("n_forced %d", doc.Stats.Forced)
			}
		})
	}
}

// A conversation goes on whole after the proxy was started anew: the record has what the memory had.
func TestContinuityAfterRestart(t *testing.T) {
	r, _ := newContinuityRig(t, fakeengine.Options{Odd: odd}, "on")
	w := wires[record.OpenAIChat]
	_, body := r.post(w.path, w.body([]json.RawMessage{json.RawMessage(w.opens)}))
	history, _ := w.answer(t, []json.RawMessage{json.RawMessage(w.opens)}, body)
	reg, err := session.Open(t.Context(), r.store, time.Now, func(*record.Session) *engine.Upstream { return r.up })
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewServer(New(Config{Sessions: reg, Log: r.store, Default: r.up}))
	defer again.Close()
	r.url = again.URL
	for called := true; called; {
		_, body := r.post(w.path, w.body(history))
		history, called = w.answer(t, history, body)
	}
	r.oneRow(4, record.OpenAIChat)
}

// The ids of the past may not fit where the messages still do: then those are sent, and the ability stays.
func TestContinuityBeyondTheContext(t *testing.T) {
	e, err := fakeengine.Start(fakeengine.Options{Odd: odd})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // the test is over
	target, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	narrow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if strings.Contains(string(body), "prompt_token_ids") && strings.Contains(string(body), "List the files.") {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"This model's maximum context length is 100 tokens. However, your prompt contains 120 input tokens.","type":"BadRequestError","param":"input_tokens","code":400}}`)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		forward.ServeHTTP(w, r)
	}))
	defer narrow.Close()
	r := newRig(t, narrow.URL, rigOptions{session: func(s *record.Session) { s.Spec.Continuity = "on" }})
	r.play(wires[record.OpenAIChat])
	doc := r.document(export.Options{})
	_, whys := bridged(doc)
	if len(doc.Turns) != 4 || len(doc.FailedCalls) != 0 || len(whys) != 3 || r.up.Profile().Forced == "" {
		t.Errorf("%d turns, failed %+v, reasons %q, profile %q", len(doc.Turns), doc.FailedCalls, whys, r.up.Profile().Forced)
	}
}

// auto is on for sessions that are to train, and off for others; what a session says goes before what the server says.
func TestContinuityModes(t *testing.T) {
	for _, c := range []struct {
		server, session string
		purpose         record.Purpose
		on              bool
	}{
		{"", "", record.PurposeAuto, false}, {"", "", record.PurposeTrain, true}, {"auto", "", record.PurposeEval, false},
		{"on", "", record.PurposeAuto, true}, {"on", "off", record.PurposeTrain, false}, {"off", "", record.PurposeTrain, false},
		{"off", "auto", record.PurposeTrain, true}, {"off", "on", record.PurposeEval, true},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.server, c.session, c.purpose), func(t *testing.T) {
			e, err := fakeengine.Start(fakeengine.Options{Steps: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close() //nolint:errcheck // the test is over
			r := newRig(t, e.URL, rigOptions{
				config:  func(o *Config) { o.Continuity = c.server },
				session: func(s *record.Session) { s.Spec.Continuity, s.Spec.Purpose = c.session, c.purpose },
			})
			r.play(wires[record.OpenAIChat])
			if n := r.document(export.Options{}).Stats.Forced; (n == 1) != c.on {
				t.Errorf("n_forced %d", n)
			}
		})
	}
}

// An answer that the output cap cut is ended by the template's own marker.
func TestContinuityAfterACut(t *testing.T) {
	r, e := newContinuityRig(t, fakeengine.Options{Odd: odd}, "on")
	w := wires[record.OpenAIChat]
	_, body := r.post(w.path, `{"model":"m","max_tokens":4,"messages":[`+w.opens+`]}`)
	history, _ := w.answer(t, []json.RawMessage{json.RawMessage(w.opens)}, body)
	r.post(w.path, `{"model":"m","messages":[`+join(history)+`,{"role":"user","content":"Go on."}]}`)
	calls := r.calls()
	first, second := calls[0].Choices[0], calls[1].Choices[0]
	if calls[0].Outcome != record.Length || calls[1].PromptSource != record.PromptForced {
		t.Fatalf("%s, %s from %s, %+v", calls[0].Outcome, calls[1].Outcome, calls[1].PromptSource, calls[1].Edits)
	}
	want := append(slices.Concat(first.PromptIDs, first.SampledIDs), fakeengine.EndID)
	if n := len(want); len(second.PromptIDs) <= n || !slices.Equal(second.PromptIDs[:n], want) {
		t.Errorf("the prompt is %v, want it to begin with %v", second.PromptIDs, want)
	}
	var made record.Continued
	for _, edit := range calls[1].Edits {
		if edit.Param == record.ParamPromptIDs {
			into(t, edit.To, &made)
		}
	}
	if made.NMarker != 1 || made.Call != 1 || made.NPrompt+made.NSampled+1+made.NAdded != len(second.PromptIDs) {
		t.Errorf("%+v of %d ids", made, len(second.PromptIDs))
	}
	sameAsTruth(t, e.Engine, calls)
}

// A harness that gives calls ids of its own is carried on all the same, and the engine renders the results under the ids that it
// gave itself.
func TestContinuityWithRenamedCalls(t *testing.T) {
	r, e := newContinuityRig(t, fakeengine.Options{Odd: odd}, "on")
	w := wires[record.OpenAIChat]
	history := []json.RawMessage{json.RawMessage(w.opens)}
	for called := true; called; {
		_, body := r.post(w.path, w.body(history))
		history, called = w.answer(t, history, body)
		for i, raw := range history {
			history[i] = json.RawMessage(strings.ReplaceAll(string(raw), `"chatcmpl-tool-`, `"mine-`))
		}
	}
	r.oneRow(4, record.OpenAIChat)
	rendered := 0
	for _, req := range e.Requests() {
		if req.Path == "/tokenize" && strings.Contains(string(req.Body), `"tool_call_id":"chatcmpl-tool-`) {
			rendered++
		}
	}
	if rendered != 3 {
		t.Errorf("%d results were rendered under the engine's own ids", rendered)
	}
}
