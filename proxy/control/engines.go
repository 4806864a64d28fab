package control

import (
	"net/netip"
	"net/textproto"
	"net/url"
	"path"
	"slices"
	"strings"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// engineFor returns the engine that a request names, or the proxy's own; nil when there is neither.
func (a *API) engineFor(req *CreateRequest) (*engine.Upstream, error) {
	if err := req.checkEngine(); err != nil {
		return nil, err
	}
	if req.LLMURL != "" {
		if err := allowed(a.AllowUpstream, req.LLMURL); err != nil {
			return nil, err
		}
	}
	up, err := a.Engines.Get(engineConfig(a.AllowUpstream, req.LLMURL, req.APIKey, req.AuthHeader, req.Model, req.Provider))
	if err != nil {
		return nil, invalid("llm_url", "%s", strings.TrimPrefix(err.Error(), "upstream URL: "))
	}
	return up, nil
}

// engineConfig describes a named engine, or with an empty address the proxy's own.
func engineConfig(patterns []string, address, key, header, model, provider string) engine.Config {
	if address == "" {
		return engine.Config{Model: model}
	}
	return engine.Config{URL: address, Key: key, AuthHeader: header, Model: model, Provider: provider, NoLinkLocal: len(patterns) == 0}
}

// EngineOf finds the engines of sessions that are read from the store when a proxy starts. A session whose engine needs a
// credential of its own has none until the same request for it comes again: credentials are not stored.
func EngineOf(hub *engine.Hub, allowUpstream []string) func(*record.Session) *engine.Upstream {
	return func(s *record.Session) *engine.Upstream {
		spec := &s.Spec
		if spec.Keyed || spec.LLMURL != "" && allowed(allowUpstream, spec.LLMURL) != nil {
			return nil
		}
		up, err := hub.Get(engineConfig(allowUpstream, spec.LLMURL, "", spec.AuthHeader, spec.Model, spec.Provider))
		if err != nil { // the rules for addresses have changed
			return nil
		}
		return up
	}
}

// checkEngine looks at the fields that say how to speak to an engine. They end up in the head of a request.
func (req *CreateRequest) checkEngine() error {
	switch {
	case !slices.Contains(providers, req.Provider):
		return invalid("provider", "it is one of %s", strings.Join(providers[1:], ", "))
	case req.LLMURL == "" && req.APIKey != "":
		return invalid("api_key", "it goes with llm_url")
	case req.LLMURL == "" && req.AuthHeader != "":
		return invalid("auth_header", "it goes with llm_url")
	case req.LLMURL == "" && req.Provider != "":
		return invalid("provider", "it goes with llm_url")
	case strings.ContainsFunc(req.APIKey, func(c rune) bool { return c <= ' ' || c > '~' }):
		return invalid("api_key", "a key is of printable ASCII without spaces")
	case req.AuthHeader != "" && !isAuthHeader(req.AuthHeader):
		return invalid("auth_header", "it is the name of the header that carries the key, such as Authorization or x-api-key")
	}
	return nil
}

func isAuthHeader(name string) bool {
	const special = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(special, c) >= 0) {
			return false
		}
	}
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Connection", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Keep-Alive":
		return false
	}
	return true
}

// allowed decides whether a session may name an engine. A pattern is an address, as in http://10.0.0.*:8000/v1: scheme
// and port must be the same, host and path may have the wildcards of path.Match, and what lies below its path is
// allowed with it. Without patterns everything is, except link-local addresses, where clouds serve credentials.
func allowed(patterns []string, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return invalid("llm_url", "it is an address such as http://127.0.0.1:8000/v1")
	}
	if u.User != nil {
		return invalid("llm_url", "a password does not belong into a URL: give it as api_key")
	}
	if p := strings.TrimRight(u.Path, "/"); p != "" && path.Clean(p) != p {
		return invalid("llm_url", "its path must not have empty, . or .. parts")
	}
	if len(patterns) == 0 {
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && addr.Unmap().IsLinkLocalUnicast() {
			return invalid("llm_url", "%s is a link-local address: name it with --allow-upstream if there is an engine", addr)
		}
		return nil
	}
	if !slices.ContainsFunc(patterns, func(p string) bool { return matches(p, u) }) {
		return invalid("llm_url", "the proxy does not allow this engine: name it with --allow-upstream")
	}
	return nil
}

func matches(pattern string, u *url.URL) bool {
	scheme, rest, ok := strings.Cut(pattern, "://")
	if !ok || !strings.EqualFold(scheme, u.Scheme) {
		return false
	}
	host, prefix, _ := strings.Cut(rest, "/")
	name, port := splitPort(host, scheme)
	gotName, gotPort := splitPort(u.Host, u.Scheme)
	// The brackets of an IPv6 address are no character class.
	name = strings.NewReplacer("[", `\[`, "]", `\]`).Replace(strings.ToLower(name))
	if same, err := path.Match(name, strings.ToLower(gotName)); err != nil || !same || port != "*" && port != gotPort {
		return false
	}
	root := strings.Trim(u.Path, "/")
	if root == "" {
		root = "v1" // what an address without a path gets
	}
	return below(prefix, root)
}

// below reports whether a path is what a pattern says, or lies below it.
func below(pattern, p string) bool {
	if pattern = strings.Trim(pattern, "/"); pattern == "" {
		return true
	}
	parts := strings.Split(p, "/")
	n := strings.Count(pattern, "/") + 1
	if len(parts) < n {
		return false
	}
	same, err := path.Match(pattern, strings.Join(parts[:n], "/"))
	return err == nil && same
}

// splitPort takes the port off a host; without one it is the scheme's.
func splitPort(host, scheme string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return host[:i], host[i+1:]
	}
	if strings.EqualFold(scheme, "https") {
		return host, "443"
	}
	return host, "80"
}
