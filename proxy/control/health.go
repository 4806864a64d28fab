package control

import (
	"fmt"
	"net/http"
	"strings"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// Health is how the proxy is and what it stands in front of. What concerns single callers, the engines that their
// sessions name, is for the admin only.
type Health struct {
	Status            string        `json:"status"` // ok, or draining
	Instance          string        `json:"instance"`
	Version           string        `json:"version"`
	Upstream          *string       `json:"upstream"`
	Engine            *string       `json:"engine"` // what kind of engine it is, as measured
	Model             *string       `json:"model"`
	Sessions          *int          `json:"sessions"` // running, null while the store does not say
	RequireRegistered bool          `json:"require_registered"`
	CaptureLevel      *record.Level `json:"capture_level"`
	RolloutType       *string       `json:"rollout_type"`
	Upstreams         []Upstream    `json:"upstreams,omitzero"`
	UpstreamAuth      bool          `json:"upstream_auth"` // whether the engine is sent a credential
	ParamFixes        []record.Edit `json:"param_fixes"`
}

// Upstream is an engine that sessions named.
type Upstream struct {
	URL          string        `json:"url"`
	Model        *string       `json:"model"`
	CaptureLevel *record.Level `json:"capture_level"`
	Auth         bool          `json:"auth"`
	ParamFixes   []record.Edit `json:"param_fixes"`
}

func (a *API) showHealth(w http.ResponseWriter, r *http.Request) error {
	h := Health{
		Status: "ok", Instance: a.Instance, Version: a.ProxyVersion, RequireRegistered: a.RequireRegistered,
		ParamFixes: []record.Edit{},
	}
	if n, err := a.Sessions.NumRunning(r.Context()); err == nil { // a store that is away is the business of /ready
		h.Sessions = &n
	}
	if a.Sessions.Draining() {
		h.Status = "draining"
	}
	if up := a.Engines.Default(); up != nil {
		h.describe(up)
	}
	if a.isAdmin(r) {
		h.Upstreams = []Upstream{}
		for _, up := range a.Engines.Named() {
			p := up.Profile()
			h.Upstreams = append(h.Upstreams, Upstream{URL: up.URL(), Model: orNil(p.Served), CaptureLevel: orNil(p.Level), Auth: up.Keyed(),
				ParamFixes: up.Record().ParamEdits})
		}
	}
	writeJSON(w, h)
	return nil
}

func (h *Health) describe(up *engine.Upstream) {
	p, rec := up.Profile(), up.Record()
	url, kind := up.URL(), strings.TrimSpace(p.Provider+" "+p.Version)
	h.Upstream, h.Engine, h.Model, h.CaptureLevel = &url, &kind, orNil(p.Served), orNil(p.Level)
	h.UpstreamAuth, h.ParamFixes = up.Keyed(), rec.ParamEdits
	if p.Level != "" {
		rollout := export.TypeEval
		if p.Level == record.LevelTokens {
			rollout = export.TypeTrain
		}
		h.RolloutType = &rollout
	}
}

func (a *API) showMetrics(w http.ResponseWriter, r *http.Request) error {
	if a.Metrics == nil {
		return &Error{Status: http.StatusNotFound, Message: "this proxy counts nothing"}
	}
	a.Metrics.ServeHTTP(w, r)
	return nil
}

// Ready says whether the proxy should be given work, and why not.
type Ready struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

func (a *API) showReady(w http.ResponseWriter, _ *http.Request) error {
	ready := Ready{Reasons: []string{}}
	if err := a.Store.Healthy(); err != nil {
		ready.Reasons = append(ready.Reasons, err.Error())
	}
	if n := a.Late(); n > 0 {
		ready.Reasons = append(ready.Reasons, fmt.Sprintf("%d answers went out whose turns are not on disk yet", n))
	}
	if a.Sessions.Draining() {
		ready.Reasons = append(ready.Reasons, "the proxy is shutting down")
	}
	w.Header().Set("Content-Type", "application/json")
	if ready.Ready = len(ready.Reasons) == 0; !ready.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	writeJSON(w, ready)
	return nil
}
