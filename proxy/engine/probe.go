package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"

	"captureproxy/internal/record"
)

// The probe's calls are short and plain, so that every engine takes them.
const (
	probeMessages = `"messages":[{"role":"user","content":"Say hello."}]`
	probeTools    = `"tools":[{"type":"function","function":{"name":"shell","description":"Run a command","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}]`
)

// probe measures the endpoint (WIRE 5). nil when it cannot be reached.
func (u *Upstream) probe(ctx context.Context) *Profile {
	models, owner, err := u.models(ctx)
	if err != nil {
		return nil
	}
	p := &Profile{Measured: true, Provider: u.provider, LogprobsMode: record.LogprobsUnknown, Models: models, Served: u.model, Version: u.version(ctx)}
	if p.Provider == "" {
		p.Provider = owner
	}
	switch {
	case p.Served != "":
	case len(models) == 1:
		p.Served = models[0]
	case len(models) == 0:
		p.find("the engine lists no models: name one with --model")
	default:
		p.find("the engine serves %d models (%s): name one with --model", len(models), strings.Join(models, ", "))
	}
	var answers []*asked
	if u.forced != "" {
		p.Level, p.StreamCapture = u.forced, u.forced == record.LevelTokens
	} else {
		answers = u.measureLevel(ctx, p)
	}
	if p.Level != record.LevelText {
		p.LogprobsMode = u.logprobsMode(ctx, p)
	}
	tools := u.ask(ctx, p, `"max_tokens":512,"messages":[{"role":"user","content":"Call the shell tool with the command: echo hello"}],`+probeTools)
	p.ToolSupport = tools.answered()
	if !p.ToolSupport {
		p.find("the engine refuses calls with tools (%s): start vLLM with --enable-auto-tool-choice and --tool-call-parser", tools.problem)
	}
	for _, a := range append(answers, tools) {
		for _, c := range a.answer.Choices {
			if c.message.reasoningName != "" {
				p.ReasoningField = c.message.reasoningName
			}
		}
	}
	if ctx.Err() != nil { // out of time: what was not answered says nothing about what the engine can do
		return nil
	}
	return p
}

// measureLevel finds out what can be captured, streamed and whole.
func (u *Upstream) measureLevel(ctx context.Context, p *Profile) []*asked {
	streamed := u.ask(ctx, p, `"max_tokens":16,"return_token_ids":true,"logprobs":true,"top_logprobs":0,"stream":true,"stream_options":{"include_usage":true},`+probeMessages)
	whole := u.ask(ctx, p, `"max_tokens":16,"return_token_ids":true,"logprobs":true,"top_logprobs":0,`+probeMessages)
	if whole.rows() == 0 && whole.answered() { // llama.cpp gives no rows for 0
		if again := u.ask(ctx, p, `"max_tokens":16,"return_token_ids":true,"logprobs":true,"top_logprobs":1,`+probeMessages); again.rows() > 0 {
			p.TopLogprobs = 1
			whole = again
			streamed = u.ask(ctx, p, `"max_tokens":16,"return_token_ids":true,"logprobs":true,"top_logprobs":1,"stream":true,"stream_options":{"include_usage":true},`+probeMessages)
		}
	}
	p.Level = record.LevelText
	switch {
	case streamed.complete():
		p.Level, p.StreamCapture = record.LevelTokens, true
	case whole.rows() > 0 || streamed.rows() > 0:
		p.Level = record.LevelLogprobs
		p.StreamCapture = streamed.rows() > 0
		if whole.complete() {
			p.find("the engine returns token ids of whole answers only: streamed calls are captured without them")
		}
	}
	return []*asked{streamed, whole}
}

func (p *Profile) find(format string, args ...any) {
	p.Findings = append(p.Findings, fmt.Sprintf(format, args...))
}

