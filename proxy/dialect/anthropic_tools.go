package dialect

import (
	"fmt"
	"slices"

	"captureproxy/internal/jsonscan"
)

// tools translates the tool manifest. Tools that the provider defines or runs itself, by their type, have no schema that
// chat could say and are left out.
func (t *fromAnthropic) tools() *Error {
	raw := t.doc.Get("tools")
	if isNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return bad("tools", "tools must be a list")
	}
	err := t.elements("tools", t.tool)
	if err == nil && len(t.chat.tools) == 0 && len(t.foreignTools) == 0 {
		t.note("tools", raw, "an empty list is refused by engines and means the same as none")
	}
	return err
}

func (t *fromAnthropic) tool(i int, raw []byte) *Error {
	if raw[0] != '{' {
		return bad(fmt.Sprintf("tools[%d]", i), "a tool must be an object")
	}
	var kind string
	var tool chatTool
	var extras []member
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		switch value := cur.Raw(); string(o.Key) {
		case "type":
			kind = stringOf(value)
		case "name":
			tool.name = value
		case "description":
			tool.description = value
		case "input_schema":
			tool.parameters = value
		case "strict":
			tool.strict = value
		default:
			extras = append(extras, member{string(o.Key), value})
		}
	}
	if kind != "" && kind != "custom" {
		t.foreignTools = append(t.foreignTools, stringOf(tool.name))
		t.noteBehaviour("tools[]", raw, fmt.Sprintf("tools of type %s are the provider's own: chat knows only functions with a schema", kind))
		return nil
	}
	if tool.name == nil {
		return bad(fmt.Sprintf("tools[%d].name", i), "a tool must have a name")
	}
	t.extras("tools[].", extras)
	for _, optional := range []*[]byte{&tool.description, &tool.parameters, &tool.strict} {
		if isNull(*optional) {
			*optional = nil
		}
	}
	t.chat.tool(&tool)
	return nil
}

// toolChoice translates how tools are to be chosen. A choice that nothing can be chosen from is left out; one that forces
// a tool which chat does not have is refused.
func (t *fromAnthropic) toolChoice(raw []byte) *Error {
	var kind string
	var name []byte
	alone := false
	cur := jsonscan.New(raw)
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "type":
			kind, _ = cur.String()
		case "name":
			name = cur.Raw()
		case "disable_parallel_tool_use":
			alone, _ = cur.Bool()
		}
	}
	forced := kind == "any" || kind == "tool"
	if forced && len(t.foreignTools) > 0 && (len(t.chat.tools) == 0 || name != nil && slices.Contains(t.foreignTools, stringOf(name))) {
		return bad("tool_choice", "tool_choice forces a tool that the provider would run itself; the engine behind this proxy knows only functions with a schema")
	}
	if len(t.chat.tools) == 0 {
		t.note("tool_choice", raw, "there are no tools to choose from")
		return nil
	}
	switch kind {
	case "auto", "none":
		t.chat.member("tool_choice", jsonscan.AppendQuote(nil, kind))
	case "any":
		t.chat.member("tool_choice", []byte(`"required"`))
	case "tool":
		t.chat.member("tool_choice", slices.Concat([]byte(`{"type":"function","function":{"name":`), orEmpty(name), []byte("}}")))
	default:
		return bad("tool_choice.type", "tool_choice.type must be auto, any, tool or none")
	}
	if forced {
		t.r.Constraints = append(t.r.Constraints, "tool_choice")
	}
	if alone && kind != "none" {
		t.chat.member("parallel_tool_calls", []byte("false"))
	}
	return nil
}
