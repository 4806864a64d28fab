package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// The hosted providers that are spoken to in their own dialects.
const (
	providerOpenAI    = "openai"
	providerAnthropic = "anthropic"
	providerGoogle    = "google"
)

// nativeDialects are those that a hosted provider speaks itself, by the name that the operator gave it.
func nativeDialects(provider string) []record.Dialect {
	switch provider {
	case providerOpenAI:
		return []record.Dialect{record.OpenAIResponses, record.OpenAIChat}
	case providerAnthropic:
		return []record.Dialect{record.AnthropicMessages}
	case providerGoogle:
		return []record.Dialect{record.Google}
	}
	return nil
}

// nativeDefaults are where a provider's API lies when the URL has no path, and what carries its key.
func nativeDefaults(provider string) (path, authHeader string) {
	switch provider {
	case providerAnthropic:
		return "/v1", "X-Api-Key"
	case providerGoogle:
		return "/v1beta", "X-Goog-Api-Key"
	}
	return "/v1", "Authorization"
}

// Model is the model's name that the operator gave, "" for none.
func (u *Upstream) Model() string { return u.model }

// ChatPath is where the engine takes a call in the chat or completions dialect. Hosted providers whose own dialect is another
// have a place of its own for chat, where the key goes as it does at OpenAI (bearer).
func (u *Upstream) ChatPath(d record.Dialect) (path string, bearer bool) {
	path = "/chat/completions"
	if d == record.OpenAICompletions {
		path = "/completions"
	}
	_, own := nativeDefaults(u.provider)
	bearer = own != "Authorization" && u.authHeader == own
	if u.provider == providerGoogle {
		path = "/openai" + path
	}
	return path, bearer
}

// GooglePath is where Google's API has a method of a model. The name came from outside: whatever is in it, it stays one part
// of the path.
func GooglePath(model, method string) string {
	return "/models/" + url.PathEscape(model) + ":" + method
}

// anthropicVersion is the API version of what we ask ourselves; a harness names its own.
const anthropicVersion = "2023-06-01"

// ownHeader is what a request of ours needs beside the key.
func (u *Upstream) ownHeader() http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if _, header := nativeDefaults(providerAnthropic); u.provider == providerAnthropic || u.authHeader == header {
		h.Set("Anthropic-Version", anthropicVersion)
	}
	return h
}

// probeNative asks a hosted provider in its own dialect. Its calls are relayed byte for byte, so nothing beyond the text
// can be asked for.
func (u *Upstream) probeNative(ctx context.Context, p *Profile) *Profile {
	p.Level, p.Whole, p.Stream = record.LevelText, Way{Level: record.LevelText}, Way{Level: record.LevelText}
	if p.Served == "" { // which model it would be is not ours to choose
		return p
	}
	status, problem := u.askNative(ctx, p, false)
	if status == 0 || status >= 500 || status == http.StatusTooManyRequests {
		return u.unmeasured("%s", problem)
	}
	if problem != "" {
		p.find("the provider refuses model calls (%s): check --model, --upstream-key, --auth-header and --provider", problem)
		return p
	}
	_, problem = u.askNative(ctx, p, true)
	if p.ToolSupport = problem == ""; !p.ToolSupport {
		p.find("the provider refuses calls with tools (%s): choose a model that takes tools", problem)
	}
	if ctx.Err() != nil {
		return u.unmeasured("it took too long to answer the probe: %v", ctx.Err())
	}
	return p
}

// askNative makes one call and says what came of it; problem is "" for an answer.
func (u *Upstream) askNative(ctx context.Context, p *Profile, tools bool) (status int, problem string) {
	var path, sign string
	var params []Param
	switch {
	case slices.Contains(p.Native, record.AnthropicMessages):
		path, sign = "/messages", "content"
		params = []Param{{"model", string(jsonscan.AppendQuote(nil, p.Served))}, {"max_tokens", "32"}, probeMessages}
		if tools {
			params = append(params, Param{"tools", `[{` + probeTool + `,"input_schema":` + probeSchema + `}]`})
		}
	case slices.Contains(p.Native, record.Google):
		path, sign = GooglePath(p.Served, "generateContent"), "candidates"
		params = []Param{{"contents", `[{"role":"user","parts":[{"text":"Say hello."}]}]`}, {"generationConfig", `{"maxOutputTokens":32}`}}
		if tools {
			params = append(params, Param{"tools", `[{"functionDeclarations":[{` + probeTool + `,"parameters":` + probeSchema + `}]}]`})
		}
	default:
		q := question{params: []Param{probeShort, probeMessages}}
		if tools {
			q.params = append(q.params, probeTools, Param{"temperature", "0.7"})
		}
		a := u.ask(ctx, p, q)
		return a.status, a.problem
	}
	status, data, err := u.get(ctx, &Request{Method: http.MethodPost, Path: path, Header: u.ownHeader(), Body: chatBody("", params)})
	if err != nil {
		return 0, u.withoutKey(err.Error())
	}
	data = []byte(u.withoutKey(string(data)))
	var answer map[string]json.RawMessage
	switch {
	case status != http.StatusOK:
		return status, fmt.Sprintf("%d: %s", status, Excerpt(data))
	case json.Unmarshal(data, &answer) != nil || answer[sign] == nil:
		return status, "no model answer: " + Excerpt(data)
	}
	return status, ""
}
