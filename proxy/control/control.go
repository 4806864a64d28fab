// Package control is the control API of a proxy (SPEC 6): trainers and shells create sessions with it, close and score
// them, and take their rollouts away. It is one http.Handler:
//
//	api := control.New(control.Options{Sessions: registry, Store: store, Engines: hub, AdminKey: key})
//	http.ListenAndServe("127.0.0.1:8100", proxy.New(proxy.Config{Control: api, …}))
//
// One file per resource. Each handler reads top to bottom: decode and check, do, answer; what goes wrong is returned as
// an error and becomes an answer in one place (errors.go). JSON in and out has a type of its own, which [Client], the
// same API from the other side, shares.
//
// Nothing of what is derived from a session's calls is stored: documents and counts come from the log each time, counts
// by way of a small cache (derived.go).
//
// A session's id is the harness's credential. Ids stand in answers, which only the admin gets, and never in a log line.
// The credentials of engines that sessions name stand in neither, and in a record only sealed (package secret).
package control

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/secret"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// Store is the part of store.Store that the API reads from; what it writes goes through the registry.
type Store interface {
	Session(ctx context.Context, id string) (*record.Session, error)
	Sessions(ctx context.Context, f store.Filter) ([]*record.Session, string, error)
	Calls(ctx context.Context, id string) ([]*record.Call, error)
	Healthy() error
}

// Options are what an API works with.
type Options struct {
	Sessions *session.Registry
	Store    Store
	Engines  *engine.Hub
	Logger   *zap.Logger

	// AdminKey opens the API. Without one it is open to whoever reaches it, and to nobody unless Loopback says that
	// only this machine does.
	AdminKey string
	// Loopback says that the proxy listens on a loopback address only.
	Loopback bool
	// PublicURL is what base_url begins with; the address that the request was sent to when empty.
	PublicURL string

	// AllowUpstream lists patterns of the engines that a session may name; see allowed. Empty allows all.
	AllowUpstream []string
	// Secret seals the credentials of engines that sessions name, nil to keep them in memory only.
	Secret *secret.Box
	// MeasureFor bounds how long the creation of a session waits for an engine to be measured; 20 s when zero.
	MeasureFor time.Duration
	// MaxModelCalls bounds every session, 0 for no bound.
	MaxModelCalls int
	// What a session has when its creator does not say.
	Shared         record.Shared
	Continuity     string
	ReasoningField string
	// Rules for every session, noted on it when it is created.
	TrainAborted     bool
	AllowRawLogprobs bool

	// OutDir gets the document of every session that is closed, none when empty.
	OutDir string
	// Redeliver sends the document of a session once more that its webhook did not get; nil without a webhook.
	Redeliver func(*record.Session)
	// ProxyVersion stands in documents and in /health, Instance names this process there.
	ProxyVersion string
	Instance     string
	// RequireRegistered says that keys which name no session are refused.
	RequireRegistered bool
	// Metrics serves GET /metrics, which is open; nil for none.
	Metrics http.Handler
	// Late is the number of answers whose turns are not durable yet; nil for a proxy that does not count them.
	Late func() int64
}

// API is the control API.
type API struct {
	Options
	admin   keyHash
	public  string // host of PublicURL
	mux     *http.ServeMux
	derived derivedCache
}

// New returns the API.
func New(o Options) *API {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.MeasureFor <= 0 {
		o.MeasureFor = 20 * time.Second
	}
	if o.Late == nil {
		o.Late = func() int64 { return 0 }
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	a := &API{Options: o, admin: hashKey(o.AdminKey), public: hostOf(o.PublicURL), mux: http.NewServeMux(), derived: newDerivedCache()}
	for _, r := range a.routes() {
		a.mux.Handle(r.method+" "+r.path, a.serve(r))
	}
	for path, methods := range a.methods() {
		a.mux.Handle(path, wrongMethod(methods))
	}
	a.mux.Handle("/", http.HandlerFunc(unknownPath))
	return a
}

// route is one call of the API. Its handler returns an error in place of an answer.
type route struct {
	method, path string
	handle       func(http.ResponseWriter, *http.Request) error
	open         bool // needs no key
}

func (a *API) routes() []route {
	return []route{
		{"POST", "/sessions", a.createSession, false},
		{"GET", "/sessions", a.listSessions, false},
		{"GET", "/sessions/{id}", a.showSession, false},
		{"DELETE", "/sessions/{id}", a.deleteSession, false},
		{"POST", "/sessions/{id}/close", a.closeSession, false},
		{"POST", "/sessions/{id}/cancel", a.cancelSession, false},
		{"POST", "/sessions/{id}/score", a.scoreSession, false},
		{"GET", "/sessions/{id}/rollout", a.showRollout, false},
		{"GET", "/sessions/{id}/trace_entries", a.showTraceEntries, false},
		{"GET", "/groups/{id}", a.showGroup, false},
		{"GET", "/events", a.streamEvents, false},
		{"POST", "/policy", a.setPolicy, false},
		{"GET", "/policy", a.showPolicy, false},
		{"GET", "/health", a.showHealth, true},
		{"GET", "/ready", a.showReady, true},
		{"GET", "/metrics", a.showMetrics, true},
		{"GET", "/openapi.json", a.showOpenAPI, true},
	}
}

// methods lists, for each path, the methods it has.
func (a *API) methods() map[string][]string {
	m := map[string][]string{}
	for _, r := range a.routes() {
		m[r.path] = append(m[r.path], r.method)
	}
	return m
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// serve makes a handler of a route.
func (a *API) serve(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.admit(r, rt.open)
		if err == nil {
			err = rt.handle(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

func wrongMethod(methods []string) http.Handler {
	allow := strings.Join(methods, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		writeError(w, &Error{Status: http.StatusMethodNotAllowed, Message: r.Method + " is not served here: use " + allow})
	})
}

func unknownPath(w http.ResponseWriter, _ *http.Request) {
	writeError(w, &Error{Status: http.StatusNotFound, Message: "no such path: the proxy serves model calls and the control API, the engine's other routes are not for harnesses"})
}
