package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"captureproxy/internal/record"
	"captureproxy/proxy/dialect"
	"captureproxy/proxy/session"
)

type routeKind int

const (
	routeOther   routeKind = iota
	routeModel             // a model call: a turn
	routeCount             // a question for a token count
	routeModels            // GET /v1/models
	routeRelay             // passed on, never recorded
	routeRoot              // GET and HEAD /: harnesses try it before they work
	routeMethod            // a model route with the wrong method
	routeUpgrade           // a WebSocket where there is none
)

// route is what a path and method stand for.
type route struct {
	kind    routeKind
	dialect record.Dialect
	// Google says in the URL what the others say in the body.
	model         string
	stream, array bool
}

// route finds what a request is for. The routes work with and without /v1: many base URLs are typed without it.
func (s *Server) route(r *http.Request, path string) route {
	rt := route{kind: routeModel, dialect: record.OpenAIChat}
	switch p := trimVersion(path); {
	case p == "/chat/completions":
	case p == "/completions":
		rt.dialect = record.OpenAICompletions
	case p == "/responses":
		rt.dialect = record.OpenAIResponses
		if r.Method == http.MethodGet && r.Header.Get("Upgrade") != "" {
			rt.kind = routeUpgrade
			return rt
		}
	case p == "/messages":
		rt.dialect = record.AnthropicMessages
	case p == "/messages/count_tokens":
		rt.dialect, rt.kind = record.AnthropicMessages, routeCount
	case strings.HasPrefix(p, "/models/") && strings.Contains(p, ":"):
		if !rt.google(r, p) {
			return route{kind: routeOther, dialect: record.Google}
		}
	case p == "/models" || strings.HasPrefix(p, "/models/"):
		rt.kind = routeModels
		return rt.only(r, http.MethodGet, http.MethodHead)
	case s.relay[p]:
		rt.kind = routeRelay
		if !slices.Contains(relayedMethods, r.Method) {
			rt.kind = routeMethod
		}
		return rt
	case path == "/" || path == "":
		rt.kind = routeRoot
		return rt.only(r, http.MethodGet, http.MethodHead)
	default:
		rt.kind = routeOther
		return rt
	}
	if r.Method != http.MethodPost {
		rt.kind = routeMethod
	}
	return rt
}

// relayedMethods are those of an API. TRACE would have an engine say what it was sent, its key among it.
var relayedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// only makes a route of other methods than these one that is not ours.
func (rt route) only(r *http.Request, methods ...string) route {
	if !slices.Contains(methods, r.Method) {
		rt.kind = routeOther
	}
	return rt
}

// google reads /models/{model}:{method}.
func (rt *route) google(r *http.Request, path string) bool {
	rt.dialect = record.Google
	name := strings.TrimPrefix(path, "/models/")
	i := strings.LastIndexByte(name, ':')
	rt.model = name[:i]
	switch name[i+1:] {
	case "generateContent":
	case "streamGenerateContent": // it streams whatever the body says; without alt=sse as one JSON array
		rt.stream, rt.array = true, r.URL.Query().Get("alt") != "sse"
	case "countTokens":
		rt.kind = routeCount
	default:
		return false
	}
	return true
}

// trimVersion takes the API's version off a path.
func trimVersion(path string) string {
	for _, version := range []string{"/v1beta", "/v1"} {
		if rest, ok := strings.CutPrefix(path, version); ok && (rest == "" || rest[0] == '/') {
			return rest
		}
	}
	return path
}

// splitPrefix takes the session out of /s/<session>/…, for harnesses whose key cannot be set.
func splitPrefix(path string) (rest, sessionID string) {
	after, ok := strings.CutPrefix(path, "/s/")
	if !ok {
		return path, ""
	}
	id, rest, _ := strings.Cut(after, "/")
	return "/" + rest, id
}

// candidates returns the keys that a request carries, in the order in which they count (SPEC 2).
func candidates(r *http.Request, prefix string) []string {
	out := make([]string, 0, 4)
	add := func(key string) {
		if key = strings.TrimSpace(key); key == "" {
			return
		}
		for _, have := range out {
			if have == key {
				return
			}
		}
		out = append(out, key)
	}
	add(prefix)
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		add(token)
	}
	add(r.Header.Get("X-Api-Key"))
	add(r.Header.Get("X-Goog-Api-Key"))
	if r.URL.RawQuery != "" {
		add(r.URL.Query().Get("key"))
	}
	return out
}

// hashKey stands for a key in records and logs: it may be a real provider's, so it is never stored.
func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key-" + hex.EncodeToString(sum[:16])
}

// find routes a request to its session: the first key that names a registered one wins. conflicts are its other
// candidates, hashed where they name no session.
func (s *Server) find(ctx context.Context, keys []string) (live *session.Live, conflicts []string, err error) {
	err = session.ErrUnknown
	for _, key := range keys {
		l, failure := s.Sessions.Find(ctx, key)
		if failure == nil && live == nil {
			live = l
			continue
		}
		if failure == nil || errors.Is(failure, session.ErrEnded) {
			conflicts = append(conflicts, key)
		} else {
			conflicts = append(conflicts, hashKey(key))
		}
		if !errors.Is(failure, session.ErrUnknown) && errors.Is(err, session.ErrUnknown) {
			err = failure
		}
	}
	if live != nil {
		return live, conflicts, nil
	}
	if errors.Is(err, session.ErrUnknown) && len(keys) > 0 && s.Unregistered != nil {
		if live, err = s.Unregistered(ctx, keys[0]); err == nil {
			return live, conflicts[1:], nil
		}
	}
	return nil, nil, err
}

// refuse answers a request whose session cannot take it.
func (s *Server) refuse(w http.ResponseWriter, d record.Dialect, keys []string, err error) {
	switch {
	case errors.Is(err, session.ErrEnded):
		s.deny(w, d, http.StatusConflict, "", "this session has ended: create a new one with POST /sessions and use its id as the API key")
	case errors.Is(err, session.ErrDraining):
		w.Header().Set("Retry-After", "5")
		s.deny(w, d, http.StatusServiceUnavailable, "", "the proxy is shutting down: try again in a moment")
	case errors.Is(err, session.ErrUnknown) && len(keys) == 0:
		s.deny(w, d, http.StatusUnauthorized, "", "no API key: the key is the capture session's id, create one with POST /sessions or `capture-proxy session create`")
	case errors.Is(err, session.ErrUnknown):
		s.deny(w, d, http.StatusUnauthorized, "", "this API key is no capture session: create one with POST /sessions or `capture-proxy session create` and use its id as the key")
	default:
		s.Logger.Error("looking for a session failed", requestField(w.Header().Get(requestIDHeader)), errField(err))
		w.Header().Set("Retry-After", "1")
		s.deny(w, d, http.StatusServiceUnavailable, "", "the session store does not answer at the moment")
	}
}

// deny answers a request that becomes no call, in its dialect.
func (s *Server) deny(w http.ResponseWriter, d record.Dialect, status int, param, text string) {
	for _, o := range s.Observers {
		o.Refused(d, status)
	}
	writeError(w, d, status, param, text)
}

func writeError(w http.ResponseWriter, d record.Dialect, status int, param, text string) {
	body := dialect.ErrorBody(d, status, param, text)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // complete also while the client still sends, see linger
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client may be gone
}
