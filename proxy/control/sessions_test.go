package control_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

func TestList(t *testing.T) {
	r := newRig(t, setup{})
	for i := range 5 {
		r.create(fmt.Sprintf("s%d", i), fmt.Sprintf(`,"group":{"id":"g%d"},"env":{"id":"e%d"},"run":{"kind":"eval","id":"r%d"}`, i%2, i%3, i))
	}
	r.say("s3", "hi")
	r.say("s3", "hello")
	r.say("s3", "[[fault:status 500]]")
	r.want(200, "POST", "/sessions/s0/close", "")

	ids := func(query string) []string {
		t.Helper()
		list := read[control.SessionList](t, r.want(200, "GET", "/sessions?"+query, ""))
		out := []string{}
		for _, s := range list.Sessions {
			out = append(out, s.SessionID)
		}
		return out
	}
	created := read[control.Status](t, r.want(200, "GET", "/sessions/s2", "")).CreatedAt.Time
	for query, want := range map[string]string{
		"":                "s4 s3 s2 s1 s0",
		"status=running":  "s4 s3 s2 s1",
		"status=failed":   "s0",
		"group=g0":        "s4 s2 s0",
		"env=e0&group=g1": "s3",
		"run=r2":          "s2",
		"run=none":        "",
		"limit=2":         "s4 s3",
		"since=" + url.QueryEscape(created.Format("2006-01-02T15:04:05.999999Z07:00")): "s4 s3 s2",
		"since=2099-01-01T00:00:00Z": "",
	} {
		if got := strings.Join(ids(query), " "); got != want {
			t.Errorf("?%s: %s, want %s", query, got, want)
		}
	}
	var paged []string
	next := ""
	for {
		page := read[control.SessionList](t, r.want(200, "GET", "/sessions?limit=2&after="+url.QueryEscape(next), ""))
		for _, s := range page.Sessions {
			paged = append(paged, s.SessionID)
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if got := strings.Join(paged, " "); got != "s4 s3 s2 s1 s0" {
		t.Errorf("paged: %s", got)
	}
	for query, field := range map[string]string{
		"status=done": "status", "since=yesterday": "since", "limit=0": "limit", "limit=5000": "limit", "limit=x": "limit", "after=x": "after", "stauts=running": "stauts",
	} {
		if a := r.want(400, "GET", "/sessions?"+query, ""); !strings.HasPrefix(a.message(), field+": ") {
			t.Errorf("?%s: %s", query, a.message())
		}
	}
	list := read[control.SessionList](t, r.want(200, "GET", "/sessions", ""))
	s3, s0 := list.Sessions[1], list.Sessions[4]
	if s3.Turns != 2 || s3.Roots != 2 || s3.UpstreamErrors != 1 || s3.IdleS == nil || s3.Error != nil || !s3.ClosedAt.IsZero() || s3.Group.ID != "g1" || s3.Env.ID != "e0" {
		t.Errorf("s3: %+v", s3)
	}
	if s0.Status != record.Failed || !strings.HasPrefix(*s0.Error, "NoTurns") || s0.IdleS != nil || s0.ClosedAt.IsZero() {
		t.Errorf("s0: %+v", s0)
	}
}

// Counts follow the log, while a session runs and afterwards.
func TestStatusCounts(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", `,"max_model_calls":3`)
	counts := func() [7]int {
		t.Helper()
		s := read[control.Status](t, r.want(200, "GET", "/sessions/a", ""))
		return [7]int{s.NTurns, s.NRoots, s.NLeaves, s.NForks, s.NDiscarded, s.UpstreamErrors, s.BudgetStopCount}
	}
	steps := []struct {
		text string
		want [7]int
	}{
		{"one", [7]int{1, 1, 1}},
		{"two", [7]int{2, 2, 2}},
		{"[[fault:status 500]]", [7]int{2, 2, 2, 0, 0, 1, 0}},
		{"four", [7]int{2, 2, 2, 0, 0, 1, 1}},
	}
	if got := counts(); got != [7]int{} {
		t.Errorf("at first: %v", got)
	}
	for _, s := range steps {
		r.say("a", s.text)
		if got := counts(); got != s.want {
			t.Errorf("after %q: %v, want %v", s.text, got, s.want)
		}
	}
	r.want(200, "POST", "/sessions/a/close", "")
	if got := counts(); got != steps[3].want {
		t.Errorf("after the close: %v", got)
	}
}

func TestRollout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r := newRig(t, setup{options: func(o *control.Options) { o.OutDir = dir }})
	r.create("a", `,"purpose":"train"`)
	r.say("a", "hi")
	running := r.want(200, "GET", "/sessions/a/rollout", "")
	doc := read[export.Rollout](t, running)
	if doc.Status != record.Running || !doc.Trainable || len(doc.Sequences) != 1 || doc.Turns[0].RequestMessages != nil || doc.RolloutType != export.TypeTrain {
		t.Errorf("while running: %s", running.body)
	}
	if again := r.want(200, "GET", "/sessions/a/rollout?format=rollout", ""); again.body != running.body {
		t.Error("the same log gives two documents")
	}
	full := read[export.Rollout](t, r.want(200, "GET", "/sessions/a/rollout?include_messages=true&include_discarded=1&shared=once&format=json", ""))
	if len(full.Turns[0].RequestMessages) != 1 || full.Shared != record.SharedOnce {
		t.Errorf("with everything: %+v", full.Turns[0])
	}
	for query, field := range map[string]string{"format=verl": "format", "shared=x": "shared", "include_messages=perhaps": "include_messages", "with=x": "with"} {
		if a := r.want(400, "GET", "/sessions/a/rollout?"+query, ""); !strings.HasPrefix(a.message(), field+": ") {
			t.Errorf("%s: %s", query, a.message())
		}
	}
	entries := read[control.TraceEntries](t, r.want(200, "GET", "/sessions/a/trace_entries", ""))
	if entries.SessionID != "a" || len(entries.Entries) != 1 || len(entries.Entries[0].CompletionTokenIDs) == 0 || len(entries.Entries[0].Request.Messages) != 1 {
		t.Errorf("entries: %+v", entries)
	}
	closed := r.want(200, "POST", "/sessions/a/close?include_messages", "")
	if r.want(200, "GET", "/sessions/a/rollout?include_messages", "").body != closed.body {
		t.Error("the close answers with another document")
	}
	saved, err := os.ReadFile(filepath.Join(dir, "a.json"))
	if err != nil || string(saved) != closed.body {
		t.Errorf("--out-dir: %v, %d bytes, want %d", err, len(saved), len(closed.body))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("--out-dir holds %v, %v", entries, err)
	}
	r.create("e", `,"purpose":"eval"`)
	r.say("e", "hi")
	if a := r.want(409, "GET", "/sessions/e/trace_entries", ""); !strings.Contains(a.message(), "eval") {
		t.Error(a.message())
	}
}

// An out-dir that cannot be written to costs nobody the document.
func TestOutDirFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, setup{options: func(o *control.Options) { o.OutDir = filepath.Join(file, "out") }})
	r.create("secret-session", "")
	r.say("secret-session", "hi")
	doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/secret-session/close", ""))
	if doc.Status != record.Completed || !strings.Contains(r.logs.String(), "--out-dir") {
		t.Errorf("status %s, log %s", doc.Status, r.logs)
	}
	if strings.Contains(r.logs.String(), "secret-session") {
		t.Errorf("the log names the session: %s", r.logs)
	}
}

