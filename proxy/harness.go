package proxy

import (
	"encoding/json"
	"net/http"
	"strings"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// sessionHeaders are where harnesses put their own session's id (WIRE 4). It never routes; it is recorded.
var sessionHeaders = []string{"X-Claude-Code-Session-Id", "X-Session-Id", "Session_id", "Session-Id", "X-Session-Affinity", "X-Affinity"}

// harnessOf says what a call's headers and metadata tell about its caller. body is the harness's own request.
func harnessOf(h http.Header, body *jsonscan.Doc) (record.Harness, string) {
	var out record.Harness
	out.Name, out.Version = product(h.Get("User-Agent"))
	out.AgentID = firstOf(h, "X-Claude-Code-Agent-Id", "X-Openai-Subagent")
	out.ParentAgentID = firstOf(h, "X-Claude-Code-Parent-Agent-Id", "X-Parent-Session-Id")
	id := firstOf(h, sessionHeaders...)
	if body == nil {
		return out, id
	}
	thread := codexThread(body)
	switch {
	case id == "" && thread != "":
		id = thread
	case thread != "" && thread != id: // codex: a thread of its own inside a session is a subagent's
		out.AgentID, out.ParentAgentID = thread, id
	}
	if id == "" {
		id = metadataSession(body)
	}
	return out, id
}

// product reads the first product of a user agent: name/1.2.3, name/1.2.3/model (gemini-cli) or, as OpenAI's and
// Anthropic's SDKs spell it, name/language 1.2.3.
func product(agent string) (name, version string) {
	first, rest, _ := strings.Cut(agent, " ")
	name, version, _ = strings.Cut(first, "/")
	version, _, _ = strings.Cut(version, "/")
	next, _, _ := strings.Cut(rest, " ")
	if version != "" && !digit(version) && digit(next) {
		return first, next
	}
	return name, version
}

func digit(s string) bool { return s != "" && '0' <= s[0] && s[0] <= '9' }

func firstOf(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// codexThread reads client_metadata's thread id.
func codexThread(body *jsonscan.Doc) string {
	cur := jsonscan.New(body.Get("client_metadata"))
	thread := ""
	if cur.Peek() != '{' {
		return ""
	}
	for o := cur.Object(); o.Next(); {
		if string(o.Key) == "thread_id" {
			thread, _ = cur.String()
		}
	}
	return thread
}

// metadataSession finds a session in metadata.user_id, which is a JSON string with a session_id in it (claude, kimi), or in
// prompt_cache_key.
func metadataSession(body *jsonscan.Doc) string {
	var metadata struct {
		UserID string `json:"user_id"`
	}
	var user struct {
		SessionID string `json:"session_id"`
	}
	if raw := body.Get("metadata"); raw != nil && json.Unmarshal(raw, &metadata) == nil && json.Unmarshal([]byte(metadata.UserID), &user) == nil && user.SessionID != "" {
		return user.SessionID
	}
	cur := jsonscan.New(body.Get("prompt_cache_key"))
	key, _ := cur.String()
	return key
}
