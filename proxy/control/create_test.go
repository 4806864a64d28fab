package control_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

func TestCreate(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) {
		o.Shared, o.Continuity, o.ReasoningField, o.TrainAborted, o.AllowRawLogprobs = record.SharedOnce, "off", "reasoning", true, true
		o.MaxModelCalls = 50
	}})
	a := r.want(200, "POST", "/sessions", `{"purpose":"train","metadata":{"task":{"n":1.0},"max_output_tokens":64},"max_output_tokens":100.0,
		"env":{"id":"e1","name":"shell"},"group":{"id":"g1","size":4},"run":{"kind":"train","id":"r1","metadata":{"kind":"train","step":3}},
		"sampling":{"temperature":0.7,"top_p":1,"top_k":0},"max_model_calls":70,"min_turns":2}`)
	c := read[control.Created](t, a)
	if !strings.HasPrefix(c.SessionID, "s-") || len(c.SessionID) < 34 || c.BaseURL != r.url+"/s/"+c.SessionID {
		t.Errorf("id and base URL: %+v", c)
	}
	if *c.CaptureLevel != record.LevelTokens || *c.RolloutType != "train" || *c.MaxModelCalls != 50 || *c.LLMURL != r.engine+"/v1" || *c.Model != "fake-model" {
		t.Errorf("answer: %s", a.body)
	}
	rec, err := r.store.Session(t.Context(), c.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	s := rec.Spec
	if rec.Status != record.Running || !rec.TrainAborted || !rec.AllowRawLogprobs || s.Shared != record.SharedOnce || s.Continuity != "off" || s.ReasoningField != "reasoning" {
		t.Errorf("the proxy's settings are not on the record: %+v", rec)
	}
	if *s.MaxOutputTokens != 64 || *s.MinTurns != 2 || s.Env.Name != "shell" || s.Group.ID != "g1" || *s.Group.Size != 4 || string(rec.Metadata["task"]) != `{"n":1.0}` {
		t.Errorf("record: %+v", s)
	}
	const pinned = `{"temperature":0.7,"top_p":1,"top_k":-1,"min_p":0,"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1}`
	if string(s.Sampling) != pinned || string(s.Run) != `{"kind":"train","id":"r1","metadata":{"kind":"train","step":3}}` {
		t.Errorf("sampling %s, run %s", s.Sampling, s.Run)
	}
	if got := r.raw("POST", "/s/"+c.SessionID+"/chat/completions", `{"messages":[{"role":"user","content":"hello"}]}`, "Authorization", ""); got.status != 200 {
		t.Errorf("a call through base_url: %d %s", got.status, got.body)
	}
}

func TestCreateDefaults(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.PublicURL = "https://proxy.example/" }})
	c := read[control.Created](t, r.want(200, "POST", "/sessions", `{}`))
	if c.BaseURL != "https://proxy.example/s/"+c.SessionID || c.MaxModelCalls != nil || *c.RolloutType != "train" {
		t.Errorf("%+v", c)
	}
	c = read[control.Created](t, r.want(200, "POST", "/sessions", `{"purpose":"eval","eval_sampling":{"temperature":0,"top_p":0.5,"top_k":20}, "max_model_calls": 0}`))
	if *c.RolloutType != "eval" || *c.MaxModelCalls != 0 {
		t.Errorf("%+v", c)
	}
}

