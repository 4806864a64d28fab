package proxy

import (
	"net/http"
	"testing"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
)

// Who is calling, as real harnesses say it (WIRE 4).
func TestHarness(t *testing.T) {
	for name, c := range map[string]struct {
		header  []string
		body    string
		want    record.Harness
		session string
	}{
		"claude": {[]string{"User-Agent", "claude-cli/2.1.197 (external, cli)", "X-Claude-Code-Session-Id", "c1", "X-Claude-Code-Agent-Id", "a1", "X-Claude-Code-Parent-Agent-Id", "p1"},
			`{}`, record.Harness{Name: "claude-cli", Version: "2.1.197", AgentID: "a1", ParentAgentID: "p1"}, "c1"},
		"claude, metadata only": {[]string{"User-Agent", "claude-cli/2.1.197"}, `{"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"c2\"}"}}`,
			record.Harness{Name: "claude-cli", Version: "2.1.197"}, "c2"},
		"codex":          {[]string{"User-Agent", "codex_exec/0.171.0 (Debian)", "Session_id", "s"}, `{"client_metadata":{"thread_id":"s"}}`, record.Harness{Name: "codex_exec", Version: "0.171.0"}, "s"},
		"codex subagent": {[]string{"User-Agent", "codex_exec/0.171.0", "Session_id", "s"}, `{"client_metadata":{"thread_id":"t"}}`, record.Harness{Name: "codex_exec", Version: "0.171.0", AgentID: "t", ParentAgentID: "s"}, "s"},
		"gemini":         {[]string{"User-Agent", "GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64)"}, `{}`, record.Harness{Name: "GeminiCLI", Version: "0.61.0"}, ""},
		"opencode":       {[]string{"User-Agent", "opencode/1.18.33 ai-sdk/x", "X-Session-Id", "o1", "X-Parent-Session-Id", "o0"}, `{}`, record.Harness{Name: "opencode", Version: "1.18.33", ParentAgentID: "o0"}, "o1"},
		"an SDK":         {[]string{"User-Agent", "OpenAI/Python 2.1.0"}, `{"prompt_cache_key":"k"}`, record.Harness{Name: "OpenAI/Python", Version: "2.1.0"}, "k"},
		"nothing":        {nil, `{"metadata":{"user_id":"u"}}`, record.Harness{}, ""},
	} {
		h := http.Header{}
		for i := 0; i+1 < len(c.header); i += 2 {
			h.Set(c.header[i], c.header[i+1])
		}
		doc, err := jsonscan.ParseDoc([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if got, session := harnessOf(h, doc); got != c.want || session != c.session {
			t.Errorf("%s: %+v %q, want %+v %q", name, got, session, c.want, c.session)
		}
	}
}
