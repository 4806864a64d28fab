package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/record"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// proxyUI is a running proxy without an engine: its calls are written straight into its store.
type proxyUI struct {
	*UI
	registry *session.Registry
	log      *store.Log
	client   *control.Client
	fresh    func() *Live // the same proxy, as it is after its start
}

func newProxyUI(t testing.TB) *proxyUI {
	t.Helper()
	hub, err := engine.NewHub(engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	registry, err := session.Open(t.Context(), log, time.Now, control.EngineOf(hub, nil, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	api := control.New(control.Options{Sessions: registry, Store: log, Engines: hub, Loopback: true, ProxyVersion: "test"})
	live := NewLive(api)
	fresh := func() *Live {
		return NewLive(control.New(control.Options{Sessions: registry, Store: log, Engines: hub, Loopback: true, ProxyVersion: "test"}))
	}
	return &proxyUI{newUI(t, Options{Source: live, Loopback: true, URL: "http://127.0.0.1:8100", Events: live.Events()}), registry, log, &live.client, fresh}
}

// create makes a session that claims an engine with token ids, as the engine's measurement would have it.
func (p *proxyUI) create(t testing.TB, id string, group string) {
	t.Helper()
	req := control.CreateRequest{SessionID: &id}
	if group != "" {
		req.Group = &control.Group{ID: group}
	}
	if _, err := p.client.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// record writes a turn of a conversation that grows by the turn.
func (p *proxyUI) record(t testing.TB, rec *record.Session, number int, prompt, sampled []int32, messages []json.RawMessage) {
	t.Helper()
	logprobs := make([]float64, len(sampled))
	for i := range logprobs {
		logprobs[i] = -0.25
	}
	at := time.Date(2026, 1, 1, 0, 0, number, 0, time.UTC)
	call := &record.Call{
		Session: rec.ID, Instance: rec.Instance, Number: number, Dialect: record.OpenAIChat, Body: []byte("{}"), Messages: messages,
		Tools: []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"bash"}}`)}, Outcome: record.Complete, Status: 200,
		Timing: record.Timing{Received: at, Dispatched: at, FirstToken: at.Add(200 * time.Millisecond), LastToken: at.Add(700 * time.Millisecond), Recorded: at.Add(701 * time.Millisecond)},
		Choices: []record.Choice{{
			Outcome: record.Complete, FinishReason: "stop", PromptIDs: prompt, SampledIDs: sampled, Logprobs: logprobs, HasIDs: true, HasLogprobs: true,
			Message: json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, number)),
		}},
	}
	if err := <-p.log.Append(call); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyProxySaysWhatToDo(t *testing.T) {
	p := newProxyUI(t)
	wantAll(t, "an empty list", page(t, p, "/ui/"), "No session yet", "curl -s -H", "http://127.0.0.1:8100/sessions")
	p.create(t, "s-1", "")
	wantAll(t, "a new session", page(t, p, "/ui/sessions/s-1"), "no call has been recorded yet", "base URL", `sse-connect="/ui/events?session=s-1"`)
	wantAll(t, "a filter", page(t, p, "/ui/?status=failed"), "Nothing fits")
	if resp := get(t, p, "/ui/sessions/nobody"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: %s", resp.Status)
	}
	if resp := get(t, p, "/ui/?since=yesterday"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a filter that is none: %s", resp.Status)
	}
}

func TestCloseAndCancel(t *testing.T) {
	p := newProxyUI(t)
	p.create(t, "s-1", "g")
	p.create(t, "s-2", "g")
	wantAll(t, "the list", page(t, p, "/ui/?open=g"), "/ui/sessions/s-1/close", "/ui/sessions/s-2/cancel", "2 running")
	for id, what := range map[string]string{"s-1": "close", "s-2": "cancel"} {
		resp := send(p, "POST", "/ui/sessions/"+id+"/"+what, "", "Origin", "http://127.0.0.1:8100")
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/ui/sessions/"+id {
			t.Errorf("%s: %s to %q", what, resp.Status, resp.Header.Get("Location"))
		}
	}
	for id, want := range map[string]record.Status{"s-1": record.Failed, "s-2": record.SessionCanceled} { // none had a turn
		status, err := p.client.Status(t.Context(), id)
		if err != nil || status.Status != want {
			t.Errorf("%s is %v, want %s (%v)", id, status.Status, want, err)
		}
	}
	if resp := send(p, "POST", "/ui/sessions/s-1/cancel", ""); resp.StatusCode != http.StatusConflict {
		t.Errorf("a session that has ended is cancelled: %s", resp.Status)
	}
}

// TestPartsAreSentOnlyWhenTheyChanged keeps a page still while its session does.
func TestPartsAreSentOnlyWhenTheyChanged(t *testing.T) {
	p := newProxyUI(t)
	p.create(t, "s-1", "")
	state := func(path string) string {
		_, after, _ := strings.Cut(page(t, p, path), `{"X-State":"`)
		state, _, _ := strings.Cut(after, `"`)
		return state
	}
	for _, part := range []struct{ page, part string }{{"/ui/", "/ui/list"}, {"/ui/sessions/s-1", "/ui/sessions/s-1/live"}} {
		was := state(part.page)
		if resp := get(t, p, part.part, "X-State", was); was == "" || resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s in state %q: %s", part.part, was, resp.Status)
		}
	}
	was, list := state("/ui/sessions/s-1"), state("/ui/")
	reward := 1.0
	if _, err := p.client.Score(t.Context(), "s-1", control.ScoreRequest{Reward: control.Optional[float64]{Set: true, Value: &reward}}); err != nil {
		t.Fatal(err)
	}
	wantAll(t, "the session", page(t, p, "/ui/sessions/s-1/live", "X-State", was), "reward 1")
	wantAll(t, "the list", page(t, p, "/ui/list", "X-State", list), "<b>1</b>")
}

// TestEvents follows a session: a page hears of its own, and of nothing else.
func TestEvents(t *testing.T) {
	p := newProxyUI(t)
	p.create(t, "s-1", "")
	server := httptest.NewServer(p)
	defer server.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/ui/events?session=s-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "event: change" {
				return
			}
		}
		t.Fatal("the stream ended", lines.Err())
	}
	next() // on connecting
	p.create(t, "s-2", "")
	reward := 0.5
	if _, err := p.client.Score(ctx, "s-1", control.ScoreRequest{Reward: control.Optional[float64]{Set: true, Value: &reward}}); err != nil {
		t.Fatal(err)
	}
	next()
}
