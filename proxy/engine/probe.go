package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"captureproxy/internal/record"
)

// The probe's calls are short and plain, so that every engine takes them.
const probeTool = `"name":"shell","description":"Run a command"`

const probeSchema = `{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`

var (
	probePrompts = [...]Param{
		probeMessages,
		{"messages", `[{"role":"user","content":"hi"}]`},
		{"messages", `[{"role":"user","content":"Count from one to five."}]`},
		{"messages", `[{"role":"user","content":"What is the capital of France?"}]`},
	}
	probeMessages  = Param{"messages", `[{"role":"user","content":"Say hello."}]`}
	probeCallShell = Param{"messages", `[{"role":"user","content":"Call the shell tool with the command: echo hello"}]`}
	probeTools     = Param{"tools", `[{"type":"function","function":{` + probeTool + `,"parameters":` + probeSchema + `}}]`}
	probeShort     = Param{"max_tokens", "32"}
	probeStream    = []Param{{"stream", "true"}, {"stream_options", `{"include_usage":true}`}}
)

// probe measures the endpoint (WIRE 5). nil when it cannot be reached, or has trouble of its own just now.
func (u *Upstream) probe(ctx context.Context) *Profile {
	list, err := u.list(ctx)
	if err != nil {
		return u.unmeasured("%v", err)
	}
	p := &Profile{
		Measured: true, Provider: u.provider, LogprobsMode: record.LogprobsUnknown, Models: list.names, VocabSize: list.vocab, Native: nativeDialects(u.provider),
	}
	p.Served = u.served(p, list)
	if len(p.Native) > 0 {
		return u.probeNative(ctx, p)
	}
	if p.Provider == "" {
		p.Provider = list.owner
	}
	p.Version, p.WeightVersion = u.version(ctx), u.weightVersion(ctx)

	var answers []*asked
	if u.forced != "" {
		p.Level, p.StreamCapture = u.forced, u.forced == record.LevelTokens
		p.fill()
	} else if answers = u.measureLevel(ctx, p, list.owner); answers == nil {
		return nil
	}
	if p.Level != record.LevelText {
		p.LogprobsMode = u.logprobsMode(ctx, p)
	}
	if p.Level == record.LevelTokens && p.LogprobsMode == record.LogprobsRaw {
		p.find("its logprobs are raw, before temperature and truncation: train at temperature 1 without truncation, which sessions of purpose train set where " +
			"the harness sets no temperature, or start vLLM with --logprobs-mode processed_logprobs")
	}
	if u.forced != "" || slices.ContainsFunc(answers, (*asked).answered) { // else that is said already
		answers = append(answers, u.measureTools(ctx, p))
	}
	for _, a := range answers {
		for _, c := range a.answer.Choices {
			if c.message.reasoningName != "" {
				p.ReasoningField = c.message.reasoningName
			}
		}
	}
	u.measureTokenizer(ctx, p)
	if p.Level == record.LevelTokens && u.forced == "" {
		u.measureForced(ctx, p, answers)
	}
	if ctx.Err() != nil { // out of time: what was not answered says nothing about what the engine can do
		return u.unmeasured("it took too long to answer the probe: %v", ctx.Err())
	}
	return p
}

// served is the model to name, with a finding where it cannot be known.
func (u *Upstream) served(p *Profile, list modelList) string {
	names := list.names
	switch {
	case len(names) == 0 && u.model != "":
		p.find("the engine has no list of models (%s): whether it serves %q shows when it is called", list.problem, u.model)
		return u.model
	case u.model != "":
		return u.model
	case len(names) == 1:
		return names[0]
	case len(names) == 0:
		p.find("the engine has no list of models (%s): name one with --model", list.problem)
	default:
		const most = 20
		shown := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			shown += ", …"
		}
		p.find("the engine serves %d models (%s): name one with --model", len(names), shown)
	}
	return ""
}

func (p *Profile) find(format string, args ...any) {
	p.Findings = append(p.Findings, fmt.Sprintf(format, args...))
}

