package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"captureproxy/internal/record"
)

// seat is how a connection's calls reach its session.
type seat struct{ session, key, path string }

// sessions is an API by which a peer's sessions are made, and read back as that peer hands them to a trainer.
type sessions interface {
	open(ctx context.Context) (seat, error)
	// read returns a session's calls by their numbers. Records that name no call are left out.
	read(ctx context.Context, session string) (map[int64]*record.Call, error)
}

func (p Peer) sessions() sessions {
	at := peerAPI{root: "http://" + p.Addr, peer: p}
	switch p.Sessions {
	case sessionsOpenEnv:
		return openEnv{at}
	case sessionsRLLM:
		return rllm{at}
	}
	return nil
}

// peerAPI asks a peer's control API.
type peerAPI struct {
	root string
	peer Peer
}

// ask makes a request and decodes its answer. Only the address and what the peer says are in an error, never a header.
func (a peerAPI) ask(ctx context.Context, method, path string, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.root+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range a.peer.Headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(resp.Body, 300))
		if err != nil {
			return err
		}
		return fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, bytes.TrimSpace(said))
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (a peerAPI) create(ctx context.Context) (string, error) {
	var made struct {
		SessionID string `json:"session_id"`
	}
	if err := a.ask(ctx, http.MethodPost, "/sessions", "{}", &made); err != nil {
		return "", err
	}
	if made.SessionID == "" {
		return "", fmt.Errorf("POST /sessions: an answer without a session_id")
	}
	return made.SessionID, nil
}

// openEnv is the API of OpenEnv's capture server, which capture-proxy answers too.
type openEnv struct{ peerAPI }

func (o openEnv) open(ctx context.Context) (seat, error) {
	id, err := o.create(ctx)
	return seat{session: id, key: id, path: o.peer.Path}, err
}

func (o openEnv) read(ctx context.Context, session string) (map[int64]*record.Call, error) {
	var got struct {
		Entries []struct {
			Request struct {
				Messages json.RawMessage `json:"messages"`
			} `json:"request"`
			Response struct {
				Choices []struct {
					Message json.RawMessage `json:"message"`
				} `json:"choices"`
			} `json:"response"`
			PromptIDs  []int32    `json:"prompt_token_ids"`
			SampledIDs []int32    `json:"completion_token_ids"`
			Logprobs   []*float64 `json:"per_token_logps"`
		} `json:"entries"`
	}
	if err := o.ask(ctx, http.MethodGet, "/sessions/"+session+"/trace_entries", "", &got); err != nil {
		return nil, err
	}
	held := map[int64]*record.Call{}
	for _, e := range got.Entries {
		var message []byte
		if len(e.Response.Choices) == 1 {
			message = e.Response.Choices[0].Message
		}
		hold(held, e.Request.Messages, message, e.PromptIDs, e.SampledIDs, e.Logprobs)
	}
	return held, nil
}

// rllm is the API of rllm-model-gateway.
type rllm struct{ peerAPI }

func (r rllm) open(ctx context.Context) (seat, error) {
	id, err := r.create(ctx)
	return seat{session: id, path: "/sessions/" + id + r.peer.Path}, err
}

func (r rllm) read(ctx context.Context, session string) (map[int64]*record.Call, error) {
	var traces []struct {
		Messages   json.RawMessage `json:"messages"`
		Message    json.RawMessage `json:"response_message"`
		PromptIDs  []int32         `json:"prompt_token_ids"`
		SampledIDs []int32         `json:"completion_token_ids"`
		Logprobs   []*float64      `json:"logprobs"`
	}
	if err := r.ask(ctx, http.MethodGet, "/sessions/"+session+"/traces", "", &traces); err != nil {
		return nil, err
	}
	held := map[int64]*record.Call{}
	for _, t := range traces {
		hold(held, t.Messages, t.Message, t.PromptIDs, t.SampledIDs, t.Logprobs)
	}
	return held, nil
}

// hold files a peer's record under the call that its request names, in the shape in which the check reads our own. A logprob
// that is null equals nothing.
func hold(held map[int64]*record.Call, messages, message []byte, prompt, sampled []int32, logprobs []*float64) {
	m, ok := findMark(messages)
	if !ok {
		return
	}
	choice := record.Choice{PromptIDs: prompt, SampledIDs: sampled, Message: message}
	for _, p := range logprobs {
		if p == nil {
			choice.Logprobs = append(choice.Logprobs, math.NaN())
			continue
		}
		choice.Logprobs = append(choice.Logprobs, *p)
	}
	held[m.number] = &record.Call{Outcome: record.Complete, Choices: []record.Choice{choice}}
}
