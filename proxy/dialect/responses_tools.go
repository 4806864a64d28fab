package dialect

import (
	"strings"

	"captureproxy/internal/jsonscan"
)

// toolName is a tool as a Responses harness knows it.
type toolName struct {
	namespace, name string
	custom          bool
}

// toolNames is the two-way table between a request's tools and the functions that stand for them in the chat body.
type toolNames struct {
	byFlat map[string]toolName
	flat   map[[2]string]string // by namespace and name
}

// flatName is the function name for a tool of a namespace: namespace, two underscores, name, with no other underscores
// around them, as harnesses flatten such names themselves (`mcp__files` and `read` become `mcp__files__read`). The way back
// goes through the request's own tools, so it is exact whatever the names hold.
func flatName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.TrimRight(namespace, "_") + "__" + strings.TrimLeft(name, "_")
}

// add enters a tool. Where two would have the same flat name, the later one gets more underscores at its end.
func (n *toolNames) add(t toolName) string {
	if n.byFlat == nil {
		n.byFlat, n.flat = map[string]toolName{}, map[[2]string]string{}
	}
	key := [2]string{t.namespace, t.name}
	flat, known := n.flat[key]
	if !known {
		flat = flatName(t.namespace, t.name)
		for n.byFlat[flat] != (toolName{}) {
			flat += "_"
		}
	}
	n.byFlat[flat], n.flat[key] = t, flat
	return flat
}

// of returns the flat name of a call in the history, whose tool may be gone from the request.
func (n *toolNames) of(namespace, name string) string {
	if flat, known := n.flat[[2]string{namespace, name}]; known {
		return flat
	}
	return flatName(namespace, name)
}

// back returns the tool that the engine called. One that nobody offered is a plain function: the harness will say so.
func (n *toolNames) back(flat string) toolName {
	if t, known := n.byFlat[flat]; known {
		return t
	}
	return toolName{name: flat}
}

// responsesTool is a tool of the request that becomes a function.
type responsesTool struct {
	toolName
	doc *jsonscan.Doc
}

// nameTools reads the request's tools and names them. Those without a namespace come first into the table, so that they
// keep their names.
func (d *responsesDecoder) nameTools() []responsesTool {
	list := d.listTools()
	for _, nested := range []bool{false, true} {
		for _, t := range list {
			if (t.namespace != "") == nested {
				d.names.add(t.toolName)
			}
		}
	}
	return list
}

// listTools returns the request's tools in their order, those of namespaces one by one.
func (d *responsesDecoder) listTools() []responsesTool {
	m := lastMember(d.doc, "tools")
	if m == nil {
		return nil
	}
	var list []responsesTool
	cur := jsonscan.New(m.Raw(d.doc.Bytes))
	for a := cur.Array(); a.Next(); {
		raw := cur.Raw()
		d.req.Cuts = append(d.req.Cuts, m.Value+a.Value, m.Value+a.Value+len(raw))
		doc, err := jsonscan.ParseDoc(raw)
		if err != nil {
			d.note("tools[]", raw, "it is no object")
			continue
		}
		if stringOf(doc.Get("type")) != "namespace" {
			list = d.listTool(list, "", raw, doc)
			continue
		}
		namespace := stringOf(doc.Get("name"))
		if text := doc.Get("description"); len(inside(text)) > 0 {
			d.note("tools[].description", text, "chat has no namespaces, only the functions of one")
		}
		inner := jsonscan.New(doc.Get("tools"))
		for b := inner.Array(); b.Next(); {
			raw := inner.Raw()
			if doc, err := jsonscan.ParseDoc(raw); err == nil {
				list = d.listTool(list, namespace, raw, doc)
			}
		}
	}
	return list
}

func (d *responsesDecoder) listTool(list []responsesTool, namespace string, raw []byte, doc *jsonscan.Doc) []responsesTool {
	kind := stringOf(doc.Get("type"))
	if kind != "function" && kind != "custom" {
		d.noteBehaviour("tools[]", raw, "the engine has no built-in tool of type "+kind)
		return list
	}
	name := stringOf(doc.Get("name"))
	if nested := doc.Get("function"); name == "" && kind == "function" && nested != nil { // chat's own shape
		if inner, err := jsonscan.ParseDoc(nested); err == nil {
			doc, name = inner, stringOf(inner.Get("name"))
		}
	}
	if name == "" {
		d.note("tools[]", raw, "it has no name")
		return list
	}
	return append(list, responsesTool{toolName{namespace, name, kind == "custom"}, doc})
}

// tools writes the tools that the model may call.
func (d *responsesDecoder) tools(list []responsesTool) {
	for _, t := range list {
		flat := d.names.of(t.namespace, t.name)
		if d.allowed != nil && !d.allowed[flat] {
			continue
		}
		f := chatTool{name: jsonscan.AppendQuote(nil, flat)}
		if text := t.doc.Get("description"); inside(text) != nil {
			f.description = text
		}
		if t.custom {
			d.customTool(&f, t.doc)
		} else {
			d.function(&f, t.doc)
		}
		d.out.tool(&f)
	}
}

