// Package fakeengine is a scripted inference engine with real token ids. It answers chat and completions as vLLM 0.32.0
// does on the wire, field by field, and serves the demo, the tests and the benchmark. [Options.Wire] makes it answer as
// another engine or hosted API does; [Wires] lists them.
//
//	srv, err := fakeengine.Start(fakeengine.Options{Model: "policy"})
//	defer srv.Close()
//	// point a proxy, a harness or a client at srv.URL + "/v1"
//
// What it plays is a coding agent's model: as long as a harness offers a shell tool it answers with one harmless command
// after the other and ends with a text (script.go); the position is read from the messages, so any number of sessions run
// side by side. How it renders messages (template.go) has one property that matters here: in a conversation that comes
// back unbroken, each prompt begins with the previous prompt and what was sampled for it, token by token. Damage to the
// history shows as different ids.
//
// A wire (wire.go) is what differs: its routes, credentials and errors, what it refuses, where it has ids and logprobs. One
// that speaks chat has a form of it; the native dialects of hosted APIs (native.go: Messages, Responses, generateContent)
// turn their requests into chat's, so that the same script and template answer, and give it back in blocks. Those sign their
// thoughts and refuse a changed one, as the real ones do: a relay that is not byte for byte is found out.
//
// It misbehaves on request (faults.go): by [Options.Fault] from Go, by the header X-Fake-Fault or by a marker such as
// [[fault:cut 3]] in the last user message from any other process. What it was sent and what it truly sampled can be
// asked for afterwards, whatever the wire showed of it: [Engine.Requests], [Engine.Truth].
package fakeengine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"captureproxy/tokenize"
)

// Defaults of Options.
const (
	DefaultModel       = "fake-model"
	DefaultMaxModelLen = 131072
	DefaultSteps       = 3
	DefaultKeep        = 1024
)

// LogprobsMode says which distribution the engine's logprobs describe.
type LogprobsMode string

// The modes that vLLM has a server flag for.
const (
	Processed LogprobsMode = "processed" // after temperature
	Raw       LogprobsMode = "raw"       // before it
)

// Options configure an engine. The zero value is a quick engine that behaves.
type Options struct {
	// Addr is where Start listens; a free port on 127.0.0.1 when empty.
	Addr string
	// Wire is whose answers the engine gives; WireVLLM when empty.
	Wire Wire
	// Key is the credential that hosted wires ask for, in the way of each; any will do when empty.
	Key string
	// ToolsNeedNoReasoning: chat on the wires of OpenAI refuses function tools unless reasoning_effort is none.
	ToolsNeedNoReasoning bool
	// Model is the served name, MaxModelLen the context window in tokens.
	Model       string
	MaxModelLen int

	// Steps is the number of tool calls before the final answer; 0 means DefaultSteps, a negative number none.
	Steps int
	// Reasoning puts a thought before every chat answer.
	Reasoning bool
	// Script overrides the built-in script. Variant differs between samples of one prompt and is 0 at temperature 0.
	Script func(req *Request, variant uint64) Reply

	LogprobsMode LogprobsMode // the wire's own when empty: Processed for vLLM
	// TokenLabels spells tokens as "token_id:N" unless a request says otherwise.
	TokenLabels bool
	// ChunkTokens is the number of ids per streamed chunk; 0 varies it between 1 and 4.
	ChunkTokens int
	// FirstToken and PerToken delay the answer.
	FirstToken time.Duration
	PerToken   time.Duration

	// Odd makes conversations break that come back whole, and Forced what becomes of prompt ids beside messages.
	Odd    Odd
	Forced Forced

	// Fault is asked for every call; the zero Fault is a good answer. A fault named by the request itself goes first.
	Fault func(req *Request) Fault
	// Keep bounds how many requests and how many truths are remembered.
	Keep int
}

func (o Options) withDefaults() Options {
	if o.Model == "" {
		o.Model = DefaultModel
	}
	if o.MaxModelLen == 0 {
		o.MaxModelLen = DefaultMaxModelLen
	}
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	return o
}

// Engine is the scripted engine, an http.Handler.
type Engine struct {
	opts          Options
	wire          *wire
	vocab         func() (*vocab, error) // loaded on first use
	samples       atomic.Uint64          // counts sampled calls, so that no two are alike at temperature > 0
	forced        atomic.Int64           // calls with prompt ids beside messages
	journal       journal
	responsesKept keptResponses
	once          onceFaults
}

