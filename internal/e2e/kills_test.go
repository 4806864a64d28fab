//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"captureproxy/internal/record"
)

// killRounds is how often the proxy is killed; KILL_ROUNDS says another number (make kills).
const killRounds = 20

// TestKilledUnderLoad kills the real proxy at random moments while fifty clients stream. Every answer whose end a client saw is
// in the documents afterwards, with its own text; the store opens every time; the sessions go on under their keys.
func TestKilledUnderLoad(t *testing.T) {
	const clients = 50
	rounds := killRounds
	if n, err := strconv.Atoi(os.Getenv("KILL_ROUNDS")); err == nil {
		rounds = n
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	engine, data := fakeEngine(t, "--per-token", "1ms", "--steps", "1"), t.TempDir()
	start := func() *proxy {
		return serve(t, "--listen", addr, "--upstream", engine, "--data", data, "--log-level", "error")
	}
	p := start()
	url := p.url // of every one
	var sessions []string
	for range clients {
		sessions = append(sessions, p.session(t))
	}

	var stop atomic.Bool
	var broken atomic.Int64
	var wg sync.WaitGroup
	seen := make([]map[string]string, clients) // question → answer, of those whose end was seen
	for i, session := range sessions {
		seen[i] = map[string]string{}
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				question := fmt.Sprintf("question %d of client %d", n, i)
				answer, err := streamed(url, session, question)
				if err != nil { // the proxy is dead, or died in the middle
					broken.Add(1)
					time.Sleep(20 * time.Millisecond)
					continue
				}
				seen[i][question] = answer
			}
		})
	}
	for round := range rounds {
		time.Sleep(time.Duration(50+rand.IntN(350)) * time.Millisecond)
		p.kill()
		p = start()
		if running := p.control(t, http.MethodGet, "/ready", ""); len(running) == 0 {
			t.Errorf("round %d: not ready", round)
		}
	}
	time.Sleep(200 * time.Millisecond)
	stop.Store(true)
	wg.Wait()

	acknowledged, recorded := 0, 0
	for i, session := range sessions {
		doc := document(t, p.control(t, http.MethodGet, "/sessions/"+session+"/rollout?include_messages=true&include_discarded=true", ""))
		if doc.Status != record.Running {
			t.Errorf("client %d: session is %s", i, doc.Status)
		}
		answers := map[string]string{}
		for _, turn := range doc.Turns {
			answers[content(turn.RequestMessages[len(turn.RequestMessages)-1])] = content(turn.ResponseMessage)
			if turn.Outcome != record.Complete {
				t.Errorf("client %d call %d: %s %v", i, turn.Call, turn.Outcome, turn.Validation)
			}
		}
		for question, answer := range seen[i] {
			if got, ok := answers[question]; !ok || got != answer {
				t.Errorf("client %d: %q was answered %q, the document has %q (%v)", i, question, answer, got, ok)
			}
		}
		acknowledged, recorded = acknowledged+len(seen[i]), recorded+len(doc.Turns)
	}
	t.Logf("%d kills, %d calls broken by them, %d answers seen, %d turns recorded", rounds, broken.Load(), acknowledged, recorded)
	if acknowledged < clients || broken.Load() == 0 {
		t.Errorf("%d answers seen, %d calls broken: the test saw no load", acknowledged, broken.Load())
	}
}

func content(message []byte) string {
	var m struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil {
		return ""
	}
	return m.Content
}

// streamed makes one streamed call. An answer is returned only if its end was seen.
func streamed(url, session, question string) (string, error) {
	body := fmt.Sprintf(`{"model":"m","stream":true,"max_tokens":60,"messages":[{"role":"user","content":%q}]}`, question)
	req, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+session)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			return answer, nil
		}
		var chunk struct {
			Choices []struct {
				Delta message `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return "", err
		}
		for _, c := range chunk.Choices {
			answer += c.Delta.Content
		}
	}
	return "", errors.New("cut")
}