func TestCreateRefuses(t *testing.T) {
	r := newRig(t, setup{})
	for _, c := range []struct{ body, field string }{
		{`{"session_id":""}`, "session_id"},
		{`{"session_id":".hidden"}`, "session_id"},
		{`{"session_id":"a/b"}`, "session_id"},
		{`{"session_id":"` + strings.Repeat("a", 129) + `"}`, "session_id"},
		{`{"session_id":7}`, "session_id"},
		{`{"metadata":[]}`, "metadata"},
		{`{"metadata":"x"}`, "metadata"},
		{`{"metadata":{"max_output_tokens":"many"}}`, "metadata.max_output_tokens"},
		{`{"metadata":{"max_output_tokens":0}}`, "metadata.max_output_tokens"},
		{`{"env":{}}`, "env.id"},
		{`{"env":{"id":1}}`, "env.id"},
		{`{"env":{"id":"e","colour":"red"}}`, "colour"},
		{`{"group":{"size":2}}`, "group.id"},
		{`{"group":{"id":"g","size":0}}`, "group.size"},
		{`{"group":{"id":"g","size":1.5}}`, "group.size"},
		{`{"group":"g"}`, "group"},
		{`{"run":{"id":"r"}}`, "run.kind"},
		{`{"run":{"kind":"test","id":"r"}}`, "run.kind"},
		{`{"run":{"kind":"train"}}`, "run.id"},
		{`{"run":{"kind":"train","id":5}}`, "run.id"},
		{`{"run":{"kind":"eval","id":"r","metadata":{"kind":"eval","step":1}}}`, "run.metadata"},
		{`{"run":{"kind":"train","id":"r","metadata":{"kind":"x"}}}`, "run.metadata.kind"},
		{`{"run":{"kind":"train","id":"r","metadata":{"kind":"train","step":-1}}}`, "run.metadata.step"},
		{`{"run":{"kind":"train","id":"r","metadata":{"kind":"train","step":"one"}}}`, "run.metadata.step"},
		{`{"purpose":"practice"}`, "purpose"},
		{`{"frozen":"yes"}`, "frozen"},
		{`{"sampling":{}}`, "sampling.temperature"},
		{`{"sampling":{"temperature":0}}`, "sampling.temperature"},
		{`{"sampling":{"temperature":-1}}`, "sampling.temperature"},
		{`{"sampling":{"temperature":1e999}}`, "sampling.temperature"},
		{`{"sampling":{"temperature":"1"}}`, "sampling.temperature"},
		{`{"sampling":{"temperature":1,"top_p":0.9}}`, "sampling.top_p"},
		{`{"sampling":{"temperature":1,"top_k":40}}`, "sampling.top_k"},
		{`{"sampling":{"temperature":1,"min_p":0.1}}`, "sampling.min_p"},
		{`{"sampling":{"temperature":1,"repetition_penalty":0}}`, "sampling.repetition_penalty"},
		{`{"sampling":{"temperature":1,"presence_penalty":1}}`, "sampling.presence_penalty"},
		{`{"sampling":{"temperature":1,"frequency_penalty":1}}`, "sampling.frequency_penalty"},
		{`{"sampling":{"temperature":1,"seed":1}}`, "seed"},
		{`{"sampling":{"temperature":1},"purpose":"eval"}`, "sampling"},
		{`{"eval_sampling":{"temperature":1}}`, "eval_sampling"},
		{`{"eval_sampling":{"temperature":1},"purpose":"train"}`, "eval_sampling"},
		{`{"eval_sampling":{"temperature":1},"sampling":{"temperature":1},"purpose":"eval"}`, "eval_sampling"},
		{`{"eval_sampling":{"temperature":2.1},"purpose":"eval"}`, "eval_sampling.temperature"},
		{`{"eval_sampling":{"top_p":0},"purpose":"eval"}`, "eval_sampling.top_p"},
		{`{"eval_sampling":{"top_k":0},"purpose":"eval"}`, "eval_sampling.top_k"},
		{`{"continuity":"maybe"}`, "continuity"},
		{`{"reasoning_field":"thoughts"}`, "reasoning_field"},
		{`{"shared":"twice"}`, "shared"},
		{`{"max_model_calls":-1}`, "max_model_calls"},
		{`{"max_model_calls":1.5}`, "max_model_calls"},
		{`{"max_model_calls":"3"}`, "max_model_calls"},
		{`{"max_model_calls":true}`, "max_model_calls"},
		{`{"max_model_calls":1e300}`, "max_model_calls"},
		{`{"max_output_tokens":0}`, "max_output_tokens"},
		{`{"min_turns":-1}`, "min_turns"},
		{`{"llm_url":"127.0.0.1:8000"}`, "llm_url"},
		{`{"llm_url":"ftp://h/"}`, "llm_url"},
		{`{"llm_url":"http:///v1"}`, "llm_url"},
		{`{"llm_url":"http://u:p@h/v1"}`, "llm_url"},
		{`{"llm_url":"http://h/v1?key=1"}`, "llm_url"},
		{`{"llm_url":"http://h/v1/../admin"}`, "llm_url"},
		{`{"llm_url":"http://h/v1/%2e%2e/admin"}`, "llm_url"},
		{`{"llm_url":"http://169.254.169.254/latest"}`, "llm_url"},
		{`{"llm_url":"http://[::ffff:169.254.169.254]/"}`, "llm_url"},
		{`{"llm_url":"http://[fe80::1%25eth0]/v1"}`, "llm_url"},
		{`{"api_key":"k"}`, "api_key"},
		{`{"auth_header":"x-key"}`, "auth_header"},
		{`{"provider":"vllm"}`, "provider"},
		{`{"llm_url":"http://127.0.0.1:1","provider":"acme"}`, "provider"},
		{`{"llm_url":"http://127.0.0.1:1","api_key":"a\r\nHost: b"}`, "api_key"},
		{`{"llm_url":"http://127.0.0.1:1","api_key":"k","auth_header":"a: b"}`, "auth_header"},
		{`{"llm_url":"http://127.0.0.1:1","api_key":"k","auth_header":"host"}`, "auth_header"},
		{`{"sesion_id":"a"}`, "sesion_id"},
	} {
		a := r.raw("POST", "/sessions", c.body)
		if e := a.message(); a.status != 400 || !strings.HasPrefix(e, c.field+": ") && !(c.field == "session_id" && strings.HasPrefix(e, c.field)) {
			t.Errorf("%s: %d %s, want 400 for %s", c.body, a.status, a.body, c.field)
		}
	}
	for _, body := range []string{``, `null`, `[]`, `{`, `{}{}`, `{"metadata":{"a":"` + "\xff" + `"}}`, `"x"`} {
		if a := r.raw("POST", "/sessions", body, "Content-Type", "application/json"); a.status != 400 {
			t.Errorf("body %q: %d %s", body, a.status, a.body)
		}
	}
	if a := r.raw("POST", "/sessions", `{"metadata":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`); a.status != 413 {
		t.Errorf("a large body: %d", a.status)
	}
	if list := read[control.SessionList](t, r.want(200, "GET", "/sessions", "")); len(list.Sessions) > 0 {
		t.Errorf("something was created: %+v", list)
	}
}

