package fakeengine

import (
	"fmt"
	"net/http"
	"strings"
)

// Wire names whose answers an engine gives.
type Wire string

// The wires that an engine can play.
const (
	WireVLLM           Wire = "vllm"            // 0.32.0
	WireVLLMOld        Wire = "vllm-old"        // before 0.13: ids that a parser holds back are lost, rows only for a top_logprobs
	WireSGLang         Wire = "sglang"          // 0.5.20 and later: ids of streams in one late chunk
	WireSGLangOld      Wire = "sglang-old"      // 0.5.13: ids of whole answers only
	WireLlamaCpp       Wire = "llamacpp"        // ids of whole answers only, prompts by its template and tokenizer routes
	WireFireworks      Wire = "fireworks"       // ids in the choices and rows
	WireTogether       Wire = "together"        // sampled ids beside the logprobs, no prompt ids
	WireOpenAI         Wire = "openai"          // chat and Responses of a model that refuses what it does not know
	WireAnthropic      Wire = "anthropic"       // Messages with signed thinking, and its chat endpoint
	WireGoogle         Wire = "google"          // generateContent with thought signatures, and its chat endpoint
	WireOpenAILogprobs Wire = "openai-logprobs" // the same of an older one, with logprobs on chat
)

// Wires lists the wires that an engine can play.
func Wires() []Wire {
	return []Wire{
		WireVLLM, WireVLLMOld, WireSGLang, WireSGLangOld, WireLlamaCpp, WireFireworks, WireTogether,
		WireOpenAI, WireOpenAILogprobs, WireAnthropic, WireGoogle,
	}
}

// wire is how one kind of engine answers.
type wire struct {
	server  string       // the Server header, "" for none
	owner   string       // owned_by in the list of models
	version string       // what GET /version says, where there is such a route
	mode    LogprobsMode // unless the options say otherwise
	routes  func(path string) (route, bool)
	// auth refuses a request without the right credential; nil lets everybody in.
	auth func(e *Engine, r *http.Request) *apiError
	// missing is the answer to an unknown path or method; nil is the web framework's that vLLM and SGLang share.
	missing func(r *http.Request, status int) *apiError
	// spell writes an error as a body, or as the data of a stream's event.
	spell func(dst []byte, bad *apiError, event bool) []byte
	// compat says which paths spell errors as spellCompat does, nil for none; spellCompat is OpenAI's unless it is set.
	compat      func(path string) bool
	spellCompat func(dst []byte, bad *apiError, event bool) []byte
	// lateHeaders: a stream says nothing, not even 200, before its first token.
	lateHeaders bool
	reasoning   string // the field that thoughts come in
	textIDs     bool   // completions know return_token_ids
	anyModel    bool   // completions take any model's name
	losesHeld   bool   // what a parser holds back of a stream takes its ids along
	bestFirst   bool   // top_logprobs lists the best tokens, whatever was sampled; vLLM lists the sampled one first
	stopsDone   bool   // nothing follows an error within a stream
	chunkTokens int    // ids per chunk unless the options say otherwise; 0 varies it
	chat        chatForm
}

// chatForm is how a wire takes and gives chat completions.
type chatForm struct {
	prefix string // of the answers' ids
	parse  func(r *http.Request, body []byte) (*Request, *apiError)
	check  func(e *Engine, req *Request) *apiError
	// late refuses what the API lets through and the engine does not; nil refuses nothing.
	late   func(e *Engine, req *Request) *apiError
	prompt func(v *vocab, req *Request) []int32
	room   func(e *Engine, req *Request, prompt int) (int, *apiError)
	whole  func(a *answer, dst []byte) []byte
	stream func(a *answer) chunks
}

// wireOf returns how an engine of that name answers.
func wireOf(name Wire) (*wire, error) {
	switch name {
	case "", WireVLLM:
		return vllmWire(), nil
	case WireVLLMOld:
		return vllmOldWire(), nil
	case WireLlamaCpp:
		return llamaWire(), nil
	case WireOpenAI:
		return openaiWire(false), nil
	case WireOpenAILogprobs:
		return openaiWire(true), nil
	case WireAnthropic:
		return anthropicWire(), nil
	case WireGoogle:
		return googleWire(), nil
	case WireFireworks:
		return fireworksWire(), nil
	case WireTogether:
		return togetherWire(), nil
	case WireSGLang:
		return sglangWire(false), nil
	case WireSGLangOld:
		return sglangWire(true), nil
	}
	names := make([]string, 0, len(Wires()))
	for _, w := range Wires() {
		names = append(names, string(w))
	}
	return nil, fmt.Errorf("fakeengine: no wire %q; there are %s", name, strings.Join(names, ", "))
}

// vllmWire is vLLM 0.32.0.
func vllmWire() *wire {
	return &wire{
		server:    "uvicorn",
		owner:     "vllm",
		mode:      Processed,
		routes:    routeOf,
		reasoning: "reasoning",
		version:   "0.32.0",
		textIDs:   true,
		spell:     func(dst []byte, bad *apiError, event bool) []byte { return bad.appendJSON(dst, event) },
		chat: chatForm{
			prefix: "chatcmpl-",
			parse:  parseRequest,
			check:  func(e *Engine, req *Request) *apiError { return e.check(req, true) },
			late:   (*Engine).checkLate,
			prompt: promptOf,
			room:   (*Engine).room,
			whole:  (*answer).appendChat,
			stream: func(a *answer) chunks { return chatChunks{a} },
		},
	}
}

// vllmOldWire is vLLM before 0.13, as far as it differs.
func vllmOldWire() *wire {
	w := vllmWire()
	w.spell, w.reasoning, w.losesHeld, w.version = spellFlat, "reasoning_content", true, "0.12.0"
	w.chat.parse = func(r *http.Request, body []byte) (*Request, *apiError) {
		req, bad := parseRequest(r, body)
		if bad == nil {
			req.forced = nil // ignored silently
			req.logprobs = req.logprobs && req.Has("top_logprobs")
		}
		return req, bad
	}
	return w
}

func promptOf(v *vocab, req *Request) []int32 { return v.prompt(req, true) }