func (d *responsesDecoder) function(f *chatTool, doc *jsonscan.Doc) {
	for i := range doc.Members {
		m := &doc.Members[i]
		value := m.Raw(doc.Bytes)
		switch m.Key {
		case "type", "name", "description":
		case "parameters":
			if !isNull(value) {
				f.parameters = value
			}
		case "strict":
			if string(value) == "true" {
				f.strict = value
			}
		default:
			if !isNull(value) && string(value) != "false" {
				d.note("tools[]."+m.Key, value, "a function of chat has nothing like it")
			}
		}
	}
}

// customParameters is the schema of the function that stands for a custom tool.
const customParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}`

// customTool makes a function of a custom tool, whose input is free text. A grammar for it cannot be forced; the model is
// told of it.
func (d *responsesDecoder) customTool(f *chatTool, doc *jsonscan.Doc) {
	f.parameters = []byte(customParameters)
	cur := jsonscan.New(doc.Get("format"))
	var kind, syntax, definition string
	for o := cur.Object(); o.Next(); {
		switch string(o.Key) {
		case "type":
			kind, _ = cur.String()
		case "syntax":
			syntax, _ = cur.String()
		case "definition":
			definition, _ = cur.String()
		}
	}
	if kind == "" || kind == "text" {
		return
	}
	text := stringOf(f.description)
	if definition != "" {
		text += "\n\nThe input follows this grammar (" + syntax + "):\n" + definition
		f.description = jsonscan.AppendQuote(nil, text)
	}
	d.noteBehaviour("tools[].format", doc.Get("format"), "chat cannot hold a free text to a grammar: it is told to the model in the tool's description")
}

// toolChoice translates tool_choice, nil for none. It also sets which tools are allowed.
func (d *responsesDecoder) toolChoice() ([]byte, error) {
	raw := d.doc.Get("tool_choice")
	if isNull(raw) {
		return nil, nil
	}
	if inside(raw) != nil {
		return raw, nil
	}
	doc, err := jsonscan.ParseDoc(raw)
	if err != nil {
		return nil, bad("tool_choice", "tool_choice must be a string or an object")
	}
	switch kind := stringOf(doc.Get("type")); kind {
	case "function", "custom":
		flat := d.chosen(doc)
		choice := jsonscan.AppendQuote([]byte(`{"type":"function","function":{"name":`), flat)
		return append(choice, "}}"...), nil
	case "allowed_tools":
		d.allowed = map[string]bool{}
		cur := jsonscan.New(doc.Get("tools"))
		for a := cur.Array(); a.Next(); {
			if tool, err := jsonscan.ParseDoc(cur.Raw()); err == nil {
				d.allowed[d.chosen(tool)] = true
			}
		}
		d.note("tool_choice", raw, "only the allowed tools are given to the engine")
		if mode := doc.Get("mode"); inside(mode) != nil {
			return mode, nil
		}
		return []byte(`"auto"`), nil
	default:
		return nil, bad("tool_choice", "the engine has no built-in tool of type "+kind+", so it cannot be forced to use one")
	}
}

// chosen returns the flat name of a tool that tool_choice names.
func (d *responsesDecoder) chosen(doc *jsonscan.Doc) string {
	name := stringOf(doc.Get("name"))
	if nested := doc.Get("function"); name == "" && nested != nil {
		if inner, err := jsonscan.ParseDoc(nested); err == nil {
			name = stringOf(inner.Get("name"))
		}
	}
	namespace := stringOf(doc.Get("namespace"))
	if _, plain := d.names.flat[[2]string{"", name}]; namespace == "" && !plain {
		for _, t := range d.names.byFlat { // a name that only one namespace has
			if t.name == name {
				namespace = t.namespace
			}
		}
	}
	return d.names.of(namespace, name)
}

func (d *responsesDecoder) writeChoice(choice, raw []byte, hasTools bool) {
	if choice == nil {
		return
	}
	if !hasTools {
		if s := string(raw); s != `"auto"` && s != `"none"` {
			d.noteBehaviour("tool_choice", raw, "there are no tools to choose from")
		}
		return
	}
	if constrains("tool_choice", choice) {
		d.req.Constraints = append(d.req.Constraints, "tool_choice")
	}
	d.out.member("tool_choice", choice)
}

// lastMember returns the member of a key, of repeated ones the last, nil when it is absent.
func lastMember(doc *jsonscan.Doc, key string) *jsonscan.Member {
	for i := len(doc.Members) - 1; i >= 0; i-- {
		if doc.Members[i].Key == key {
			return &doc.Members[i]
		}
	}
	return nil
}
