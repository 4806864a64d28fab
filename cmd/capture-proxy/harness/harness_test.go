package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRecipes prepares every agent, with a model's name that breaks what is not quoted.
func TestRecipes(t *testing.T) {
	const model = `org/a "quoted" \ name`
	seen := map[string]bool{}
	for _, h := range Known() {
		t.Run(h.Name, func(t *testing.T) {
			if seen[h.Name] || len(h.Dialects) == 0 || len(h.Command) < 2 || h.Command[len(h.Command)-1] != Task {
				t.Errorf("an incomplete or second entry: %+v", h)
			}
			seen[h.Name] = true
			at := Endpoint{URL: "http://127.0.0.1:9", Session: "s-1", Model: model, Context: 32_000, Dir: t.TempDir()}
			env, err := h.Prepare(at)
			if err != nil {
				t.Fatal(err)
			}
			if h.Recipe != (len(env) > 0) || h.NeedsDir() != (len(h.Files) > 0) {
				t.Errorf("recipe %v with %d variables, needs a directory %v with files %q", h.Recipe, len(env), h.NeedsDir(), h.Files)
			}
			text := checkVariables(t, h, env, at) + checkFiles(t, h, at.Dir)
			if h.Recipe && h.Name != "gemini" && h.Name != "mini" && h.Name != "aider" && h.Name != "qwen" && !strings.Contains(text, at.URL) {
				t.Errorf("nothing points it at the proxy:\n%s", text)
			}
			for _, left := range []string{"{{", "<no value>"} {
				if strings.Contains(text, left) {
					t.Errorf("%s is left in\n%s", left, text)
				}
			}
		})
	}
}

// checkVariables expects those that the entry names, and JSON where one holds a configuration.
func checkVariables(t *testing.T, h Harness, env []string, at Endpoint) string {
	t.Helper()
	var names []string
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		names = append(names, name)
		if strings.HasPrefix(value, "{") && !json.Valid([]byte(value)) {
			t.Errorf("%s is no JSON: %s", name, value)
		}
		if name == "HOME" {
			t.Error("the recipe moves HOME")
		}
	}
	if !slices.Equal(names, h.Sets) && len(names)+len(h.Sets) > 0 {
		t.Errorf("it sets %q and says %q", names, h.Sets)
	}
	return strings.Join(env, "\n")
}

// checkFiles expects those that the entry names, for nobody else to read, and JSON where a name says so.
func checkFiles(t *testing.T, h Harness, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, f := range h.Files {
		path := filepath.Join(dir, f)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s holds the session's key and has mode %v (%v)", f, info.Mode(), err)
		}
		if strings.HasSuffix(f, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON:\n%s", f, text)
		}
		all.Write(text)
	}
	return all.String()
}

func TestPrepareSaysWhatFails(t *testing.T) {
	codex, ok := Lookup("codex")
	if !ok {
		t.Fatal("codex is not known")
	}
	if _, err := codex.Prepare(Endpoint{Dir: filepath.Join(t.TempDir(), "file\x00")}); err == nil {
		t.Error("files in a directory that cannot be")
	}
	if _, ok := Lookup("nobody"); ok {
		t.Error("an agent that nobody knows")
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"": `""`, "m": `"m"`, `a"b`: `"a\"b"`, "<&>": `"<&>"`} {
		if got, err := quote(in); err != nil || got != want {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
}
