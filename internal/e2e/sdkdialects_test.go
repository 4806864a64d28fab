//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// conversation is what a script prints that lets an SDK work through a tool loop.
type conversation struct {
	Whole    []reply `json:"whole"`
	Streamed []reply `json:"streamed"`
	Count    int     `json:"count"`
	Refused  int     `json:"refused"`
}

type reply struct {
	Content string `json:"content"`
	Thought string `json:"thought"`
	Calls   []call `json:"calls"`
	Finish  string `json:"finish"`
	Prompt  int    `json:"prompt"`
	Sampled int    `json:"sampled"`
}

// TestDialectSDKs has the official Python SDKs of Anthropic and Google talk to an engine that thinks and speaks chat
// completions only. Each reads every answer as its own, and its history extends what was sampled.
func TestDialectSDKs(t *testing.T) {
	p := serve(t, "--upstream", fakeEngine(t, "--reasoning"), "--data", t.TempDir())
	for _, sdk := range []struct {
		script, url, key string
		dialect          record.Dialect
		called, ended    string
	}{
		{"testdata/sdk_anthropic.py", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", record.AnthropicMessages, "tool_use", "end_turn"},
		{"testdata/sdk_google.py", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", record.Google, "STOP", "STOP"},
	} {
		t.Run(string(sdk.dialect), func(t *testing.T) {
			t.Parallel()
			session := p.session(t)
			text, code := command(t, []string{sdk.url + "=" + p.url, sdk.key + "=" + session},
				installed(t, "python", "bin", "python"), sdk.script)
			if code != 0 {
				t.Fatalf("the script ended with %d", code)
			}
			var got conversation
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			checkReplies(t, got.Whole, sdk.called, sdk.ended)
			checkReplies(t, got.Streamed, sdk.called, sdk.ended)
			if got.Count <= 0 || got.Refused != 401 {
				t.Errorf("it counted %d tokens, and an unknown key got %d", got.Count, got.Refused)
			}
			doc := p.close(t, session)
			checkDialect(t, doc, sdk.dialect)
			checkRepliesCaptured(t, slices.Concat(got.Whole, got.Streamed), doc)
		})
	}
}

// checkReplies expects a thought and a call in every answer but the last, which has text in place of the call.
func checkReplies(t *testing.T, replies []reply, called, ended string) {
	t.Helper()
	if len(replies) != steps+1 {
		t.Fatalf("%d answers, want %d: %+v", len(replies), steps+1, replies)
	}
	for i, r := range replies {
		last := i == steps
		switch {
		case r.Content == "" || r.Thought == "":
			t.Errorf("answer %d has no text or no thought: %+v", i, r)
		case last && (r.Finish != ended || len(r.Calls) > 0):
			t.Errorf("the last answer goes on: %+v", r)
		case !last && (r.Finish != called || len(r.Calls) != 1 || r.Calls[0].Name != "bash" || !strings.Contains(r.Calls[0].Arguments, "echo step")):
			t.Errorf("answer %d is no call: %+v", i, r)
		}
	}
}

// checkRepliesCaptured expects each conversation as one row, and the SDK's counts as the document's.
func checkRepliesCaptured(t *testing.T, replies []reply, doc *export.Rollout) {
	t.Helper()
	if len(doc.Turns) != len(replies) || len(doc.FailedCalls) > 0 || !doc.Trainable {
		t.Fatalf("%d turns for %d answers, failed calls %+v, trainable %v", len(doc.Turns), len(replies), doc.FailedCalls, doc.Trainable)
	}
	for i, turn := range doc.Turns {
		if turn.NPrompt != replies[i].Prompt || turn.NSampled != replies[i].Sampled {
			t.Errorf("turn %d has %d + %d tokens, the SDK was told %d + %d", i, turn.NPrompt, turn.NSampled, replies[i].Prompt, replies[i].Sampled)
		}
	}
	for _, row := range rows(doc, export.Agent) {
		if row.NTurns != steps+1 || !row.Trainable {
			t.Errorf("a row of %d turns, trainable %v: %v", row.NTurns, row.Trainable, causes(doc))
		}
	}
	if n := len(rows(doc, export.Agent)); n != 2 {
		t.Errorf("%d agent rows, want one for each conversation: %v", n, causes(doc))
	}
}
