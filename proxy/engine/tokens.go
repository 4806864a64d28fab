package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"captureproxy/internal/jsonscan"
)

// CountTokens asks the engine's own tokenizer (vLLM's and SGLang's POST /tokenize) how many tokens a conversation has, the
// generation prompt included. messages and tools are JSON in the chat format; tools may be nil.
func (u *Upstream) CountTokens(ctx context.Context, messages, tools []byte) (int, error) {
	body := []byte(`{"add_generation_prompt":true`)
	if served := u.Profile().Served; served != "" {
		body = append(body, `,"model":`...)
		body = jsonscan.AppendQuote(body, served)
	}
	body = append(append(body, `,"messages":`...), messages...)
	if tools != nil {
		body = append(append(body, `,"tools":`...), tools...)
	}
	body = append(body, '}')
	resp, err := u.Do(ctx, &Request{Method: http.MethodPost, Path: "/tokenize", AtOrigin: true, Header: http.Header{"Content-Type": {"application/json"}}, Body: body})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := ReadAll(resp.Body, 0)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Count int `json:"count"`
	}
	if resp.Status != http.StatusOK || json.Unmarshal(data, &answer) != nil || answer.Count <= 0 {
		return 0, fmt.Errorf("the engine counts no tokens: %d %s", resp.Status, Excerpt(data))
	}
	return answer.Count, nil
}
