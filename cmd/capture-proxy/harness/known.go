package harness

// The dialects, as people call them.
const (
	chat      = "chat"
	responses = "responses"
	anthropic = "anthropic"
	google    = "google"
)

// Task stands for the task in Harness.Command.
const Task = "TASK"

// Known returns the agents, those first that are tested the most. Each was run as its Command says.
func Known() []Harness {
	all := append(agents(), more()...)
	for i := range all {
		h := &all[i]
		h.Recipe = len(h.variables)+len(h.files) > 0
		h.Sets, h.Files = []string{}, []string{}
		for _, v := range h.variables {
			h.Sets = append(h.Sets, v.name)
		}
		for _, f := range h.files {
			h.Files = append(h.Files, f.path)
		}
	}
	return all
}

func agents() []Harness {
	return []Harness{
		{
			Name: "claude", Dialects: []string{anthropic},
			Command: []string{"claude", "-p", "--dangerously-skip-permissions", Task},
			Note:    "as root it wants IS_SANDBOX=1 for this flag; an \"env\" with a base URL in its own settings.json wins over the variables",
		},
		{
			Name: "codex", Dialects: []string{responses},
			Command:   []string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", Task},
			variables: []variable{{"CODEX_HOME", "{{.Dir}}"}},
			files:     []file{{"config.toml", "codex.toml"}},
			Note:      "the user's own ~/.codex is not read",
		},
		{
			Name: "gemini", Dialects: []string{google},
			Command:   []string{"gemini", "--skip-trust", "-y", "-p", Task},
			variables: []variable{{"GEMINI_CLI_HOME", "{{.Dir}}"}},
			files:     []file{{".gemini/settings.json", "gemini.json"}},
			Note:      "the user's own ~/.gemini is not read; where it selects an API key the variables do as well",
		},
		{
			Name: "qwen", Dialects: []string{chat},
			Command: []string{"qwen", "-y", "-p", Task},
			variables: []variable{
				{"QWEN_CODE_SYSTEM_SETTINGS_PATH", "{{.Dir}}/settings.json"},
				{"OPENAI_MODEL", "{{.Model}}"},
			},
			files: []file{{"settings.json", "qwen.json"}},
			Note:  "its variables do as well, with --auth-type openai",
		},
		{
			Name: "opencode", Dialects: []string{chat},
			Command:   []string{"opencode", "run", Task},
			variables: []variable{{"OPENCODE_CONFIG_CONTENT", `{{file "opencode.json"}}`}},
		},
		{
			Name: "pi", Dialects: []string{chat},
			Command:   []string{"pi", "-p", Task},
			variables: []variable{{"PI_CODING_AGENT_DIR", "{{.Dir}}"}},
			files:     []file{{"models.json", "pi-models.json"}, {"settings.json", "pi-settings.json"}},
			Note:      "the user's own ~/.pi/agent is not read",
		},
	}
}
