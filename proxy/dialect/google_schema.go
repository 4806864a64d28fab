package dialect

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"captureproxy/internal/jsonscan"
)

// jsonSchema translates an OpenAPI-style schema, as `parameters` and `responseSchema` hold it, to JSON Schema: types in
// small letters, nullable as a type of its own, numbers that are spelled as strings, keys in camel case. The names of
// properties and all else keep their spelling.
func jsonSchema(raw []byte) ([]byte, error) {
	cur := jsonscan.New(raw)
	out := appendSchema(nil, &cur)
	if err := cur.End(); err != nil {
		return nil, err
	}
	if len(out) == 0 || out[0] != '{' {
		return nil, errors.New("it is no object")
	}
	return out, nil
}

func appendSchema(dst []byte, cur *jsonscan.Cursor) []byte {
	if cur.Peek() != '{' {
		return append(dst, cur.Raw()...)
	}
	nullable, kindEnd := false, 0
	dst = append(dst, '{')
	first := len(dst)
	for o := cur.Object(); o.Next(); {
		key := camel(string(o.Key))
		var kind []byte
		switch key {
		case "type":
			if kind = schemaType(cur.Raw()); kind == nil {
				continue
			}
		case "nullable":
			nullable, _ = cur.Bool()
			continue
		case "propertyOrdering":
			cur.Skip()
			continue
		}
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = append(jsonscan.AppendQuote(dst, key), ':')
		switch key {
		case "type":
			dst = append(dst, kind...)
			kindEnd = len(dst)
		case "items", "additionalProperties":
			dst = appendSchema(dst, cur)
		case "anyOf", "oneOf", "allOf", "prefixItems":
			dst = appendSchemas(dst, cur)
		case "properties", "$defs", "defs":
			dst = appendProperties(dst, cur)
		case "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "minimum", "maximum":
			dst = append(dst, number(cur.Raw())...)
		default:
			dst = append(dst, cur.Raw()...)
		}
	}
	if nullable && kindEnd > 0 && dst[kindEnd-1] == '"' {
		kindStart := bytes.LastIndexByte(dst[:kindEnd], ':') + 1
		dst = slices.Insert(dst, kindEnd, []byte(`,"null"]`)...)
		dst = slices.Insert(dst, kindStart, '[')
	}
	return append(dst, '}')
}

// schemaType is a type as JSON Schema spells it, nil for none.
func schemaType(raw []byte) []byte {
	if inside(raw) == nil { // a list, which is JSON Schema already
		return raw
	}
	name := strings.ToLower(stringOf(raw))
	if name == "type_unspecified" {
		return nil
	}
	return jsonscan.AppendQuote(nil, name)
}

func appendSchemas(dst []byte, cur *jsonscan.Cursor) []byte {
	if cur.Peek() != '[' {
		return append(dst, cur.Raw()...)
	}
	dst = append(dst, '[')
	first := len(dst)
	for a := cur.Array(); a.Next(); {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = appendSchema(dst, cur)
	}
	return append(dst, ']')
}

func appendProperties(dst []byte, cur *jsonscan.Cursor) []byte {
	if cur.Peek() != '{' {
		return append(dst, cur.Raw()...)
	}
	dst = append(dst, '{')
	first := len(dst)
	for o := cur.Object(); o.Next(); {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = append(jsonscan.AppendQuote(dst, o.Key), ':')
		dst = appendSchema(dst, cur)
	}
	return append(dst, '}')
}
