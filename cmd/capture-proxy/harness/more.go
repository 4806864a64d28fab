package harness

// more are further agents with a command of their own.
func more() []Harness {
	return []Harness{
		{
			Name: "copilot", Dialects: []string{chat, responses, anthropic},
			Command: []string{"copilot", "--allow-all-tools", "--no-auto-update", "-p", Task},
			variables: []variable{
				{"COPILOT_OFFLINE", "true"},
				{"COPILOT_AUTO_UPDATE", "false"},
				{"COPILOT_PROVIDER_TYPE", "openai"},
				{"COPILOT_PROVIDER_WIRE_API", "completions"},
				{"COPILOT_PROVIDER_BASE_URL", "{{.URL}}/v1"},
				{"COPILOT_PROVIDER_API_KEY", "{{.Session}}"},
				{"COPILOT_MODEL", "{{.Model}}"},
			},
		},
		{
			Name: "droid", Dialects: []string{anthropic, responses, chat},
			Command: []string{"droid", "exec", "--skip-permissions-unsafe", Task},
			variables: []variable{
				{"FACTORY_HOME_OVERRIDE", "{{.Dir}}"},
				{"FACTORY_API_KEY", "fk-none"},
				{"FACTORY_AIRGAP_ENABLED", "true"},
				{"FACTORY_OTEL_ENABLED", "false"},
				{"FACTORY_DISABLE_DYNAMIC_CONFIG", "true"},
				{"FACTORY_DROID_AUTO_UPDATE_ENABLED", "false"},
			},
			files: []file{{".factory/settings.json", "droid.json"}},
		},
		{
			Name: "kilo", Dialects: []string{chat},
			Command: []string{"kilo", "run", "--auto", Task},
			variables: []variable{
				{"KILO_CONFIG_CONTENT", `{{file "opencode.json"}}`},
				{"KILO_DISABLE_MODELS_FETCH", "1"},
				{"KILO_DISABLE_SESSION_INGEST", "1"},
				{"KILO_DISABLE_SHARE", "1"},
			},
		},
		{
			Name: "kimi", Dialects: []string{chat, responses, anthropic},
			Command: []string{"kimi", "-p", Task},
			variables: []variable{
				{"KIMI_CODE_NO_AUTO_UPDATE", "1"},
				{"KIMI_MODEL_PROVIDER_TYPE", "openai"},
				{"KIMI_MODEL_BASE_URL", "{{.URL}}/v1"},
				{"KIMI_MODEL_API_KEY", "{{.Session}}"},
				{"KIMI_MODEL_NAME", "{{.Model}}"},
				{"KIMI_MODEL_MAX_CONTEXT_SIZE", "{{.Context}}"},
				{"KIMI_MODEL_MAX_OUTPUT_SIZE", "{{.Output}}"},
			},
		},
		{
			Name: "vibe", Dialects: []string{chat},
			Command:   []string{"vibe", "--trust", "--auto-approve", "-p", Task},
			variables: []variable{{"VIBE_HOME", "{{.Dir}}"}},
			files:     []file{{"config.toml", "vibe.toml"}},
		},
		{
			Name: "openhands", Dialects: []string{chat},
			Command: []string{"openhands", "--headless", "--override-with-envs", "--exit-without-confirmation", "-t", Task},
			variables: []variable{
				{"LLM_API_KEY", "{{.Session}}"},
				{"LLM_BASE_URL", "{{.URL}}/v1"},
				{"LLM_MODEL", "openai/{{.Model}}"},
			},
		},
		{
			Name: "mini", Dialects: []string{chat},
			Command: []string{"mini", "-y", "-l", "0", "--exit-immediately", "-t", Task},
			variables: []variable{
				{"MSWEA_CONFIGURED", "true"},
				{"MSWEA_COST_TRACKING", "ignore_errors"},
				{"MSWEA_MODEL_NAME", "openai/{{.Model}}"},
			},
		},
		{
			Name: "aider", Dialects: []string{chat},
			Command:   []string{"aider", "--yes-always", "--no-show-model-warnings", "--message", Task},
			variables: []variable{{"AIDER_MODEL", "openai/{{.Model}}"}},
			Note:      "it calls no tools: edits are text in its answers",
		},
	}
}
