//go:build e2e

package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/internal/wiretest"
)

// TestLlamaCpp holds a conversation with a real engine that streams no token ids, and refuses logprobs beside tools in a
// stream: the client must not notice, and the document is one for evaluation.
func TestLlamaCpp(t *testing.T) {
	engine := llamaCpp(t)
	p := serve(t, "--upstream", engine+"/v1", "--data", t.TempDir())
	session := p.session(t)
	said, code := command(t, []string{"OPENAI_BASE_URL=" + p.url + "/v1", "OPENAI_API_KEY=" + session},
		installed(t, "python", "bin", "python"), "testdata/chat.py")
	if code != 0 || strings.TrimSpace(said) != "4" {
		t.Fatalf("the client ended with %d after %q turns", code, said)
	}

	doc := p.close(t, session)
	if doc.Status != record.Completed || doc.RolloutType != export.TypeEval || doc.Trainable || doc.Stats.TrainableTokens != 0 {
		t.Errorf("status %s, type %s, trainable %v (%d tokens)", doc.Status, doc.RolloutType, doc.Trainable, doc.Stats.TrainableTokens)
	}
	if doc.CaptureLevel != record.LevelLogprobs && doc.CaptureLevel != record.LevelText {
		t.Errorf("capture level %q", doc.CaptureLevel)
	}
	if len(doc.FailedCalls) > 0 {
		t.Errorf("failed calls: %+v", doc.FailedCalls)
	}
	work := rows(doc, export.Agent)
	if len(work) != 1 || work[0].NTurns != 4 || len(work[0].InputIDs) != 0 || work[0].Trainable {
		t.Fatalf("rows: %+v, want one of four turns without tokens", doc.Sequences)
	}
	for i, turn := range doc.Turns {
		if i > 0 && (turn.Link != "messages" || turn.ParentID != doc.Turns[i-1].NodeID) {
			t.Errorf("turn %d is linked by %q to %q", i, turn.Link, turn.ParentID)
		}
	}
}

// llamaCpp starts the engine and waits until its model is loaded.
func llamaCpp(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + free.Addr().String()
	_, port, err := net.SplitHostPort(free.Addr().String())
	if err := errors.Join(err, free.Close()); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, wiretest.Shared(t, "engines", "llamacpp.sh"), installed(t, "llamacpp"), port)
	go io.Copy(io.Discard, p.stdout) //nolint:errcheck // so that it never blocks
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		select {
		case <-p.ended:
			t.Fatal("llama.cpp ended before it answered")
		default:
		}
		if res, err := http.Get(url + "/health"); err == nil {
			res.Body.Close() //nolint:errcheck // only the status matters
			if res.StatusCode == http.StatusOK {
				return url
			}
		}
	}
	t.Fatal("llama.cpp does not answer")
	return ""
}
