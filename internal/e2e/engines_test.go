//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// TestEnginesNeverMix runs one proxy for two engines at once, each with a credential of its own: what trains comes from the one
// that gives token ids, what evaluates from a hosted model, and no call, key or id ends up with the other.
func TestEnginesNeverMix(t *testing.T) {
	engines := map[string]*keyed{
		"train": newKeyed(t, fakeEngine(t), "", "train-key"),
		"eval":  newKeyed(t, fakeEngine(t, "--wire", "openai", "--key", "eval-key"), "eval-key", "eval-key"),
	}
	dir := t.TempDir()
	p := serve(t, "--data", dir, "--upstream-key", "default-key-of-nobody", "--upstream", fakeEngine(t))
	const sessions, calls = 6, 5
	ids := map[string]string{}
	for i := range 2 * sessions {
		purpose := []string{"train", "eval"}[i%2]
		e := engines[purpose]
		var made struct {
			ID    string       `json:"session_id"`
			Level record.Level `json:"capture_level"`
		}
		body := fmt.Sprintf(`{"purpose":%q,"llm_url":%q,"api_key":%q}`, purpose, e.URL, e.key)
		if err := json.Unmarshal(p.control(t, http.MethodPost, "/sessions", body), &made); err != nil {
			t.Fatal(err)
		}
		if want := map[string]record.Level{"train": record.LevelTokens, "eval": record.LevelText}[purpose]; made.Level != want {
			t.Errorf("%s: capture level %s, want %s", purpose, made.Level, want)
		}
		ids[made.ID] = purpose
	}
	var wg sync.WaitGroup
	for id := range ids {
		for i := range calls {
			wg.Go(func() {
				body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":300,"messages":[{"role":"user","content":"call %d of session <%s>"}]}`, i, id)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+id)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte("[DONE]")) {
					t.Errorf("%d %v: %s", resp.StatusCode, err, answer)
				}
			})
		}
	}
	wg.Wait()
	for id, purpose := range ids {
		doc := p.close(t, id)
		if doc.Trainable != (purpose == "train") || string(doc.RolloutType) != purpose || doc.Stats.Turns != calls || !strings.HasPrefix(doc.Engine.URL, engines[purpose].URL) {
			t.Errorf("%s: %s, trainable %v, %d turns, %s", purpose, doc.RolloutType, doc.Trainable, doc.Stats.Turns, doc.Engine.URL)
		}
		if purpose == "eval" && len(rows(doc, export.Agent)) > 0 && len(rows(doc, export.Agent)[0].InputIDs) > 0 {
			t.Error("an eval document of a hosted model holds token ids")
		}
	}
	for purpose, e := range engines {
		e.mu.Lock()
		for id, of := range ids {
			if seen := strings.Contains(e.bodies.String(), "<"+id+">"); seen != (of == purpose) {
				t.Errorf("session %s (%s) at the engine of %s: %v", id, of, purpose, seen)
			}
		}
		for key := range e.keys {
			if key != "Bearer "+e.key {
				t.Errorf("the engine of %s was sent %q", purpose, key)
			}
		}
		e.mu.Unlock()
	}
	req, err := http.NewRequest(http.MethodPost, p.url+"/sessions", strings.NewReader(fmt.Sprintf(`{"purpose":"train","llm_url":%q,"api_key":"eval-key"}`, engines["eval"].URL)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), "purpose") {
		t.Errorf("training at a hosted model: %d %s %v", resp.StatusCode, answer, err)
	}
}

// keyed passes calls on to an engine and keeps what it was sent.
type keyed struct {
	*httptest.Server
	key string

	mu     sync.Mutex
	bodies strings.Builder
	keys   map[string]bool
}

func newKeyed(t *testing.T, engine, engineKey, key string) *keyed {
	t.Helper()
	k := &keyed{key: key, keys: map[string]bool{}}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		k.mu.Lock()
		k.bodies.Write(body)
		k.keys[r.Header.Get("Authorization")] = true
		k.mu.Unlock()
		req, err := http.NewRequestWithContext(r.Context(), r.Method, strings.TrimSuffix(engine, "/v1")+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if engineKey != "" {
			req.Header.Set("Authorization", "Bearer "+engineKey)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body) //nolint:errcheck // the proxy may have hung up
	}))
	t.Cleanup(k.Close)
	return k
}