// A repeated key is no reason to refuse: the last one counts, as everywhere.
func TestCreateDuplicateKeys(t *testing.T) {
	r := newRig(t, setup{})
	r.want(200, "POST", "/sessions", `{"purpose":"train","purpose":"eval","session_id":"a"}`)
	if s := read[control.Status](t, r.want(200, "GET", "/sessions/a", "")); s.Purpose != record.PurposeEval {
		t.Errorf("purpose %s", s.Purpose)
	}
}

func TestCreateAgain(t *testing.T) {
	r := newRig(t, setup{})
	const body = `{"session_id":"a","purpose":"train","metadata":{"x":1,"y":[1]},"max_model_calls":3}`
	first := r.want(200, "POST", "/sessions", body)
	again := r.want(200, "POST", "/sessions", ` {"max_model_calls":3.0, "metadata":{"y": [1],"x":1},  "purpose":"train","session_id":"a"}`)
	if first.body != again.body {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	for _, other := range []string{`{"session_id":"a"}`, `{"session_id":"a","purpose":"train","metadata":{"x":2,"y":[1]},"max_model_calls":3}`} {
		r.want(409, "POST", "/sessions", other)
	}
	r.want(200, "POST", "/sessions/a/close", "")
	r.want(409, "POST", "/sessions", body)
	r.want(200, "DELETE", "/sessions/a", "")
	r.want(200, "POST", "/sessions", body)
}

func TestCreateAtOnce(t *testing.T) {
	r := newRig(t, setup{})
	var wg sync.WaitGroup
	answers := make([]answer, 16)
	for i := range answers {
		wg.Go(func() { answers[i] = r.raw("POST", "/sessions", `{"session_id":"a"}`) })
	}
	wg.Wait()
	for _, a := range answers {
		if a.status != 200 || a.body != answers[0].body {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	requests := func(r *rig) (n int) {
		for _, key := range r.gate.seen() {
			if key == "Bearer "+upstreamKey {
				n++
			}
		}
		return n
	}
	alone := newRig(t, setup{})
	alone.want(200, "POST", "/sessions", `{"session_id":"a"}`)
	if got, want := requests(r), requests(alone); got != want {
		t.Errorf("%d requests reached the engine, %d make a probe: it was not shared", got, want)
	}
}

func TestCreateEngineBelowTokens(t *testing.T) {
	r := newRig(t, setup{handler: withoutIDs})
	a := r.want(400, "POST", "/sessions", `{"purpose":"train"}`)
	if !strings.HasPrefix(a.message(), "purpose: ") || !strings.Contains(a.message(), "logprobs") {
		t.Errorf("message: %s", a.message())
	}
	if a := r.want(400, "POST", "/sessions", `{"sampling":{"temperature":1}}`); !strings.HasPrefix(a.message(), "sampling: ") {
		t.Errorf("message: %s", a.message())
	}
	c := read[control.Created](t, r.want(200, "POST", "/sessions", `{}`))
	if *c.CaptureLevel != record.LevelLogprobs || *c.RolloutType != "eval" {
		t.Errorf("%+v", c)
	}
}

func TestCreateEngineDown(t *testing.T) {
	r := newRig(t, setup{engine: "http://127.0.0.1:1"})
	r.want(503, "POST", "/sessions", `{"session_id":"a","purpose":"train"}`)
	r.want(404, "GET", "/sessions/a", "")
	for _, purpose := range []string{"auto", "eval"} {
		c := read[control.Created](t, r.want(200, "POST", "/sessions", `{"purpose":"`+purpose+`"}`))
		if c.CaptureLevel != nil || (c.RolloutType == nil) != (purpose == "auto") {
			t.Errorf("%s: %+v", purpose, c)
		}
	}
	none := newRig(t, setup{noUpstream: true})
	none.want(503, "POST", "/sessions", `{"purpose":"train"}`)
	c := read[control.Created](t, none.want(200, "POST", "/sessions", `{"session_id":"a"}`))
	if c.CaptureLevel != nil || c.LLMURL != nil || c.Model != nil {
		t.Errorf("%+v", c)
	}
	if status := none.say("a", "hello"); status != 503 {
		t.Errorf("a call without an engine: %d", status)
	}
}

// A session's own engine gets the session's key, the proxy's own engine the proxy's, and nobody sees either.
func TestCreateNamedEngine(t *testing.T) {
	r := newRig(t, setup{})
	other := newGate(withIDs)
	srv := newServer(t, other)
	body := `{"session_id":"a","llm_url":"` + srv + `","api_key":"` + sessionKey + `","auth_header":"x-engine-key","model":"fake-model","purpose":"train"}`
	a := r.want(200, "POST", "/sessions", body)
	if c := read[control.Created](t, a); *c.LLMURL != srv+"/v1" {
		t.Errorf("%+v", c)
	}
	if status := r.say("a", "hello"); status != 200 {
		t.Fatalf("call: %d", status)
	}
	for _, key := range other.seen() {
		if key != sessionKey {
			t.Errorf("the session's engine got %q", key)
		}
	}
	r.create("b", `,"llm_url":"`+srv+`","model":"fake-model"`)
	if keys := other.seen(); keys[len(keys)-1] != "" {
		t.Errorf("an engine without a key got %q", keys[len(keys)-1])
	}
	if slices.ContainsFunc(r.gate.seen(), func(k string) bool { return strings.Contains(k, sessionKey) }) {
		t.Error("the proxy's engine got the session's key")
	}
	r.want(200, "POST", "/sessions", body)
	r.want(409, "POST", "/sessions", strings.Replace(body, sessionKey, "another-key", 1))

	var answers []string
	for _, path := range []string{"/sessions", "/sessions/a", "/sessions/a/rollout?include_messages", "/sessions/a/trace_entries", "/groups/a", "/health", "/ready"} {
		answers = append(answers, r.want(200, "GET", path, "").body)
	}
	answers = append(answers, a.body, r.want(200, "POST", "/sessions/a/close", "").body, r.storedText(), r.logs.String())
	for _, text := range answers {
		if strings.Contains(text, sessionKey) || strings.Contains(text, upstreamKey) || strings.Contains(text, adminKey) {
			t.Errorf("a secret shows: %.200s", text)
		}
	}
}

func TestAllowUpstream(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.AllowUpstream = []string{"http://127.0.0.*:1/v1"} }})
	r.want(200, "POST", "/sessions", `{"llm_url":"http://127.0.0.9:1"}`)
	if a := r.want(400, "POST", "/sessions", `{"llm_url":"http://127.0.0.9:2"}`); !strings.HasPrefix(a.message(), "llm_url: ") {
		t.Error(a.message())
	}
}

// A proxy that starts again goes on with its sessions; one whose engine needs a key waits for the request to come again.
func TestRestart(t *testing.T) {
	srv := newServer(t, withIDs)
	first := newRig(t, setup{})
	keyed := `{"session_id":"keyed","llm_url":"` + srv + `","api_key":"` + sessionKey + `"}`
	first.want(200, "POST", "/sessions", keyed)
	first.create("named", `,"llm_url":"`+srv+`"`)
	first.create("plain", "")
	first.stop()

	second := newRig(t, setup{dir: first.dir, engine: first.engine})
	for id, want := range map[string]int{"keyed": 503, "named": 200, "plain": 200} {
		if got := second.say(id, "hello"); got != want {
			t.Errorf("%s after the restart: %d, want %d", id, got, want)
		}
	}
	second.want(200, "POST", "/sessions", keyed)
	if got := second.say("keyed", "hello"); got != http.StatusOK {
		t.Errorf("keyed after its request came again: %d", got)
	}
}
