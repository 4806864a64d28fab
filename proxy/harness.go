package proxy

import (
	"net/http"
	"strings"

	"captureproxy/internal/record"
)

// sessionHeaders are where harnesses put their own session's id. It never routes; it is recorded.
var sessionHeaders = []string{"X-Claude-Code-Session-Id", "X-Session-Id", "Session_id", "Session-Id", "X-Session-Affinity", "X-Affinity"}

// harnessOf says what the caller's headers tell about it.
func harnessOf(h http.Header) (record.Harness, string) {
	var out record.Harness
	product, _, _ := strings.Cut(h.Get("User-Agent"), " ")
	out.Name, out.Version, _ = strings.Cut(product, "/")
	out.AgentID = h.Get("X-Claude-Code-Agent-Id")
	out.ParentAgentID = firstOf(h, "X-Claude-Code-Parent-Agent-Id", "X-Parent-Session-Id")
	return out, firstOf(h, sessionHeaders...)
}

func firstOf(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}
