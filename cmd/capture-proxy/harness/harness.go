// Package harness knows coding agents by name: which dialects each speaks, and how it is pointed at a proxy.
//
// Most take a base URL and an API key from the variables of their dialect, which capture-proxy run always sets. The
// others read a configuration file, or variables of their own. For them a Harness has a recipe: Prepare writes its files
// into a directory that the caller throws away afterwards, and returns the variables that make the agent read them. No
// recipe moves HOME: the agent keeps the user's own git identity, ssh keys and shell.
package harness

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/template"
)

// Harness is a coding agent that is known by name.
type Harness struct {
	Name string `json:"name"`
	// Dialects are the wire dialects it can be set to, its default first: chat, responses, anthropic, google.
	Dialects []string `json:"dialects"`
	// Recipe says whether run --harness prepares something for it. Without one its dialect's variables do.
	Recipe bool `json:"recipe"`
	// Sets names the variables of the recipe, Files what it writes.
	Sets  []string `json:"sets"`
	Files []string `json:"files"`
	// Command is how it is started for one task; the last argument stands for the task.
	Command []string `json:"command"`
	// Note is what a person has to know besides, "" for nothing.
	Note string `json:"note"`

	variables []variable
	files     []file
}

// variable is one that the recipe sets. Its value is a template.
type variable struct{ name, value string }

// file is one that the recipe writes: a path in its directory, and the embedded template of its content.
type file struct{ path, template string }

// Endpoint is what a recipe points an agent at.
type Endpoint struct {
	URL     string // of the proxy, without a path
	Session string // the API key
	Model   string // the name that the agent is to ask for
	Context int    // the model's window in tokens; some agents shorten their history by it
	Dir     string // where the recipe's files are
}

// Output is how many tokens of the window an agent that must say so asks for.
func (e Endpoint) Output() int { return e.Context / 8 }

// templates holds the agents' configuration files.
//
//go:embed templates
var templates embed.FS

// Lookup returns the agent of a name.
func Lookup(name string) (Harness, bool) {
	for _, h := range Known() {
		if h.Name == name {
			return h, true
		}
	}
	return Harness{}, false
}

// NeedsDir says whether Prepare writes files.
func (h Harness) NeedsDir() bool { return len(h.files) > 0 }

// Prepare writes the recipe's files into at.Dir and returns its variables, as os.Environ has them.
func (h Harness) Prepare(at Endpoint) ([]string, error) {
	for _, f := range h.files {
		text, err := templates.ReadFile(path.Join("templates", f.template))
		if err != nil {
			return nil, err
		}
		content, err := render(f.template, string(text), at)
		if err != nil {
			return nil, err
		}
		to := filepath.Join(at.Dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	var env []string
	for _, v := range h.variables {
		value, err := render(v.name, v.value, at)
		if err != nil {
			return nil, err
		}
		env = append(env, v.name+"="+value)
	}
	return env, nil
}

// render fills in a template. {{quote .Model}} is a string of JSON, which is one of TOML and YAML as well;
// {{file "x"}} is the content of another template.
func render(name, text string, at Endpoint) (string, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{
		"quote": quote,
		"file": func(name string) (string, error) {
			text, err := templates.ReadFile(path.Join("templates", name))
			if err != nil {
				return "", err
			}
			return render(name, string(text), at)
		},
	}).Parse(text)
	if err != nil {
		return "", fmt.Errorf("the recipe's template %s: %w", name, err)
	}
	var out strings.Builder
	if err := t.Execute(&out, at); err != nil {
		return "", fmt.Errorf("the recipe's template %s: %w", name, err)
	}
	return out.String(), nil
}

func quote(s string) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return strings.TrimSuffix(out.String(), "\n"), err
}