// measureTools finds out whether calls with tools are taken. Being cut by the cap says nothing against it. The call is
// streamed where streams carry ids: some engines lose the ids of what a parser holds back, and then whole answers it is.
func (u *Upstream) measureTools(ctx context.Context, p *Profile) *asked {
	q := question{params: []Param{{"max_tokens", "512"}, {"temperature", "0.7"}, probeCallShell, probeTools}}
	if u.forced == "" && p.Whole.Level == record.LevelTokens && p.Stream.Level == record.LevelTokens {
		q := question{way: p.Stream, params: slices.Concat(q.params, probeStream), own: p.Stream.names()}
		streamed := u.ask(ctx, p, q)
		for tries := 1; tries < len(probePrompts) && streamed.unlucky(); tries++ {
			streamed = u.ask(ctx, p, q)
		}
		if streamed.answered() {
			if p.ToolSupport = true; !streamed.complete() {
				p.Stream = streamed.taken(p.Stream)
				p.StreamCapture, p.Buffered = false, true
				p.find("its streams lose token ids beside tools, as vLLM before 0.13 does: streamed calls are made whole, and the harness gets the " +
					"answer as a stream when it is complete. A newer engine streams live")
			}
			return streamed
		}
	}
	tools := u.ask(ctx, p, q)
	p.ToolSupport = tools.answered()
	if !p.ToolSupport {
		p.find("the engine refuses calls with tools (%s): start vLLM with --enable-auto-tool-choice and --tool-call-parser, or choose a model that takes tools", tools.problem)
	}
	return tools
}

// The capture requests that engines know (WIRE 1, 2, 3).
var (
	// sglang's whole answers before return_token_ids.
	metaWay = Way{Params: []Param{{"return_prompt_token_ids", "true"}, {"return_meta_info", "true"}, {"logprobs", "true"}, {"top_logprobs", "0"}}}
	// sglang's late chunk.
	sglextWay = Way{
		Params: []Param{{"return_input_ids_in_sglext", "true"}, {"return_output_ids_in_sglext", "true"}, {"logprobs", "true"}, {"top_logprobs", "0"}},
		Header: [][2]string{{"x-sglext-ids-framed", "1"}},
	}
	// llama.cpp's whole answers; it gives no rows for 0.
	verboseWay = Way{Params: []Param{{"return_tokens", "true"}, {"verbose", "true"}, {"logprobs", "true"}, {"top_logprobs", "1"}}, Derive: true}
)

func (w Way) names() []string {
	out := make([]string, len(w.Params))
	for i, p := range w.Params {
		out[i] = p.Name
	}
	return out
}

// measureLevel finds out what can be captured, whole and streamed. nil when the engine has trouble of its own.
func (u *Upstream) measureLevel(ctx context.Context, p *Profile, owner string) []*asked {
	way, whole := u.measureWhole(ctx, p, owner)
	if !whole.answered() { // does it answer at all?
		plain := u.ask(ctx, p, question{params: []Param{probeShort, probeMessages}})
		if !plain.answered() {
			if plain.unwell() {
				u.unmeasured("%s", plain.problem)
				return nil
			}
			p.find("the engine refuses model calls (%s): check --model, --upstream-key, --auth-header and --provider", plain.problem)
		}
		p.Level, p.Whole, p.Stream = record.LevelText, Way{Level: record.LevelText}, Way{Level: record.LevelText}
		return []*asked{plain}
	}
	p.Whole = whole.taken(way)
	streamed := u.measureStream(ctx, p, whole)
	p.Level = p.Whole.Level
	if p.Stream.Level == record.LevelTokens || p.Level == record.LevelText {
		p.Level = p.Stream.Level
	}
	p.StreamCapture = p.Stream.Level == p.Level && p.Level != record.LevelText
	p.Buffered = p.Whole.Level == record.LevelTokens && p.Stream.Level != record.LevelTokens
	if p.Buffered {
		p.find("token ids come with whole answers only: streamed calls are made whole, and the harness gets the answer as a stream when it is complete")
	}
	return []*asked{whole, streamed}
}

