package control

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/events"
	"captureproxy/validate"
)

// schemas makes JSON Schemas of the API's types, and of the rollout document, from the Go types themselves.
//
// What encoding/json and the document's own encoder make of a type is more than its fields tell: which ones are null
// when empty, and which may be missing. Pointers and Optional fields are nullable; for the document, what a document of
// empty values says decides (emptyDocument).
type schemas struct {
	defs  jsonschema.Definitions
	types map[string]reflect.Type // of each definition
}

const schemaRefs = "#/components/schemas/"

func newSchemas() *schemas {
	return &schemas{defs: jsonschema.Definitions{}, types: map[string]reflect.Type{}}
}

// add makes a schema of a value's type and returns a reference to it. A strict one has no further properties: that is how
// requests are read, while an answer of a later version may hold more.
func (s *schemas) add(v any, strict bool) *jsonschema.Schema {
	r := jsonschema.Reflector{
		Anonymous: true, AllowAdditionalProperties: !strict, Mapper: plainSchema, Namer: s.name,
	}
	made := r.Reflect(v)
	if s.name(reflect.TypeOf(v)) == "" {
		return made
	}
	for name, def := range made.Definitions {
		if _, there := s.defs[name]; !there || !strict { // what is in requests and answers is not strict
			s.defs[name] = def
		}
	}
	return &jsonschema.Schema{Ref: schemaRefs + s.name(reflect.TypeOf(v))}
}

