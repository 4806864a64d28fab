//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"captureproxy/export"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk streams one call, written by hand so that what happens after [DONE] happens at once, and returns the answer.
func talk(t *testing.T, p *proxy, session string, messages []message) message {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "m", "seed": 7, "stream": true, "messages": messages})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+session)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // cut off on purpose
	answer := message{Role: "assistant"}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return answer
		}
		var chunk struct {
			Choices []struct {
				Delta message `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		for _, c := range chunk.Choices {
			answer.Content += c.Delta.Content
		}
	}
	t.Fatalf("the stream ended without [DONE], status %d", res.StatusCode)
	return answer
}

// TestKilledAfterDone kills the proxy the moment a client has seen the end of an answer. The turn is in the document
// afterwards, and the session goes on under its key; five times over.
func TestKilledAfterDone(t *testing.T) {
	const rounds = 5
	engine, data := fakeEngine(t), t.TempDir()
	p := serve(t, "--upstream", engine, "--data", data)
	session := p.session(t)
	var said []message
	for i := range rounds {
		said = append(said, message{"user", fmt.Sprintf("question %d", i)})
		said = append(said, talk(t, p, session, said))
		p.kill()
		p = serve(t, "--upstream", engine, "--data", data)
		if doc := p.rollout(t, session); len(doc.Turns) != i+1 || doc.Status != "running" {
			t.Fatalf("after kill %d: %d turns, status %s", i+1, len(doc.Turns), doc.Status)
		}
	}
	doc := p.close(t, session)
	work := rows(doc, export.Agent)
	if len(work) != 1 || work[0].NTurns != rounds || !doc.Trainable || doc.Status != "completed" {
		t.Errorf("%d agent rows, trainable %v, status %s: want one row of %d turns", len(work), doc.Trainable, doc.Status, rounds)
	}
}

// TestReadAtOnce reads the document as soon as a client has seen the end of an answer.
func TestReadAtOnce(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t), "--data", t.TempDir())
	session := p.session(t)
	for i := range 50 {
		answer := talk(t, p, session, []message{{"user", fmt.Sprintf("question %d", i)}})
		doc := p.rollout(t, session)
		if len(doc.Turns) != i+1 {
			t.Fatalf("after answer %d the document has %d turns", i+1, len(doc.Turns))
		}
		if last := doc.Turns[i]; last.Outcome != "complete" || last.NSampled == 0 || answer.Content == "" {
			t.Fatalf("answer %d: %q, outcome %s, %d sampled tokens", i+1, answer.Content, last.Outcome, last.NSampled)
		}
	}
}
