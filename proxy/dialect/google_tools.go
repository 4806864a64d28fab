package dialect

import (
	"slices"

	"captureproxy/internal/jsonscan"
)

// tools writes the declared functions and names the built-in tools that the engine does not have.
func (d *googleDecoder) tools(doc *jsonscan.Doc) *Error {
	m := lastMember(doc, "tools")
	if m == nil {
		return nil
	}
	cur := jsonscan.New(m.Raw(doc.Bytes))
	for a := cur.Array(); a.Next(); {
		raw := cur.Raw()
		d.req.Cuts = append(d.req.Cuts, m.Value+a.Value, m.Value+a.Value+len(raw))
		tool := camelDoc(raw)
		if tool == nil {
			d.note("tools[]", raw, "it is no object")
			continue
		}
		for i := range tool.Members {
			member := &tool.Members[i]
			value := member.Raw(tool.Bytes)
			switch {
			case isNull(value):
			case member.Key != "functionDeclarations":
				d.noteBehaviour("tools[]."+member.Key, value, "the engine has no such built-in tool")
			default:
				inner := jsonscan.New(value)
				for b := inner.Array(); b.Next(); {
					if err := d.declaration(inner.Raw()); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// declaration writes a declared function.
func (d *googleDecoder) declaration(raw []byte) *Error {
	function := camelDoc(raw)
	if function == nil || inside(function.Get("name")) == nil {
		d.note("tools[].functionDeclarations[]", raw, "it has no name")
		return nil
	}
	if d.allowed != nil && !slices.Contains(d.allowed, stringOf(function.Get("name"))) {
		return nil
	}
	tool := chatTool{name: function.Get("name")}
	for i := range function.Members {
		m := &function.Members[i]
		value := m.Raw(function.Bytes)
		if isNull(value) {
			continue
		}
		switch m.Key {
		case "name":
		case "description":
			tool.description = value
		case "parameters":
			schema, err := jsonSchema(value)
			if err != nil {
				return bad("tools", "the parameters of "+stringOf(tool.name)+" are no schema: "+err.Error())
			}
			tool.parameters = schema
		case "parametersJsonSchema":
			tool.parameters = value
		default:
			d.note("tools[].functionDeclarations[]."+m.Key, value, "a function of chat has nothing like it")
		}
	}
	d.out.tool(&tool)
	return nil
}
