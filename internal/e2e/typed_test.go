//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// TestTyped runs agents as a person would type it: the six that capture-proxy harnesses lists first.
func TestTyped(t *testing.T) {
	engine := fakeEngine(t)
	for _, c := range []struct {
		dialect record.Dialect
		run     []string // what stands before --
		agent   []string // and after it
	}{
		{record.AnthropicMessages, nil, []string{"claude", "-p", "--dangerously-skip-permissions", task}},
		{record.OpenAIResponses, []string{"--harness", "codex"},
			[]string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task}},
		{record.Google, []string{"--harness", "gemini"}, []string{"gemini", "--skip-trust", "-y", "-p", task}},
		{record.OpenAIChat, []string{"--harness", "qwen"}, []string{"qwen", "-y", "-p", task}},
		{record.OpenAIChat, []string{"--harness", "opencode"}, []string{"opencode", "run", task}},
		{record.OpenAIChat, []string{"--harness", "pi"}, []string{"pi", "-p", task}},
	} {
		t.Run(c.agent[0], func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "rollout.json")
			line := append([]string{binary, "run", "--upstream", engine, "--out", out}, c.run...)
			line = append(append(line, "--"), c.agent...)
			if _, code := typed(t, nil, line...); code != 0 {
				t.Errorf("it ended with %d", code)
			}
			doc := documentFile(t, out)
			checkDialect(t, doc, c.dialect)
			// Started so, some of them make side calls: titles, or which model is to work.
			work := rows(doc, export.Agent)
			if len(work) != 1 || work[0].NTurns < steps+1 || !work[0].Trainable || len(doc.FailedCalls) > 0 || !doc.Trainable {
				t.Errorf("agent rows %+v, %d failed calls, trainable %v", work, len(doc.FailedCalls), doc.Trainable)
			}
		})
	}
}

// typed runs a command in an empty home, with the agents on the PATH.
func typed(t *testing.T, env []string, line ...string) (stdout string, code int) {
	t.Helper()
	home := t.TempDir()
	env = append(elsewhere(home), env...)
	env = append(env, "PATH="+installed(t, "harnesses", "node_modules", ".bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return command(t, env, "sh", append([]string{"-c", `cd "$HOME/work" && exec "$@" </dev/null`, "sh"}, line...)...)
}

// elsewhere is the environment of a person without settings: a home of its own, with a folder for work in it. claude
// runs as root only where it is told that it is in a sandbox.
func elsewhere(home string) []string {
	os.Mkdir(filepath.Join(home, "work"), 0o700) //nolint:errcheck // whoever works there notices
	return []string{
		"HOME=" + home, "IS_SANDBOX=1", "XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home + "/.local/share",
		"XDG_STATE_HOME=" + home + "/.local/state", "XDG_CACHE_HOME=" + home + "/.cache",
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
