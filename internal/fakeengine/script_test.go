package fakeengine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// manifests are shell tools as harnesses offer them, each beside other tools.
var manifests = map[string]struct{ tools, call string }{
	"opencode": {
		fn("edit", `{"type":"object","properties":{"filePath":{"type":"string"}},"required":["filePath"]}`) + "," +
			fn("bash", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"command":{"description":"The command to execute","type":"string"},"timeout":{"type":"number"},"description":{"type":"string"}},"required":["command","description"],"additionalProperties":false}`),
		`bash {"command": "echo step 1", "description": "say hello"}`},
	"claude": {fn("Bash", `{"type":"object","properties":{"command":{"type":"string"},"run_in_background":{"type":"boolean"}},"required":["command"]}`),
		`Bash {"command": "echo step 1"}`},
	"codex": {fn("shell", `{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}},"workdir":{"type":"string"}},"required":["command"]}`),
		`shell {"command": ["bash", "-lc", "echo step 1"]}`},
	"codex exec": {fn("exec_command", `{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"]}`),
		`exec_command {"cmd": "echo step 1"}`},
	"qwen": {fn("run_shell_command", `{"type":"object","properties":{"command":{"type":"string"},"is_background":{"type":"boolean"}},"required":["command","is_background"]}`),
		`run_shell_command {"command": "echo step 1", "is_background": false}`},
	"cline": {fn("run_commands", `{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}}},"required":["commands"]}`),
		`run_commands {"commands": ["echo step 1"]}`},
	"openhands": {fn("terminal", `{"type":"object","properties":{"command":{"type":"string"},"security_risk":{"type":"string","enum":["LOW","MEDIUM","HIGH"]}},"required":["command","security_risk"]}`),
		`terminal {"command": "echo step 1", "security_risk": "LOW"}`},
	"droid": {fn("Execute", `{"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"integer"},"riskLevel":{"type":"object"}},"required":["command","timeout","riskLevel"]}`),
		`Execute {"command": "echo step 1", "riskLevel": {}, "timeout": 30}`},
	"nanocoder": {fn("execute_bash", `{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
		`execute_bash {"command": "echo step 1"}`},
	"a lone tool": {fn("get_weather", `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}`),
		`get_weather {"city": "say hello", "days": 30}`},
	"no shell": {fn("write", `{}`) + "," + fn("delete", `{}`), ""},
}

func fn(name, schema string) string {
	return fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"…","parameters":%s}}`, name, schema)
}

func TestShellOfEveryHarness(t *testing.T) {
	for name, m := range manifests {
		e := New(Options{})
		answer := post(t, e, []byte(`{"temperature":0,"messages":[{"role":"user","content":"go"}],"tools":[`+m.tools+`]}`))
		call := gjson.Get(answer, "choices.0.message.tool_calls.0.function")
		got := strings.TrimSpace(call.Get("name").String() + " " + call.Get("arguments").String())
		if got != m.call {
			t.Errorf("%s: %s, want %s", name, got, m.call)
		}
		reason := "tool_calls"
		if m.call == "" {
			reason = "stop"
		}
		if got := gjson.Get(answer, "choices.0.finish_reason").String(); got != reason {
			t.Errorf("%s: finished with %s", name, got)
		}
	}
}

// A whole run: three calls, then the answer; a second task starts over; reminders between do not.
func TestRun(t *testing.T) {
	e := New(Options{})
	messages := `{"role":"system","content":"You are an agent."},{"role":"user","content":"go"}`
	ask := func() gjson.Result {
		t.Helper()
		answer := post(t, e, []byte(`{"messages":[`+messages+`],"tools":[`+bashTool+`]}`))
		m := gjson.Get(answer, "choices.0.message")
		messages += "," + m.Raw
		return m
	}
	for task := range 2 {
		for step := 1; step <= 3; step++ {
			m := ask()
			want := fmt.Sprintf(`{"command": "echo step %d"}`, step)
			if got := m.Get("tool_calls.0.function.arguments").String(); got != want {
				t.Fatalf("task %d: %s, want %s", task, got, want)
			}
			messages += `,{"role":"tool","tool_call_id":"x","content":"ok"},{"role":"user","content":"<reminder>"}`
		}
		if m := ask(); m.Get("tool_calls").Exists() || m.Get("content").String() == "" {
			t.Fatalf("task %d: no final answer: %s", task, m.Raw)
		}
		messages += `,{"role":"user","content":"again"}`
	}
}

func TestToolChoice(t *testing.T) {
	tools := bashTool + "," + fn("read", `{"properties":{"path":{"type":"string"}},"required":["path"]}`)
	for choice, want := range map[string][2]string{
		`"auto"`:     {"bash", "tool_calls"},
		`"none"`:     {"", "stop"},
		`"required"`: {"bash", "tool_calls"},
		`{"type":"function","function":{"name":"read"}}`: {"read", "stop"},
	} {
		answer := post(t, New(Options{}), []byte(`{"messages":[{"role":"user","content":"go"}],"tools":[`+tools+`],"tool_choice":`+choice+`}`))
		got := [2]string{gjson.Get(answer, "choices.0.message.tool_calls.0.function.name").String(), gjson.Get(answer, "choices.0.finish_reason").String()}
		if got != want {
			t.Errorf("%s: %v, want %v", choice, got, want)
		}
	}
}

func TestTitle(t *testing.T) {
	answer := post(t, New(Options{}), []byte(`{"temperature":0,"messages":[{"role":"system","content":"Generate a Title"},{"role":"user","content":"go"}]}`))
	if got := gjson.Get(answer, "choices.0.message.content").String(); got != "Echo a few steps" {
		t.Errorf("title %q", got)
	}
}

// Repeated requests differ above temperature 0 and agree at 0, and so with a seed; choices differ.
func TestSamplesDiffer(t *testing.T) {
	e := New(Options{})
	texts := func(extra string, times int) []string {
		seen := map[string]bool{}
		for range times {
			answer := post(t, e, []byte(`{"messages":[{"role":"user","content":"go"}]`+extra+`}`))
			for _, c := range gjson.Get(answer, "choices").Array() {
				seen[c.Get("message.content").String()] = true
			}
		}
		return slices.Sorted(maps.Keys(seen))
	}
	for extra, want := range map[string]int{``: 40, `,"temperature":0`: 1, `,"seed":7`: 1, `,"n":2,"seed":7`: 2} {
		if got := texts(extra, 40); len(got) != want {
			t.Errorf("%s: %d texts, want %d: %q", extra, len(got), want, got)
		}
	}
}

// A token that holds part of a character has an empty row; the character comes with the last of its tokens.
func TestSplitCharacters(t *testing.T) {
	e := New(Options{Steps: -1})
	answer := post(t, e, []byte(`{"messages":[{"role":"user","content":"go"}],"tools":[`+bashTool+`],"logprobs":true}`))
	text, empty := "", 0
	for _, row := range gjson.Get(answer, "choices.0.logprobs.content").Array() {
		if row.Get("token").String() == "" && row.Get("bytes").Raw == "[]" {
			empty++
		}
		text += row.Get("token").String()
	}
	if want := gjson.Get(answer, "choices.0.message.content").String() + "<|im_end|>"; text != want || empty == 0 {
		t.Errorf("rows spell %q with %d empty ones, want %q", text, empty, want)
	}
}
