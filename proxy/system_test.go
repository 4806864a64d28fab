package proxy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"captureproxy/internal/record"
)

// A template that takes a system message at the beginning only: the harness does not notice, in its own dialect or another, and
// the engine is not asked twice again.
func TestSystemMessageInsideTheConversation(t *testing.T) {
	for _, c := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":"b"},{"content":"c", "role" : "system"},{"role":"user","content":"d"}]}`},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":9,"system":"a","messages":[{"role":"user","content":"b"},{"role":"system","content":"c"},{"role":"user","content":"d"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newScript(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				body := new(bytes.Buffer)
				body.ReadFrom(r.Body) //nolint:errcheck // it is in memory
				if strings.Count(strings.ReplaceAll(body.String(), " ", ""), `"role":"system"`) > 1 {
					answers(400, "application/json", `{"error":{"message":"System message must be at the beginning.","type":"BadRequestError","param":null,"code":400}}`)(w, r, 0)
					return
				}
				answers(200, "application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)(w, r, 0)
			})
			r := newRig(t, up.URL, rigOptions{level: record.LevelText})
			for range 2 {
				if resp, body := r.post(c.path, c.body); resp.StatusCode != 200 {
					t.Fatalf("%d %s", resp.StatusCode, body)
				}
			}
			if up.count() != 3 {
				t.Errorf("%d requests for two calls", up.count())
			}
			for _, call := range r.calls() {
				if !slices.ContainsFunc(call.Edits, func(e record.Edit) bool { return e.Param == systemParam }) || call.Outcome != record.Complete {
					t.Errorf("call %d: %s, edits %v", call.Number, call.Outcome, call.Edits)
				}
			}
			if sent := string(up.got(2).body); !strings.Contains(sent, `"c"`) || strings.Index(sent, `"b"`) > strings.Index(sent, `"c"`) {
				t.Errorf("sent %s", sent)
			}
		})
	}
}

// Another 400 about roles is the harness's own.
func TestOtherTemplateErrors(t *testing.T) {
	for _, text := range []string{"Conversation roles must alternate user/assistant/user/assistant/...", "messages[1].role: unknown role 'robot'", "the system is overloaded at first"} {
		if onlyLeading.MatchString(text) {
			t.Errorf("%q is taken for a system message's refusal", text)
		}
	}
	for _, text := range []string{"System message must be at the beginning.", "System role not supported", "Only user and assistant roles are supported!", "Unexpected message role: system"} {
		if !onlyLeading.MatchString(text) {
			t.Errorf("%q is not understood", text)
		}
	}
}
