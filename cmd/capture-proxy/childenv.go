package main

import (
	"slices"
	"strings"
)

// otherCredentials are variables with which harnesses authenticate in place of the API key that run gives them. With one
// of them set a real key would be sent instead of the session.
var otherCredentials = []string{"ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "GOOGLE_API_KEY"}

// childEnvironment returns a harness's environment: every dialect points at the proxy with the session as its key. The
// proxy's own variables are left out, above all its admin key: an agent must not be able to score itself.
func childEnvironment(parent []string, proxyURL, session string) []string {
	set := [][2]string{
		{"OPENAI_BASE_URL", proxyURL + "/v1"},
		{"OPENAI_API_BASE", proxyURL + "/v1"},
		{"OPENAI_API_KEY", session},
		{"ANTHROPIC_BASE_URL", proxyURL},
		{"ANTHROPIC_API_KEY", session},
		{"GOOGLE_GEMINI_BASE_URL", proxyURL},
		{"GEMINI_API_KEY", session},
		{"CAPTURE_PROXY_SESSION", session},
		{"CAPTURE_PROXY_URL", proxyURL},
	}
	noProxy := map[string]string{"NO_PROXY": "", "no_proxy": ""}
	var env []string
	for _, variable := range parent {
		name, value, _ := strings.Cut(variable, "=")
		_, direct := noProxy[name]
		switch {
		case direct:
			noProxy[name] = value
		case strings.HasPrefix(name, "CAPTURE_PROXY_") || slices.Contains(otherCredentials, name):
		case slices.ContainsFunc(set, func(s [2]string) bool { return s[0] == name }):
		default:
			env = append(env, variable)
		}
	}
	for _, s := range set {
		env = append(env, s[0]+"="+s[1])
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		env = append(env, name+"="+withLoopback(noProxy[name]))
	}
	return env
}

// withLoopback adds the loopback names to a list of hosts that are reached without an HTTP proxy.
func withLoopback(hosts string) string {
	var list []string
	for host := range strings.SplitSeq(hosts, ",") {
		if host = strings.TrimSpace(host); host != "" {
			list = append(list, host)
		}
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if !slices.Contains(list, host) {
			list = append(list, host)
		}
	}
	return strings.Join(list, ",")
}
