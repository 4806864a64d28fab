package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// modelList is what an endpoint says about what it serves.
type modelList struct {
	names []string
	// owner is what the engine calls the models' owner: vllm, sglang and llamacpp name themselves there.
	owner   string
	vocab   int    // llama.cpp's, 0 when unknown
	problem string // why there are no names
}

// list asks GET /models. An endpoint that answers, but has no such list, has none.
func (u *Upstream) list(ctx context.Context) (modelList, error) {
	r := &Request{Method: http.MethodGet, Path: "/models", Header: u.ownHeader()}
	status, body, err := u.get(ctx, r)
	if err != nil {
		return modelList{}, fmt.Errorf("it cannot be reached: %w", err)
	}
	if status >= 500 { // still loading, or down behind a gateway
		return modelList{}, fmt.Errorf("it is not ready: GET /models answers %d", status)
	}
	var answer struct {
		Data []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
			Meta  struct {
				Vocab int `json:"n_vocab"`
			} `json:"meta"`
		} `json:"data"`
		Models []struct {
			Name string `json:"name"`
		} `json:"models"` // Google
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return modelList{problem: fmt.Sprintf("GET /models answers %d: check --upstream-key, --auth-header and --provider", status)}, nil
	}
	if status != http.StatusOK {
		return modelList{problem: fmt.Sprintf("GET /models answers %d", status)}, nil
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return modelList{problem: "GET /models answers no JSON list"}, nil
	}
	l := modelList{problem: "GET /models lists none"}
	for _, m := range answer.Data {
		l.names = append(l.names, m.ID)
		if m.Owner == "vllm" || m.Owner == "sglang" || m.Owner == "llamacpp" {
			l.owner = m.Owner
		}
		if u.model == "" || u.model == m.ID {
			l.vocab = m.Meta.Vocab
		}
	}
	if len(answer.Data) == 0 {
		for _, m := range answer.Models {
			l.names = append(l.names, strings.TrimPrefix(m.Name, "models/"))
		}
	}
	return l, nil
}

// version asks GET /version, vLLM's, and /server_info, SGLang's; "" where there is no such route.
func (u *Upstream) version(ctx context.Context) string {
	for _, path := range []string{"/version", "/server_info", "/get_server_info"} {
		if v := u.told(ctx, path, "version"); v != "" {
			return v
		}
	}
	return ""
}

// weightVersion asks for SGLang's name of the weights that it serves.
func (u *Upstream) weightVersion(ctx context.Context) string {
	for _, path := range []string{"/model_info", "/get_model_info"} {
		if v := u.told(ctx, path, "weight_version"); v != "" {
			return v
		}
	}
	return ""
}

// told is one text in the answer of one of the engine's own routes.
func (u *Upstream) told(ctx context.Context, path, field string) string {
	status, body, err := u.get(ctx, &Request{Method: http.MethodGet, Path: path, AtOrigin: true})
	var answer map[string]json.RawMessage
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return asText(answer[field])
}

// measureTokenizer asks the engine's own tokenizer routes.
func (u *Upstream) measureTokenizer(ctx context.Context, p *Profile) {
	body := chatBody(p.Served, []Param{{"prompt", `"hello"`}, {"content", `"hello"`}}) // llama.cpp reads content
	data, err := u.post(ctx, "/tokenize", body)
	if err != nil {
		return
	}
	ids, err := tokensOf(data)
	if err != nil || len(ids) == 0 {
		return
	}
	p.Tokenizes = true
	text, err := u.detokenize(ctx, p.Served, ids)
	p.Detokenizes = err == nil && strings.Contains(text, "hello")
}

// get makes a request and reads the answer.
func (u *Upstream) get(ctx context.Context, r *Request) (status int, body []byte, err error) {
	resp, err := u.Do(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = ReadAll(resp.Body, 0)
	return resp.Status, body, err
}
