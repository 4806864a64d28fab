package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"captureproxy/internal/bench"
)

// serveBench serves one of the bench's own servers in this process.
func serveBench(t *testing.T, serve func(context.Context, net.Listener) error) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(t.Context(), l) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// loser is a gateway with the API of rllm's. Of three calls it records one as it was, loses one, and gives one the ids of another.
type loser struct {
	engine string
	mute   bool // it shows nobody what it recorded

	mu               sync.Mutex
	sessions         int
	own, lost, wrong int
	traces           map[string][]map[string]any
	problem          error
}

func (l *loser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // sessions, ID, what
	var answer any
	switch {
	case len(parts) == 1:
		l.sessions++
		answer = map[string]string{"session_id": strconv.Itoa(l.sessions)}
	case parts[2] == "traces" && l.mute:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case parts[2] == "traces":
		answer = l.traces[parts[1]]
	default:
		body, err := l.call(parts[1], r.Body)
		if err != nil {
			l.problem = err
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer = json.RawMessage(body)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		l.problem = err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // the client may be gone
}

func (l *loser) call(session string, body io.Reader) ([]byte, error) {
	asked, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	resp, err := http.Post("http://"+l.engine+"/v1/chat/completions", "application/json", bytes.NewReader(asked))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var request struct{ Messages json.RawMessage }
	var answer struct {
		Choices []struct {
			Message  json.RawMessage
			TokenIDs []int `json:"token_ids"`
			Logprobs struct{ Content []struct{ Logprob float64 } }
		}
		PromptIDs []int `json:"prompt_token_ids"`
	}
	if err := json.Unmarshal(asked, &request); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(said, &answer); err != nil {
		return nil, err
	}
	choice := answer.Choices[0]
	var logprobs []float64
	for _, row := range choice.Logprobs.Content {
		logprobs = append(logprobs, row.Logprob)
	}
	switch (l.own + l.lost + l.wrong) % 3 {
	case 1:
		l.lost++
		return said, nil
	case 2:
		l.wrong++
		choice.TokenIDs[0]++
	default:
		l.own++
	}
	l.traces[session] = append(l.traces[session], map[string]any{
		"messages": request.Messages, "response_message": choice.Message, "prompt_token_ids": answer.PromptIDs,
		"completion_token_ids": choice.TokenIDs, "logprobs": logprobs,
	})
	return said, nil
}

// Other proxies are counted as they are: what they refuse is no call, what they lose or mix is found.
func TestBenchCountsWhatPeersDo(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	engine := serveBench(t, bench.Engine)
	plain := serveBench(t, func(ctx context.Context, l net.Listener) error { return bench.Bare(ctx, l, "http://"+engine) })
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(broken.Close)
	gateway := &loser{engine: engine, traces: map[string][]map[string]any{}}
	losing := httptest.NewServer(gateway)
	t.Cleanup(losing.Close)
	silent := httptest.NewServer(&loser{engine: engine, mute: true, traces: map[string][]map[string]any{}})
	t.Cleanup(silent.Close)

	var peers []bench.Peer
	for _, text := range []string{
		"plain=http://" + plain + ",pid=" + strconv.Itoa(os.Getpid()), "broken=" + broken.URL, "losing=" + losing.URL + ",sessions=rllm",
		"silent=" + silent.URL + ",sessions=rllm",
	} {
		p, err := bench.ParsePeer(text)
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, p)
	}
	opts := bench.Options{Host: bench.Host{Binary: binary, Name: "capture-proxy"}, Dir: t.TempDir(), Engine: engine}
	report, err := bench.Compare(t.Context(), opts, bench.TinyPeers(), peers)
	if err != nil {
		t.Fatal(err)
	}
	gateway.mu.Lock()
	defer gateway.mu.Unlock()
	if gateway.problem != nil {
		t.Fatal(gateway.problem)
	}
	ways := map[string]bench.Way{}
	for _, w := range report.Ways {
		ways[w.Name] = w
	}
	for _, name := range []string{"direct", "bare proxy", "capture-proxy", "plain"} {
		if w := ways[name]; w.Errors != 0 || w.Answered == 0 || len(w.Calls) != 2 || len(w.Problems) != 0 {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := ways["capture-proxy"]; w.Records == nil || w.Records.Own != w.Answered || w.CPU == nil {
		t.Errorf("capture-proxy: %+v", w)
	}
	if w := ways["plain"]; w.Records != nil || w.CPU == nil {
		t.Errorf("plain: %+v", w)
	}
	if w := ways["broken"]; w.Answered != 0 || w.Errors == 0 || w.Calls[4].Max != 0 || w.AddedP50 != nil || w.CPU != nil || w.Records != nil {
		t.Errorf("broken: %+v", w)
	}
	want := bench.PeerRecords{Answered: gateway.own + gateway.lost + gateway.wrong, Own: gateway.own, Missing: gateway.lost, Wrong: gateway.wrong}
	if w := ways["losing"]; w.Records == nil || *w.Records != want || w.Errors != 0 || w.Answered != want.Answered || want.Wrong == 0 || len(w.Problems) == 0 {
		t.Errorf("losing: %+v, its records %+v, want %+v", w, w.Records, want)
	}
	if w := ways["silent"]; w.Records == nil || w.Records.Unread != w.Answered || w.Records.Own != 0 || len(w.Problems) == 0 || w.Errors != 0 {
		t.Errorf("silent: %+v, its records %+v", w, w.Records)
	}
	var table bytes.Buffer
	if err := report.Table(&table); err != nil {
		t.Error(err)
	}
	if !strings.Contains(table.String(), want.String()) {
		t.Errorf("the table does not say %q:\n%s", want.String(), table.String())
	}

	// A peer that is not there, or has not the API that is said, is named before anything is measured.
	for _, text := range []string{"gone=http://127.0.0.1:1", "deaf=" + broken.URL + ",sessions=openenv"} {
		p, err := bench.ParsePeer(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bench.Compare(t.Context(), opts, bench.TinyPeers(), []bench.Peer{p}); err == nil || !strings.Contains(err.Error(), p.Name) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