// name tells apart types that have one name in several packages.
func (s *schemas) name(t reflect.Type) string {
	if t.Name() == "" {
		return "" // a list or a map has no definition of its own
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	switch t.PkgPath() {
	case reflect.TypeFor[export.Rollout]().PkgPath():
		if t != reflect.TypeFor[export.Rollout]() {
			name = "Rollout" + name
		}
	case reflect.TypeFor[record.Call]().PkgPath():
		name = "Record" + name
	}
	s.types[name] = t
	return name
}

// finish says what may be null or missing, and makes references point at where OpenAPI keeps schemas.
func (s *schemas) finish() error {
	empty, err := emptyDocument()
	if err != nil {
		return err
	}
	for name, def := range s.defs {
		fields := jsonFields(s.types[name])
		for pair := def.Properties.Oldest(); pair != nil; pair = pair.Next() {
			moveRefs(pair.Value)
			field := fields[pair.Key]
			if kept := valueType(field.Type); kept.Kind() == reflect.Map && nullable(kept.Elem()) {
				pair.Value.AdditionalProperties = orNull(pair.Value.AdditionalProperties)
			}
			if anything := field.Type == reflect.TypeFor[json.RawMessage](); !anything && (nullable(field.Type) || empty.null[field.key]) {
				pair.Value = orNull(pair.Value)
			}
			if empty.absent[field.key] {
				def.Required = without(def.Required, pair.Key)
			}
		}
	}
	return nil
}

func without(list []string, name string) []string {
	var out []string
	for _, have := range list {
		if have != name {
			out = append(out, have)
		}
	}
	return out
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
}

// moveRefs changes references within a property.
func moveRefs(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Ref = strings.Replace(s.Ref, "#/$defs/", schemaRefs, 1)
	moveRefs(s.Items)
	moveRefs(s.AdditionalProperties)
}

// nullable says that a field of this type may be null.
func nullable(t reflect.Type) bool {
	return valueType(t) != t || t == reflect.TypeFor[export.Time]()
}

// valueType is what a pointer points to or an Optional may hold; any other type itself.
func valueType(t reflect.Type) reflect.Type {
	if o, optional := reflect.Zero(t).Interface().(interface{ JSONSchemaAlias() any }); optional {
		t = reflect.TypeOf(o.JSONSchemaAlias())
	}
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// JSONSchemaAlias says that the field has the schema of its value; null is admitted by nullable.
func (o Optional[T]) JSONSchemaAlias() any { return new(T) }

// words are the closed vocabularies.
func words() map[reflect.Type][]any {
	return map[reflect.Type][]any{
		reflect.TypeFor[record.Status]():       {record.Running, record.Completed, record.Failed, record.SessionCanceled, record.Expired},
		reflect.TypeFor[record.Level]():        {record.LevelTokens, record.LevelLogprobs, record.LevelText},
		reflect.TypeFor[record.Delivery]():     {record.DeliveryPending, record.Delivered, record.DeliveryFailed},
		reflect.TypeFor[record.Purpose]():      {record.PurposeAuto, record.PurposeTrain, record.PurposeEval},
		reflect.TypeFor[record.Shared]():       {record.SharedEvery, record.SharedOnce},
		reflect.TypeFor[record.PromptSource](): {record.PromptEngine, record.PromptForced, record.PromptDerived},
		reflect.TypeFor[record.LogprobsMode](): {record.LogprobsProcessed, record.LogprobsRaw, record.LogprobsUnknown},
		reflect.TypeFor[record.Dialect]():      {record.OpenAIChat, record.OpenAICompletions, record.OpenAIResponses, record.AnthropicMessages, record.Google},
		reflect.TypeFor[record.Outcome](): {
			record.Complete, record.Length, record.Aborted, record.Filtered, record.IncompleteCapture,
			record.ClientGone, record.UpstreamError, record.Rejected, record.Cancelled, record.BudgetStop,
		},
		reflect.TypeFor[events.Kind](): anyOf(events.Kinds()),
		reflect.TypeFor[export.Role](): {export.Agent, export.Auxiliary, export.Discarded},
	}
}

// plainSchema gives the schemas of types that are not written as Go would write them; nil for all others.
func plainSchema(t reflect.Type) *jsonschema.Schema {
	if enum := words()[t]; enum != nil {
		return &jsonschema.Schema{Type: "string", Enum: enum}
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{} // any JSON
	case reflect.TypeFor[export.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[validate.Finding]():
		return &jsonschema.Schema{Type: "string", Pattern: `^\[(FATAL|WARN|INFO)\] [a-z_]+: `}
	case reflect.TypeFor[export.Mask]():
		return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "integer", Enum: []any{0, 1}}}
	case reflect.TypeFor[export.Logprobs]():
		return &jsonschema.Schema{Type: "array", Items: orNull(&jsonschema.Schema{Type: "number"})}
	case reflect.TypeFor[Whole]():
		return &jsonschema.Schema{Type: "integer"}
	}
	return nil
}

// fieldKey names a field of a type.
type fieldKey struct {
	of   reflect.Type
	name string
}

type jsonField struct {
	reflect.StructField
	key fieldKey
}

// jsonFields lists a struct's fields, those of embedded ones too, by their names in JSON.
func jsonFields(t reflect.Type) map[string]jsonField {
	fields := map[string]jsonField{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = jsonField{f, fieldKey{t, name}}
		}
	}
	return fields
}

// emptiness is what a document of empty values says about each field of its types.
type emptiness struct{ null, absent map[fieldKey]bool }

// emptyDocument writes a document in which every list has one element, every object is there and every value is empty.
func emptyDocument() (emptiness, error) {
	doc := &export.Rollout{}
	fill(reflect.ValueOf(doc).Elem())
	text, err := json.Marshal(doc)
	if err != nil {
		return emptiness{}, fmt.Errorf("an empty document cannot be written: %w", err)
	}
	e := emptiness{map[fieldKey]bool{}, map[fieldKey]bool{}}
	return e, e.observe(reflect.TypeOf(doc).Elem(), text)
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if _, isTime := v.Interface().(export.Time); isTime {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct && v.Type().Elem() != reflect.TypeFor[validate.Finding]() {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	}
}

// observe notes what is null or absent in the JSON of a value of a type, and below it.
func (e emptiness) observe(t reflect.Type, text json.RawMessage) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if plainSchema(t) != nil || string(text) == "null" {
		return nil
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for _, element := range list {
			if err := e.observe(t.Elem(), element); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		for name, f := range jsonFields(t) {
			value, there := object[name]
			e.absent[f.key], e.null[f.key] = !there, string(value) == "null"
			if there {
				if err := e.observe(f.Type, value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
