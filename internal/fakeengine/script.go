package fakeengine

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// script answers as a coding agent's model would: a number of tool calls, then a text.
func (e *Engine) script(req *Request, variant uint64) Reply {
	if e.opts.Script != nil {
		return e.opts.Script(req, variant)
	}
	reply := e.scripted(req, variant)
	if e.opts.Reasoning && !req.noThinking {
		reply.Reasoning = "Let me think about what comes next" + manner(variant) + "."
	}
	return reply
}

func (e *Engine) scripted(req *Request, variant uint64) Reply {
	tools := req.Tools()
	if len(tools) == 0 || req.toolChoice.String() == "none" {
		return Reply{Content: textAnswer(req, variant)}
	}
	if name := req.toolChoice.Get("function.name").String(); name != "" {
		return Reply{Calls: []ToolCall{namedCall(tools, name)}}
	}
	step := position(req.Messages)
	if required := req.toolChoice.String() == "required"; !required && step >= e.opts.Steps {
		return Reply{Content: finalAnswer(step, variant)}
	}
	call, ok := shellCall(tools, fmt.Sprintf("echo step %d", step+1))
	switch {
	case ok:
	case len(tools) == 1 || req.toolChoice.String() == "required":
		call = namedCall(tools, tools[0].Name)
	default: // nothing here is known to be harmless
		return Reply{Content: finalAnswer(step, variant)}
	}
	return Reply{Content: fmt.Sprintf("Step %d%s.", step+1, manner(variant)), Calls: []ToolCall{call}}
}

// position counts the tool results since the task was set: since the last user message that does not itself follow a
// tool result, for harnesses put reminders of their own there.
func position(messages []Message) int {
	step, afterTool := 0, false
	for _, m := range messages {
		switch m.Role() {
		case "tool", "function":
			step++
			afterTool = true
		case "assistant":
			afterTool = false
		case "user":
			if !afterTool {
				step = 0
			}
		}
	}
	return step
}

// manners make samples of one prompt differ without making them differ in kind. Some hold characters that o200k splits.
var manners = [...]string{
	"", ", carefully", ", quickly", ", as asked", ", once more", ", with a smile 👋🏽", ", in order", " (日本語 ok)",
	", gently", ", at last", ", for sure", ", grüße", ", by the book", ", step by step", ", no hurry", " 🧭",
}

func manner(variant uint64) string {
	text := manners[variant%uint64(len(manners))]
	if rest := variant / uint64(len(manners)); rest > 0 {
		text += fmt.Sprintf(" #%d", rest%100_000)
	}
	return text
}

func finalAnswer(step int, variant uint64) string {
	return fmt.Sprintf("All %d steps are done 👋🏽 日本語%s.", step, manner(variant))
}

func textAnswer(req *Request, variant uint64) string {
	for _, m := range req.Messages {
		if (m.isSystem() || m.Role() == "user") && strings.Contains(strings.ToLower(m.Text()), "title") {
			return "Echo a few steps" + manner(variant)
		}
	}
	return "Hello! How can I help you today" + manner(variant) + "?"
}

// shellNames are the names that harnesses give their shell tools.
var shellNames = [...]string{
	"bash", "Bash", "shell", "Shell", "run_shell_command", "exec_command", "shell_command", "local_shell",
	"terminal", "run_commands", "Execute", "execute_bash",
}

// shellCall plays a command through the shell tool of a manifest, filled in as its own schema asks.
func shellCall(tools []Tool, command string) (ToolCall, bool) {
	for _, name := range shellNames {
		for _, t := range tools {
			if t.Name == name {
				return ToolCall{Name: name, Arguments: t.arguments(command)}, true
			}
		}
	}
	return ToolCall{}, false
}

// namedCall calls a tool by name with whatever its schema requires.
func namedCall(tools []Tool, name string) ToolCall {
	for _, t := range tools {
		if t.Name != name {
			continue
		}
		if key := t.commandKey(); key != "" {
			return ToolCall{Name: name, Arguments: t.arguments("echo step 1")}
		}
		return ToolCall{Name: name, Arguments: t.arguments("")}
	}
	return ToolCall{Name: name, Arguments: "{}"}
}

// commandKey is the property that takes a shell command, "" for none.
func (t Tool) commandKey() string {
	for _, key := range [...]string{"command", "cmd", "commands"} {
		if t.schema.Get("properties." + key).Exists() {
			return key
		}
	}
	return ""
}

// arguments fills in the command, unless it is empty, and the required properties.
func (t Tool) arguments(command string) string {
	key := ""
	out := []byte{'{'}
	member := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		out = append(out, value...)
	}
	if command != "" {
		if key = t.commandKey(); key == "" {
			key = "command"
		}
		value := appendString(nil, command)
		if t.schema.Get("properties."+key+".type").String() == "array" {
			if key == "commands" {
				value = fmt.Appendf(nil, "[%s]", value)
			} else {
				value = fmt.Appendf(nil, `["bash","-lc",%s]`, value)
			}
		}
		member(key, value)
	}
	for _, required := range t.schema.Get("required").Array() {
		if name := required.String(); name != key {
			member(name, fill(t.schema.Get("properties."+gjson.Escape(name))))
		}
	}
	return string(append(out, '}'))
}

// fill returns a JSON value that satisfies a property's schema.
func fill(schema gjson.Result) []byte {
	if first := schema.Get("enum.0"); first.Exists() {
		return []byte(first.Raw)
	}
	switch schema.Get("type").String() {
	case "boolean":
		return []byte("false")
	case "integer", "number":
		return []byte("30")
	case "array":
		return []byte("[]")
	case "object":
		return []byte("{}")
	}
	return []byte(`"say hello"`)
}
