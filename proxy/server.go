// Package proxy is the HTTP edge: it routes a call to its session, and walks it along one straight line.
//
//	accept → route to session → decode dialect → plan → prepare → forward
//	       → relay to the harness ║ tee → assemble → check turn → append (durable) → release the terminal event
//
// Each step is a function on one small [call]. What the harness sees comes first: a capture problem degrades one turn,
// never a call. What is recorded is what the engine said: nothing is made up. A turn is on disk before the last byte of
// its answer leaves.
package proxy

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// Log records calls and gives them back; see store.Store.
type Log interface {
	Append(c *record.Call) <-chan error
	Calls(ctx context.Context, sessionID string) ([]*record.Call, error)
	Past(ctx context.Context, sessionID string) (*store.Past, error)
}

// Config is what a server needs.
type Config struct {
	Sessions *session.Registry
	Log      Log
	// Control serves every path that is no model route: sessions, groups, policy, health.
	Control http.Handler
	// Default is the engine of callers without a session of their own (GET /v1/models), nil for none.
	Default *engine.Upstream
	Logger  *zap.Logger
	// Observers are told of every call.
	Observers []Observer
	Now       func() time.Time
	// Unregistered makes a session for a key that names none, nil to refuse such keys.
	Unregistered func(ctx context.Context, key string) (*session.Live, error)
	// MaxBody is the largest request body in bytes, MaxOutputTokens the server's output cap (0 for none).
	MaxBody         int64
	MaxOutputTokens int
	// ReasoningField is the name under which harnesses get and send reasoning, "" for the engine's own.
	ReasoningField string
	// Continuity is what sessions get that do not say: auto (or ""), on or off.
	Continuity string
	// Relay lists further paths that are passed on and never recorded.
	Relay []string
	// Patience is how long an answer's end waits for the disk.
	Patience time.Duration
	// KeepAlive is how often a harness is shown life whose stream waits for a whole answer.
	KeepAlive time.Duration
	// Idle is the longest a client may stop reading.
	Idle time.Duration
}

// Server is the proxy's handler.
type Server struct {
	Config
	relay map[string]bool
	// late counts answers that went out before their turn was durable.
	late atomic.Int64
}

// New returns a server. Zero limits of c get the defaults of SPEC 1.
func New(c Config) *Server {
	if c.MaxBody <= 0 {
		c.MaxBody = 64 << 20
	}
	if c.Patience <= 0 {
		c.Patience = 2 * time.Second
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 10 * time.Second
	}
	if c.Idle <= 0 {
		c.Idle = 10 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	s := &Server{Config: c, relay: map[string]bool{}}
	for _, p := range append([]string{"/embeddings", "/moderations", "/rerank", "/score"}, c.Relay...) {
		s.relay[trimVersion(p)] = true
	}
	return s
}

// Late is the number of answers whose turns are not durable yet although their end was released: while it is not zero
// the proxy is not ready.
func (s *Server) Late() int64 { return s.late.Load() }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(requestIDHeader, requestID())
	path, prefix := splitPrefix(r.URL.Path)
	rt := s.route(r, path)
	if rt.kind == routeModel {
		s.serveCall(w, r, rt, prefix)
		return
	}
	s.serveOther(s.patient(w), r, rt, path, prefix)
}

// serveOther serves what is no model call.
func (s *Server) serveOther(w http.ResponseWriter, r *http.Request, rt route, path, prefix string) {
	switch rt.kind {
	case routeCount:
		s.serveCount(w, r, rt, prefix)
	case routeModels:
		s.serveModels(w, r, prefix)
	case routeRelay:
		s.serveRelay(w, r, path, prefix)
	case routeRoot:
		w.WriteHeader(http.StatusOK)
	case routeMethod:
		w.Header().Set("Allow", http.MethodPost)
		s.deny(w, rt.dialect, http.StatusMethodNotAllowed, "", r.Method+" is not served here: use POST")
	case routeUpgrade:
		w.Header().Set("Connection", "close")
		s.deny(w, rt.dialect, http.StatusUpgradeRequired, "", "there is no WebSocket here: POST /v1/responses with stream: true")
	default:
		if prefix != "" || s.Control == nil || rt.dialect == record.Google {
			s.deny(w, rt.dialect, http.StatusNotFound, "", "no such path: the proxy serves model calls only, the engine's other routes are not for harnesses")
			return
		}
		s.Control.ServeHTTP(w, r)
	}
}
