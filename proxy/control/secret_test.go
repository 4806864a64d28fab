package control_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"captureproxy/proxy/control"
)

const (
	oneSecret   = "the secret of the operator"
	otherSecret = "another secret of the operator"
)

// An engine key that a session brings survives the proxy only encrypted, and only where the proxy has a secret. What a
// proxy cannot read its creator brings again.
func TestEngineKeysSurviveUnderASecret(t *testing.T) {
	engine := newGate(withIDs)
	srv := newServer(t, engine)
	keyed := `{"session_id":"keyed","llm_url":"` + srv + `","model":"fake-model","api_key":"` + sessionKey + `"}`
	first := newRig(t, setup{secret: oneSecret})
	stored := func(r *rig, id string, want any) {
		t.Helper()
		got := read[control.Status](t, r.want(200, "GET", "/sessions/"+id, "")).KeyStored
		if want == nil && got != nil || want != nil && (got == nil || *got != want) {
			t.Errorf("%s: key_stored is not %v", id, want)
		}
	}
	next := func(r *rig, secret string) *rig {
		r.stop()
		return newRig(t, setup{dir: r.dir, engine: r.engine, secret: secret})
	}
	says := func(r *rig, want int) {
		t.Helper()
		if got := r.say("keyed", "hello"); got != want {
			t.Errorf("a call: %d, want %d", got, want)
		}
	}
	if c := read[control.Created](t, first.want(200, "POST", "/sessions", keyed)); c.KeyStored == nil || !*c.KeyStored {
		t.Errorf("created: %+v", c)
	}
	unnamed := read[control.Created](t, first.want(200, "POST", "/sessions", strings.Replace(keyed, `"session_id":"keyed",`, "", 1)))
	first.create("plain", "")
	stored(first, "plain", nil)

	same := next(first, oneSecret)
	says(same, 200)
	if status := same.say(unnamed.SessionID, "hello"); status != 200 {
		t.Errorf("the session with an id of the proxy's: %d", status)
	}
	if keys := engine.seen(); !slices.Contains(keys, "Bearer "+sessionKey) || len(same.complaints) > 0 {
		t.Errorf("the engine got %q; %q", keys, same.complaints)
	}
	stored(same, "keyed", true)
	same.want(200, "POST", "/sessions", keyed)
	same.want(409, "POST", "/sessions", strings.Replace(keyed, sessionKey, "another-key", 1))

	none := next(same, "")
	says(none, 503)
	other := next(none, otherSecret)
	says(other, 503)
	for _, r := range []*rig{none, other} {
		if len(r.complaints) != 2 || !strings.Contains(r.complaints[0], "secret") {
			t.Errorf("complaints: %q", r.complaints)
		}
	}
	other.want(200, "POST", "/sessions", keyed)
	says(other, 200)
	last := next(other, otherSecret)
	says(last, 200)
	stored(last, "keyed", true)

	texts := []string{last.storedText()}
	for _, path := range []string{"/sessions", "/sessions/keyed", "/sessions/keyed/rollout?include_messages=true", "/health"} {
		texts = append(texts, last.want(200, "GET", path, "").body)
	}
	texts = append(texts, first.logs.String(), other.logs.String(), last.logs.String())
	for _, text := range texts {
		for _, hidden := range []string{sessionKey, oneSecret, otherSecret, base64.StdEncoding.EncodeToString([]byte(sessionKey))} {
			if strings.Contains(text, hidden) {
				t.Errorf("a secret shows: %.200s", text)
			}
		}
	}
	if strings.Contains(strings.Join(texts[1:], ""), "sealed") {
		t.Error("the sealed key shows in an answer")
	}
}

// Without a secret a session says that its key is in memory only.
func TestEngineKeysInMemory(t *testing.T) {
	srv := newServer(t, withIDs)
	first := newRig(t, setup{})
	keyed := `{"session_id":"keyed","llm_url":"` + srv + `","model":"fake-model","api_key":"` + sessionKey + `"}`
	if c := read[control.Created](t, first.want(200, "POST", "/sessions", keyed)); c.KeyStored == nil || *c.KeyStored {
		t.Errorf("created: %+v", c)
	}
	first.stop()
	if strings.Contains(first.storedText(), sessionKey) || strings.Contains(first.storedText(), "sealed") {
		t.Error("the key is in the store")
	}
	// A proxy that has one by now stores the key when it comes again.
	second := newRig(t, setup{dir: first.dir, engine: first.engine, secret: oneSecret})
	if status := second.say("keyed", "hello"); status != 503 {
		t.Errorf("after the restart: %d", status)
	}
	if c := read[control.Created](t, second.want(200, "POST", "/sessions", keyed)); c.KeyStored == nil || !*c.KeyStored {
		t.Errorf("created again: %+v", c)
	}
	second.stop()
	third := newRig(t, setup{dir: first.dir, engine: first.engine, secret: oneSecret})
	if status := third.say("keyed", "hello"); status != 200 {
		t.Errorf("after another restart: %d", status)
	}
}