func TestGroup(t *testing.T) {
	r := newRig(t, setup{})
	for i, reward := range []string{"1", "0", "1", ""} {
		id := fmt.Sprintf("s%d", i)
		r.create(id, `,"group":{"id":"task/1","size":8}`)
		if i != 1 {
			r.say(id, "hi")
			r.say(id, "ho")
		}
		if reward != "" {
			r.want(200, "POST", "/sessions/"+id+"/score", `{"reward":`+reward+`}`)
		}
	}
	r.create("lone", "")
	g := read[control.GroupStatus](t, r.want(200, "GET", "/groups/task%2F1", ""))
	got := fmt.Sprintf("%.4f %.4f %.4f", *g.MeanReward, *g.StdReward, *g.PassRate)
	if g.GroupID != "task/1" || *g.Size != 8 || len(g.Sessions) != 4 || g.NTrainable != 3 || got != "0.6667 0.4714 0.6667" {
		t.Errorf("%+v %s", g, got)
	}
	if s := g.Sessions[1]; s.SessionID != "s1" || s.Trainable || *s.Reward != 0 || s.Status != record.Running || g.Sessions[3].Reward != nil {
		t.Errorf("sessions: %+v", g.Sessions)
	}
	lone := read[control.GroupStatus](t, r.want(200, "GET", "/groups/lone", ""))
	if *lone.Size != 1 || len(lone.Sessions) != 1 || lone.MeanReward != nil || lone.StdReward != nil || lone.PassRate != nil {
		t.Errorf("%+v", lone)
	}
	r.want(404, "GET", "/groups/s0", "") // it has a group
	r.want(404, "GET", "/groups/none", "")
}

