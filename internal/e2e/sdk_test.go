//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// played is what an SDK script prints.
type played struct {
	Model      string     `json:"model"`
	Whole      []answer   `json:"whole"`
	Streamed   []answer   `json:"streamed"`
	NoUsage    answer     `json:"no_usage"`
	Refused    *refusal   `json:"refused"`
	Completion completion `json:"completion"`
	Fields     []string   `json:"fields"`
}

type answer struct {
	Content string         `json:"content"`
	Calls   []call         `json:"calls"`
	Finish  string         `json:"finish"`
	Model   string         `json:"model"`
	Usage   map[string]any `json:"usage"`
}

type call struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type refusal struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
}

type completion struct {
	Whole    string         `json:"whole"`
	Streamed string         `json:"streamed"`
	Usage    map[string]any `json:"usage"`
}

// TestSDKs plays the same calls with each official SDK, once on the engine itself and once through the proxy, and expects
// to see no difference: not in the answers, not in the fields they have.
func TestSDKs(t *testing.T) {
	engine := fakeEngine(t)
	p := serve(t, "--upstream", engine, "--data", t.TempDir())
	for _, sdk := range []struct {
		name    string
		command []string
		env     []string
	}{
		{"python", []string{installed(t, "python", "bin", "python"), "testdata/sdk.py"}, nil},
		{"node", []string{"node", "testdata/sdk.mjs"}, []string{"SDK_MODULES=" + installed(t, "node")}},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			play := func(url, key string) (out played) {
				env := append(sdk.env, "OPENAI_BASE_URL="+url+"/v1", "OPENAI_API_KEY="+key)
				text, code := command(t, env, sdk.command[0], sdk.command[1:]...)
				if code != 0 {
					t.Fatalf("the script ended with %d", code)
				}
				if err := json.Unmarshal([]byte(text), &out); err != nil {
					t.Fatalf("%v in %s", err, text)
				}
				return out
			}
			direct := play(engine, "none")
			session := p.session(t)
			through := play(p.url, session)
			if diff := cmp.Diff(direct, through); diff != "" {
				t.Errorf("the engine itself (-) and through the proxy (+):\n%s", diff)
			}
			checkPlayed(t, through)
			checkCaptured(t, through, p.close(t, session))
		})
	}
}

// checkPlayed makes sure that the comparison compared something.
func checkPlayed(t *testing.T, got played) {
	t.Helper()
	for _, a := range [][]answer{got.Whole, got.Streamed} {
		if len(a) != steps+1 || a[0].Finish != "tool_calls" || !strings.Contains(a[0].Calls[0].Arguments, "echo") || a[steps].Finish != "stop" {
			t.Errorf("the tool loop went otherwise: %+v", a)
		}
		for _, turn := range a {
			if turn.Usage["completion_tokens"] == nil {
				t.Errorf("no usage: %+v", turn)
			}
		}
	}
	if got.NoUsage.Usage != nil || got.NoUsage.Content == "" {
		t.Errorf("usage that nobody asked for, or no answer: %+v", got.NoUsage)
	}
	if got.Refused == nil || got.Refused.Status != 400 {
		t.Errorf("the engine's refusal became %+v", got.Refused)
	}
	if c := got.Completion; c.Whole == "" || c.Whole != c.Streamed {
		t.Errorf("completion: whole %q, streamed %q", c.Whole, c.Streamed)
	}
	for _, path := range got.Fields {
		if strings.Contains(path, "token_ids") || strings.Contains(path, "logprob") {
			t.Errorf("the client was given %s, which it did not ask for", path)
		}
	}
}

// checkCaptured expects every answer that the SDK got as a turn with its tokens, and the refusal as a failed call.
func checkCaptured(t *testing.T, got played, doc *export.Rollout) {
	t.Helper()
	if want := len(got.Whole) + len(got.Streamed) + 1 + 2; len(doc.Turns) != want {
		t.Errorf("%d turns, want %d", len(doc.Turns), want)
	}
	for _, turn := range doc.Turns {
		if turn.Outcome != record.Complete && turn.Outcome != record.Length || turn.NPrompt == 0 || turn.NSampled == 0 {
			t.Errorf("turn %s: %s with %d + %d tokens", turn.NodeID, turn.Outcome, turn.NPrompt, turn.NSampled)
		}
	}
	if len(doc.FailedCalls) != 1 || doc.FailedCalls[0].Outcome != record.Rejected {
		t.Errorf("failed calls %+v, want the one that the engine refused", doc.FailedCalls)
	}
	if !doc.Trainable || doc.CaptureLevel != record.LevelTokens {
		t.Errorf("trainable %v, level %s", doc.Trainable, doc.CaptureLevel)
	}
}