// models lists the served names, and what the engine calls their owner: vllm, sglang and llamacpp name themselves there. An
// endpoint that answers, but has no such list, has none.
func (u *Upstream) models(ctx context.Context) (names []string, owner string, err error) {
	status, body, err := u.get(ctx, &Request{Method: http.MethodGet, Path: "/models"})
	if err != nil {
		return nil, "", err
	}
	if status >= 500 { // still loading, or down behind a gateway
		return nil, "", fmt.Errorf("the engine answers %d", status)
	}
	var list struct {
		Data []struct {
			ID    string `json:"id"`
			Owner string `json:"owned_by"`
		} `json:"data"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil {
		return nil, "", nil
	}
	for _, m := range list.Data {
		names = append(names, m.ID)
		if m.Owner == "vllm" || m.Owner == "sglang" || m.Owner == "llamacpp" {
			owner = m.Owner
		}
	}
	return names, owner, nil
}

// version asks vLLM's GET /version; "" where there is no such route.
func (u *Upstream) version(ctx context.Context) string {
	status, body, err := u.get(ctx, &Request{Method: http.MethodGet, Path: "/version", AtOrigin: true})
	var answer struct {
		Version string `json:"version"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return answer.Version
}

func (u *Upstream) get(ctx context.Context, r *Request) (status int, body []byte, err error) {
	resp, err := u.Do(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = ReadAll(resp.Body, 0)
	return resp.Status, body, err
}

// asked is the answer to one of the probe's calls.
type asked struct {
	answer  Answer
	status  int
	problem string // why there is no answer
}

func (a *asked) answered() bool { return a.problem == "" && len(a.answer.Choices) > 0 }

func (a *asked) rows() int {
	if !a.answered() {
		return 0
	}
	return len(a.answer.Choices[0].Logprobs)
}

// complete says whether prompt ids, sampled ids and logprobs are all there and agree with the usage.
func (a *asked) complete() bool {
	if !a.answered() || a.answer.Usage.Prompt == nil || a.answer.Usage.Completion == nil {
		return false
	}
	c := a.answer.Choices[0]
	n := len(c.SampledIDs)
	return n > 0 && n == len(c.Logprobs) && int64(n) == *a.answer.Usage.Completion && int64(len(a.answer.Prompt(c))) == *a.answer.Usage.Prompt
}

// ask makes one chat call. members are those of the body, without the model.
func (u *Upstream) ask(ctx context.Context, p *Profile, members string) *asked {
	name, err := json.Marshal(p.Served)
	if err != nil {
		return &asked{problem: err.Error()}
	}
	body := "{" + members + "}"
	if p.Served != "" {
		body = `{"model":` + string(name) + "," + members + "}"
	}
	resp, err := u.Do(ctx, &Request{Method: http.MethodPost, Path: "/chat/completions", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)})
	if err != nil {
		return &asked{problem: err.Error()}
	}
	defer resp.Body.Close()
	a := &asked{status: resp.Status}
	data, err := ReadAll(resp.Body, 0)
	switch {
	case err != nil:
		a.problem = err.Error()
	case resp.Status != http.StatusOK:
		a.problem = fmt.Sprintf("%d: %s", resp.Status, Excerpt(data))
	case LooksLikeSSE(data):
		er := NewEventReader(strings.NewReader(string(data)), nil)
		for ev, err := er.Next(); err == nil; ev, err = er.Next() {
			a.answer.Chunk(ev.Data, &Strip{})
		}
		if a.answer.Error != nil {
			a.problem = Excerpt(a.answer.Error)
		}
	default:
		if _, ok := a.answer.Whole(data, &Strip{}); !ok {
			a.problem = "no model answer: " + Excerpt(data)
		}
	}
	return a
}

// logprobsMode measures whether logprobs are those of the sampled distribution: at temperature 2 a processed engine halves
// the gap of the two best tokens, a raw one does not move it. A gap beyond 100 is a sentinel, one under 0.5 says nothing.
func (u *Upstream) logprobsMode(ctx context.Context, p *Profile) record.LogprobsMode {
	one := u.gap(ctx, p, "1")
	two := u.gap(ctx, p, "2")
	switch {
	case math.IsNaN(one) || math.IsNaN(two) || one > 100 || one < 0.5:
		return record.LogprobsUnknown
	case math.Abs(two-one/2) < 0.1*one:
		return record.LogprobsProcessed
	case math.Abs(two-one) < 0.1*one:
		return record.LogprobsRaw
	}
	return record.LogprobsUnknown
}

// gap returns the distance between the two best tokens' logprobs of a first token, NaN when it cannot be had.
func (u *Upstream) gap(ctx context.Context, p *Profile, temperature string) float64 {
	name, err := json.Marshal(p.Served)
	if err != nil {
		return math.NaN()
	}
	body := `{"model":` + string(name) + `,"max_tokens":1,"logprobs":true,"top_logprobs":2,"temperature":` + temperature + `,` + probeMessages + `}`
	resp, err := u.Do(ctx, &Request{Method: http.MethodPost, Path: "/chat/completions", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)})
	if err != nil {
		return math.NaN()
	}
	defer resp.Body.Close()
	data, err := ReadAll(resp.Body, 0)
	if err != nil {
		return math.NaN()
	}
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Content []struct {
					Top []struct {
						Logprob *float64 `json:"logprob"`
					} `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &answer) != nil || len(answer.Choices) == 0 || len(answer.Choices[0].Logprobs.Content) == 0 {
		return math.NaN()
	}
	top := answer.Choices[0].Logprobs.Content[0].Top
	if len(top) < 2 || top[0].Logprob == nil || top[1].Logprob == nil {
		return math.NaN()
	}
	return math.Abs(*top[0].Logprob - *top[1].Logprob)
}

// LooksLikeSSE says whether bytes begin like an event stream, whatever their label says.
func LooksLikeSSE(b []byte) bool {
	s := strings.TrimLeft(string(b[:min(len(b), 64)]), "\ufeff \t\r\n")
	for _, field := range []string{"data:", "event:", ":", "id:", "retry:"} {
		if strings.HasPrefix(s, field) {
			return true
		}
	}
	return false
}

// Excerpt is the beginning of an answer, on one line, for an error message.
func Excerpt(b []byte) string {
	const most = 300
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), 4*most)]), "\ufffd")), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
