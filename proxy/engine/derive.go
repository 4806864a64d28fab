package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"captureproxy/internal/jsonscan"
)

// DerivePrompt asks the engine for the ids of the prompt that it makes of a chat request: its template renders the
// messages (llama.cpp's POST /apply-template), its tokenizer spells the text (/tokenize). Whoever uses them compares their
// count with the usage of the answer: only an equal one says that they are the engine's prompt.
func (u *Upstream) DerivePrompt(ctx context.Context, body []byte) ([]int32, error) {
	data, err := u.post(ctx, "/apply-template", body)
	if err != nil {
		return nil, err
	}
	var rendered struct {
		Prompt *string `json:"prompt"`
	}
	if json.Unmarshal(data, &rendered) != nil || rendered.Prompt == nil {
		return nil, errors.New("the engine's template gave no prompt: " + Excerpt(data))
	}
	request := append([]byte(`{"add_special":true,"parse_special":true,"content":`), jsonscan.AppendQuote(nil, *rendered.Prompt)...)
	if data, err = u.post(ctx, "/tokenize", append(request, '}')); err != nil {
		return nil, err
	}
	return tokensOf(data)
}

// Detokenize asks the engine for the text of ids, special tokens included.
func (u *Upstream) Detokenize(ctx context.Context, ids []int32) (string, error) {
	return u.detokenize(ctx, u.Profile().Served, ids)
}

func (u *Upstream) detokenize(ctx context.Context, model string, ids []int32) (string, error) {
	data, err := u.post(ctx, "/detokenize", chatBody(model, []Param{{"skip_special_tokens", "false"}, {"tokens", intList(ids)}}))
	if err != nil {
		return "", err
	}
	// vLLM says prompt, SGLang text, llama.cpp content.
	var answer struct {
		Prompt, Text, Content *string
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", fmt.Errorf("the engine's /detokenize: %w", err)
	}
	for _, text := range []*string{answer.Prompt, answer.Text, answer.Content} {
		if text != nil {
			return *text, nil
		}
	}
	return "", errors.New("the engine's /detokenize gave no text: " + Excerpt(data))
}

// tokensOf reads the ids in a tokenizer route's answer.
func tokensOf(data []byte) ([]int32, error) {
	cur := jsonscan.New(data)
	var ids []int32
	found := false
	for o := cur.Object(); o.Next(); {
		if string(o.Key) != "tokens" {
			cur.Skip()
			continue
		}
		list, array, whole := cur.AppendInts(nil)
		if !whole {
			return nil, errors.New("the engine's tokenizer gave an id that is no whole number of 32 bits")
		}
		ids, found = list, array
	}
	if cur.End() != nil || !found {
		return nil, errors.New("the engine's tokenizer gave no ids: " + Excerpt(data))
	}
	return ids, nil
}

// post asks one of the engine's own routes, at its origin.
func (u *Upstream) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	status, data, err := u.get(ctx, &Request{Method: http.MethodPost, Path: path, AtOrigin: true, Header: http.Header{"Content-Type": {"application/json"}}, Body: body})
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("the engine's %s answers %d: %s", path, status, Excerpt(data))
	}
	return data, nil
}