func TestPolicy(t *testing.T) {
	r := newRig(t, setup{})
	if a := r.want(200, "GET", "/policy", ""); strings.TrimSpace(a.body) != `{"version":null}` {
		t.Error(a.body)
	}
	r.create("a", "")
	r.want(200, "POST", "/policy", `{"version":5}`)
	r.say("a", "hi")
	r.want(200, "POST", "/policy", `{"version":8.0}`)
	r.say("a", "ho")
	if a := r.want(200, "GET", "/policy", ""); strings.TrimSpace(a.body) != `{"version":8}` {
		t.Error(a.body)
	}
	doc := read[export.Rollout](t, r.want(200, "GET", "/sessions/a/rollout", ""))
	if p := doc.Policy; *p.Start != 5 || *p.End != 8 || *p.Drift != 3 {
		t.Errorf("policy: %+v", p)
	}
	for _, body := range []string{`{}`, `{"version":null}`, `{"version":1.5}`, `{"version":"1"}`, `{"versoin":1}`} {
		r.want(400, "POST", "/policy", body)
	}
}

func TestHealth(t *testing.T) {
	r := newRig(t, setup{options: func(o *control.Options) { o.RequireRegistered = true }})
	srv := newServer(t, withIDs)
	if h := read[control.Health](t, r.want(200, "GET", "/health", "")); h.CaptureLevel != nil || h.Model != nil || h.RolloutType != nil {
		t.Errorf("before the engine is measured: %+v", h)
	}
	r.create("a", "")
	r.create("b", `,"llm_url":"`+srv+`","api_key":"`+sessionKey+`"`)
	h := read[control.Health](t, r.want(200, "GET", "/health", ""))
	if h.Status != "ok" || h.Instance != "i1" || *h.Upstream != r.engine+"/v1" || *h.Model != "fake-model" || *h.Sessions != 2 || !h.RequireRegistered ||
		*h.CaptureLevel != record.LevelTokens || *h.RolloutType != "train" || !h.UpstreamAuth || h.ParamFixes == nil {
		t.Errorf("%+v", h)
	}
	if !slices.Equal(names(h.Upstreams), []string{srv + "/v1"}) || !h.Upstreams[0].Auth {
		t.Errorf("upstreams for the admin: %+v", h.Upstreams)
	}
	for _, key := range []string{"", "Bearer a", "Bearer wrong"} {
		if a := r.raw("GET", "/health", "", "Authorization", key); a.status != 200 || strings.Contains(a.body, srv) || strings.Contains(a.body, "upstreams") {
			t.Errorf("with %q: %d %s", key, a.status, a.body)
		}
	}
}

func names(ups []control.Upstream) []string {
	var out []string
	for _, u := range ups {
		out = append(out, u.URL)
	}
	return out
}

func TestReady(t *testing.T) {
	late := int64(0)
	r := newRig(t, setup{options: func(o *control.Options) { o.Late = func() int64 { return late } }})
	if ready := read[control.Ready](t, r.want(200, "GET", "/ready", "")); !ready.Ready || len(ready.Reasons) > 0 {
		t.Errorf("%+v", ready)
	}
	reason := func(want string) {
		t.Helper()
		ready := read[control.Ready](t, r.want(503, "GET", "/ready", ""))
		if ready.Ready || !slices.ContainsFunc(ready.Reasons, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%+v, want a reason with %q", ready, want)
		}
	}
	late = 2
	reason("2 answers")
	late = 0
	r.reg.Drain(t.Context())
	reason("shutting down")
	r.want(503, "POST", "/sessions", `{"session_id":"a"}`)
	if h := read[control.Health](t, r.want(200, "GET", "/health", "")); h.Status != "draining" {
		t.Errorf("health: %+v", h)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	reason("store is closed")
	if a := r.raw("GET", "/sessions/a", ""); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("without a store: %d %s", a.status, a.body)
	}
}
