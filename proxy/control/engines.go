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
	"captureproxy/proxy/secret"
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
	return engine.Config{URL: address, Key: key, AuthHeader: header, Model: model, Provider: provider, NoLinkLocal: !namesLinkLocal(patterns, address)}
}

// namesLinkLocal says that the operator has written down this very address, which is one that engines do not have.
func namesLinkLocal(patterns []string, address string) bool {
	u, err := url.Parse(address)
	return err == nil && isLinkLocal(u) && slices.ContainsFunc(patterns, func(p string) bool { return !strings.ContainsAny(hostOfPattern(p), "*?") && matches(p, u) })
}

func isLinkLocal(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && engine.ServesCredentials(addr)
}

// EngineOf finds the engines of sessions that are read from the store. A session whose engine needs a credential of its own
// has it sealed in its record where the proxy that created it had a secret. Where it had none, or this one has another,
// which complain is told, the session has no engine until the same request for it comes again.
func EngineOf(hub *engine.Hub, allowUpstream []string, box *secret.Box, complain func(error)) func(*record.Session) *engine.Upstream {
	return func(s *record.Session) *engine.Upstream {
		spec, key := &s.Spec, ""
		if spec.LLMURL != "" && allowed(allowUpstream, spec.LLMURL) != nil {
			return nil
		}
		if spec.Keyed {
			if len(s.SealedKey) == 0 {
				return nil
			}
			var err error
			if key, err = box.Open(s.ID, s.SealedKey); err != nil {
				complain(err)
				return nil
			}
		}
		up, err := hub.Get(engineConfig(allowUpstream, spec.LLMURL, key, spec.AuthHeader, spec.Model, spec.Provider))
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
// and port must be the same, host and path may have the wildcards of path.Match, each within one part, and what lies below
// its path is allowed with it. Without patterns everything is, except addresses where clouds serve credentials; those no
// wildcard allows.
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
	if isLinkLocal(u) && !namesLinkLocal(patterns, address) {
		return invalid("llm_url", "%s is an address where clouds serve credentials: name it with --allow-upstream, without wildcards, if there is an engine", u.Hostname())
	}
	if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return matches(p, u) }) {
		return invalid("llm_url", "the proxy does not allow this engine: name it with --allow-upstream")
	}
	return nil
}

func matches(pattern string, u *url.URL) bool {
	scheme, rest, ok := strings.Cut(pattern, "://")
	if !ok || !strings.EqualFold(scheme, u.Scheme) {
		return false
	}
	_, prefix, _ := strings.Cut(rest, "/")
	name, port := splitPort(hostOfPattern(pattern), scheme)
	gotName, gotPort := splitPort(u.Host, u.Scheme)
	if !sameHost(strings.ToLower(name), strings.ToLower(gotName)) || port != "*" && port != gotPort {
		return false
	}
	root := strings.Trim(u.Path, "/")
	if root == "" {
		root = "v1" // what an address without a path gets
	}
	return below(prefix, root)
}

func hostOfPattern(pattern string) string {
	_, rest, _ := strings.Cut(pattern, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// sameHost matches a host part by part, so that no wildcard reaches over a dot: 10.0.0.* is not 10.0.0.1.evil.example. Only a
// first part of nothing but * stands for any number of parts, and one at the end of a number for an address alone.
func sameHost(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	want, got := strings.Split(pattern, "."), strings.Split(host, ".")
	if want[0] == "*" && len(got) > len(want) {
		got = got[len(got)-len(want):]
	}
	if len(got) != len(want) {
		return false
	}
	if last := want[len(want)-1]; len(want) > 1 && strings.ContainsAny(last, "*?") {
		if _, err := netip.ParseAddr(host); err != nil {
			return false
		}
	}
	for i := range want {
		// The brackets of an IPv6 address are no character class.
		part := strings.NewReplacer("[", `\[`, "]", `\]`).Replace(want[i])
		if same, err := path.Match(part, got[i]); err != nil || !same {
			return false
		}
	}
	return true
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