// New returns an engine that plays a wire of [Wires]; another name gives vLLM's, and Start refuses it. Its vocabulary is
// loaded with the first request.
func New(opts Options) *Engine {
	opts = opts.withDefaults()
	w, err := wireOf(opts.Wire)
	if err != nil {
		w = vllmWire()
	}
	if opts.LogprobsMode == "" {
		opts.LogprobsMode = w.mode
	}
	if opts.ChunkTokens == 0 {
		opts.ChunkTokens = w.chunkTokens
	}
	return &Engine{
		opts: opts,
		wire: w,
		vocab: sync.OnceValues(func() (*vocab, error) {
			enc, err := tokenize.Load(tokenize.O200K)
			if err != nil {
				return nil, err
			}
			v := newVocab(enc)
			v.odd = opts.Odd
			return v, nil
		}),
		journal:       newJournal(opts.Keep),
		once:          onceFaults{limit: opts.Keep},
		responsesKept: keptResponses{limit: opts.Keep},
	}
}

// route is what one path answers to.
type route struct {
	method string
	serve  func(*Engine, *call)
}

func routeOf(path string) (route, bool) {
	switch path {
	case "/v1/chat/completions":
		return route{http.MethodPost, (*Engine).chat}, true
	case "/v1/completions":
		return route{http.MethodPost, (*Engine).completions}, true
	case "/v1/models":
		return route{http.MethodGet, (*Engine).models}, true
	case "/tokenize":
		return route{http.MethodPost, (*Engine).tokenize}, true
	case "/detokenize":
		return route{http.MethodPost, (*Engine).detokenize}, true
	case "/health":
		return route{http.MethodGet, (*Engine).health}, true
	case "/version":
		return route{http.MethodGet, (*Engine).version}, true
	}
	return route{}, false
}

// call is one HTTP request on its way to an answer.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
	wire  *wire
	spell func(dst []byte, bad *apiError, event bool) []byte
	vocab *vocab
	fault Fault
	gone  bool // a write failed: the client hung up
}

// ServeHTTP answers one request and remembers it.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r, wire: e.wire, spell: e.wire.spell}
	if e.wire.compat != nil && e.wire.compat(r.URL.Path) {
		if c.spell = spellOpenAI; e.wire.spellCompat != nil {
			c.spell = e.wire.spellCompat
		}
	}
	body, err := readBody(r)
	c.body = body
	entry := e.journal.begin(r, body)
	defer func() { e.journal.end(entry, c.gone || r.Context().Err() != nil) }()
	if err != nil {
		return // the client hung up while sending
	}
	if e.wire.server != "" {
		c.setHeader("Server", e.wire.server)
	}
	c.setHeader("Vary", "Origin")

	if e.wire.auth != nil {
		if bad := e.wire.auth(e, r); bad != nil {
			c.fail(bad)
			return
		}
	}
	rt, ok := e.wire.routes(r.URL.Path)
	switch {
	case !ok:
		c.missing(http.StatusNotFound)
		return
	case r.Method != rt.method:
		c.setHeader("Allow", rt.method)
		c.missing(http.StatusMethodNotAllowed)
		return
	case r.Header.Get("Content-Encoding") != "":
		c.detail(http.StatusBadRequest, "There was an error parsing the body")
		return
	}
	c.vocab, err = e.vocab()
	if err != nil {
		c.fail(&apiError{Status: http.StatusInternalServerError, Type: "InternalServerError", Message: err.Error()})
		return
	}
	rt.serve(e, c)
}

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > 0 {
		body := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, body)
		return body[:n], err
	}
	return io.ReadAll(r.Body)
}

// Server is an engine that listens.
type Server struct {
	*Engine
	URL string // without a path, as in http://127.0.0.1:8000

	http   *http.Server
	served chan error
}

// idleTimeout is how long vLLM keeps an idle connection.
const idleTimeout = 5 * time.Second

// Start listens and serves until Close.
func Start(opts Options) (*Server, error) {
	if _, err := wireOf(opts.Wire); err != nil {
		return nil, err
	}
	e := New(opts)
	if _, err := e.vocab(); err != nil {
		return nil, fmt.Errorf("fakeengine: %w", err)
	}
	addr := opts.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fakeengine: %w", err)
	}
	s := &Server{
		Engine: e,
		URL:    "http://" + strings.Replace(ln.Addr().String(), "[::]", "127.0.0.1", 1),
		http:   &http.Server{Handler: e, IdleTimeout: idleTimeout},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(ln) }()
	return s, nil
}

// Close stops listening, cuts the running calls and waits for the listener to end.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