// measureWhole tries the known capture requests until one gives all there is. owner only says which to try first.
func (u *Upstream) measureWhole(ctx context.Context, p *Profile, owner string) (Way, *asked) {
	try := func(w Way, own []string) *asked {
		return u.askPlainly(ctx, p, question{way: w, own: own})
	}
	if owner == "llamacpp" {
		if a := try(verboseWay, verboseWay.names()); a.complete() {
			return verboseWay, a
		}
	}
	way := plainWay(record.LevelTokens, 0)
	whole := try(way, nil)
	if whole.rows() == 0 && whole.answered() && !slices.Contains(whole.dropped, "logprobs") { // some give no rows for 0
		if again := try(plainWay(record.LevelTokens, 1), nil); again.rows() > 0 {
			p.TopLogprobs = 1
			way, whole = plainWay(record.LevelTokens, 1), again
		}
	}
	if whole.complete() || !whole.answered() || len(whole.dropped) > 0 { // an engine that refuses unknown fields has none of the others
		return way, whole
	}
	for _, w := range []Way{metaWay, verboseWay} {
		if a := try(w, w.names()); a.complete() {
			return w, a
		}
	}
	return way, whole
}

// measureStream finds out what a stream carries. What whole answers took is not refused for good by a stream.
func (u *Upstream) measureStream(ctx context.Context, p *Profile, whole *asked) *asked {
	try := func(w Way) *asked {
		return u.askPlainly(ctx, p, question{way: w, params: probeStream, own: w.names()})
	}
	plain := plainWay(record.LevelTokens, p.TopLogprobs)
	plain.Params = slices.DeleteFunc(plain.Params, func(q Param) bool { return slices.Contains(whole.dropped, q.Name) })
	streamed := try(plain)
	p.Stream = streamed.taken(plain)
	if p.Stream.Level == record.LevelTokens || len(whole.dropped) > 0 {
		return streamed
	}
	if late := try(sglextWay); late.complete() {
		p.Stream = late.taken(sglextWay)
		return late
	}
	if !streamed.answered() { // it refuses ids in streams: what about logprobs alone?
		logprobs := plainWay(record.LevelLogprobs, p.TopLogprobs)
		streamed = try(logprobs)
		p.Stream = streamed.taken(logprobs)
	}
	return streamed
}

// measureForced finds out whether the engine follows prompt ids beside the messages: the probe's own prompt with one token
// left out must come back as the prompt.
func (u *Upstream) measureForced(ctx context.Context, p *Profile, answers []*asked) {
	var ids []int32
	for _, a := range answers {
		if len(a.answer.Choices) > 0 && ids == nil {
			ids = a.answer.Prompt(a.answer.Choices[0])
		}
	}
	way, stream := p.Whole, []Param(nil)
	if way.Level != record.LevelTokens {
		way, stream = p.Stream, probeStream
	}
	if len(ids) < 3 || way.Derive {
		return
	}
	middle := len(ids) / 2
	ids = slices.Concat(ids[:middle], ids[middle+1:])
	for _, field := range []string{ForcedKV, ForcedInput} {
		param := Param{"input_ids", intList(ids)}
		if field == ForcedKV {
			param = Param{"kv_transfer_params", `{"prompt_token_ids":` + intList(ids) + `}`}
		}
		a := u.ask(ctx, p, question{
			way: way, params: append([]Param{{"max_tokens", "1"}, probeMessages, param}, stream...), own: append(way.names(), "kv_transfer_params", field),
		})
		if a.answered() && slices.Equal(a.answer.Prompt(a.answer.Choices[0]), ids) {
			p.Forced = field
			return
		}
	}
}

// The fields that take prompt ids, see Profile.Forced.
const (
	ForcedKV    = "kv_transfer_params.prompt_token_ids" // vLLM
	ForcedInput = "input_ids"                           // SGLang
)

func intList(ids []int32) string {
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(append(b, ']'))
}
