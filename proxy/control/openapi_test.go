package control_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"captureproxy/proxy/control"
)

// described is the OpenAPI description that a proxy serves, with a compiler for the schemas in it.
type described struct {
	t    *testing.T
	text string
	doc  struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Security    *[]any
			Parameters  []struct{ Name, In string }
			RequestBody *struct {
				Content map[string]struct{ Schema ref }
			}
			Responses map[string]struct {
				Content map[string]struct{ Schema ref }
			}
		}
		Components struct{ Schemas map[string]any }
	}
	compiler *jsonschema.Compiler
}

// ref points at a schema; an answer that may be any object has none.
type ref struct {
	Ref string `json:"$ref"`
}

const describedAt = "http://127.0.0.1/openapi.json"

func describedBy(t *testing.T, r *rig) *described {
	t.Helper()
	d := &described{t: t, text: r.want(200, "GET", "/openapi.json", "").body, compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal([]byte(d.text), &d.doc); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(d.text))
	if err != nil {
		t.Fatal(err)
	}
	// Answers may hold more in a later version. This one's hold what is described, and nothing else.
	closeObjects(whole)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(describedAt, whole); err != nil {
		t.Fatal(err)
	}
	return d
}

func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, closed := v["additionalProperties"]; v["type"] == "object" && v["properties"] != nil && !closed {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

// check validates a JSON text against a schema of the description.
func (d *described) check(schema ref, text string) error {
	d.t.Helper()
	if schema.Ref == "" {
		return json.Unmarshal([]byte(text), &map[string]any{})
	}
	compiled, err := d.compiler.Compile(describedAt + schema.Ref)
	if err != nil {
		d.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		d.t.Fatal(err)
	}
	return compiled.Validate(value)
}

// operationOf finds the operation of a request, whose path may have a query.
func operationOf(method, path string) (operation, pathOf string) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	if len(parts) > 2 {
		parts[2] = "{id}"
	}
	return strings.ToLower(method), strings.Join(parts, "/")
}

// ask makes a call and holds the request and the answer against the description.
func (d *described) ask(r *rig, status int, method, path, text string) answer {
	d.t.Helper()
	a := r.want(status, method, path, text)
	m, p := operationOf(method, path)
	op, there := d.doc.Paths[p][m]
	if !there {
		d.t.Fatalf("%s %s is not described", method, path)
	}
	if text != "" && status < 400 {
		if err := d.check(op.RequestBody.Content["application/json"].Schema, text); err != nil {
			d.t.Errorf("%s %s: the request %s\n%v", method, path, text, err)
		}
	}
	code := http.StatusText(status)
	response, there := op.Responses[map[bool]string{true: "200", false: "503"}[status == 200]]
	if status >= 400 && status != 503 || !there {
		response, code = op.Responses["default"], "error"
	}
	if err := d.check(response.Content["application/json"].Schema, a.body); err != nil {
		d.t.Errorf("%s %s: the answer (%s) %.400s\n%v", method, path, code, a.body, err)
	}
	return a
}

func TestEveryRouteIsDescribed(t *testing.T) {
	r := newRig(t, setup{})
	d := describedBy(t, r)
	if d.doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi %q", d.doc.OpenAPI)
	}
	served, seen := map[string]bool{}, map[string]bool{}
	for _, rt := range control.Routes(control.New(control.Options{})) {
		served[rt] = true
	}
	for path, operations := range d.doc.Paths {
		for method, op := range operations {
			name := strings.ToUpper(method) + " " + path
			if !served[name] || op.Summary == "" || op.OperationID == "" || seen[op.OperationID] {
				t.Errorf("%s: served %t, %q, %q", name, served[name], op.OperationID, op.Summary)
			}
			seen[op.OperationID] = true
			delete(served, name)
		}
	}
	if len(served) > 0 {
		t.Errorf("not described: %v", served)
	}
	for _, rt := range routes {
		m, p := operationOf(rt.method, rt.path)
		if op := d.doc.Paths[p][m]; rt.open != (op.Security != nil && len(*op.Security) == 0) {
			t.Errorf("%s %s: open %t, described as %v", rt.method, rt.path, rt.open, op.Security)
		}
	}
}

// Parameters that are described are known, and those that are not are not.
func TestParametersAreDescribed(t *testing.T) {
	r := newRig(t, setup{})
	d := describedBy(t, r)
	all := []string{"include_discarded", "include_messages", "shared", "format", "wait", "status", "group", "run", "env", "since", "limit", "after", "key"}
	for _, call := range []string{"GET /sessions", "GET /sessions/a", "GET /sessions/a/rollout", "GET /sessions/a/trace_entries", "POST /sessions/a/close", "GET /groups/a"} {
		method, path, _ := strings.Cut(call, " ")
		m, p := operationOf(method, path)
		for _, name := range all {
			known := slices.ContainsFunc(d.doc.Paths[p][m].Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "query" })
			a := r.raw(method, path+"?"+name+"=", "")
			if refused := strings.Contains(a.body, "no such query parameter"); refused == known {
				t.Errorf("%s?%s: described %t, answered %d %s", call, name, known, a.status, a.body)
			}
		}
	}
}

// What the API really answers is what it is described to answer.
func TestAnswersFitTheirSchemas(t *testing.T) {
	r := newRig(t, setup{})
	d := describedBy(t, r)
	d.ask(r, 200, "GET", "/policy", "")
	d.ask(r, 200, "GET", "/health", "")
	d.ask(r, 200, "GET", "/ready", "")
	d.ask(r, 200, "GET", "/openapi.json", "")
	d.ask(r, 200, "GET", "/sessions", "")
	d.ask(r, 200, "POST", "/policy", `{"version":3}`)
	d.ask(r, 200, "GET", "/policy", "")
	d.ask(r, 200, "POST", "/sessions", `{}`)
	d.ask(r, 200, "POST", "/sessions", `{"session_id":"a","purpose":"train","env":{"id":"e","name":"n"},"group":{"id":"g","size":2},"run":{"kind":"train","id":"r","metadata":{"kind":"train","step":4}},
		"metadata":{"x":[1,null]},"sampling":{"temperature":0.7,"top_p":1},"max_model_calls":6,"max_output_tokens":500,"min_turns":1,"shared":"once","continuity":"off"}`)
	d.ask(r, 200, "POST", "/sessions", `{"session_id":"e","purpose":"eval","group":{"id":"g"},"eval_sampling":{"temperature":0},"run":{"kind":"eval","id":"r"},"frozen":true}`)
	for _, text := range []string{"one", "two", "[[fault:status 500]]", "[[fault:cut 3]]", "four", "five", "too many"} {
		r.say("a", text)
	}
	r.say("e", "one")
	d.ask(r, 200, "GET", "/sessions/a", "")
	d.ask(r, 200, "GET", "/sessions/a/rollout", "")
	d.ask(r, 200, "GET", "/sessions/a/rollout?include_messages&include_discarded", "")
	d.ask(r, 200, "GET", "/sessions/a/trace_entries", "")
	d.ask(r, 409, "GET", "/sessions/e/trace_entries", "")
	d.ask(r, 200, "POST", "/sessions/a/score", `{"reward":0.5,"rewards":{"style":1,"gone":null},"metadata":{"note":"x"},"run":{"metadata":{"step":5}}}`)
	d.ask(r, 200, "POST", "/sessions/a/score", `{"reward":null,"rewards":null,"metadata":null,"run":null}`)
	d.ask(r, 200, "POST", "/sessions/a/close?include_messages", `{"outcome":{"status":"failed","error":"Boom: it broke"},"reward":1}`)
	d.ask(r, 200, "POST", "/sessions/a/close", "")
	d.ask(r, 200, "POST", "/sessions/e/cancel", `{"reason":"enough"}`)
	d.ask(r, 200, "GET", "/sessions/e/rollout?include_messages", "")
	d.ask(r, 200, "GET", "/sessions", "")
	d.ask(r, 200, "GET", "/sessions?limit=1", "")
	d.ask(r, 200, "GET", "/groups/g", "")
	d.ask(r, 400, "GET", "/sessions?limit=0", "")
	d.ask(r, 400, "POST", "/sessions", `{"purpose":"x"}`)
	d.ask(r, 404, "GET", "/sessions/none", "")
	d.ask(r, 200, "DELETE", "/sessions/a", "")

	down := newRig(t, setup{engine: "http://127.0.0.1:1"})
	d.ask(down, 200, "POST", "/sessions", `{"session_id":"a"}`)
	d.ask(down, 200, "GET", "/sessions/a", "")
	d.ask(down, 200, "GET", "/health", "")
	d.ask(down, 200, "GET", "/sessions/a/rollout", "")
	below := newRig(t, setup{handler: withoutIDs})
	d.ask(below, 200, "POST", "/sessions", `{"session_id":"a"}`)
	below.say("a", "one")
	d.ask(below, 200, "GET", "/health", "")
	d.ask(below, 200, "POST", "/sessions/a/close?include_messages", "")
	below.reg.Drain(t.Context())
	d.ask(below, 503, "GET", "/ready", "")
}

// Documents of real harnesses' sessions fit the schema.
func TestDocumentsFitTheirSchema(t *testing.T) {
	d := describedBy(t, newRig(t, setup{}))
	files, err := filepath.Glob("../../validate/reconcile/testdata/*-*.json")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), `{"schema_version":1,`) {
			continue // the harness's own record
		}
		checked++
		if err := d.check(ref{"#/components/schemas/Rollout"}, string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if checked < 12 {
		t.Errorf("only %d documents in %v", checked, files)
	}
}

// The schema of the document is not so wide that everything fits.
func TestRolloutSchemaRefuses(t *testing.T) {
	r := newRig(t, setup{})
	d := describedBy(t, r)
	r.create("a", "")
	r.say("a", "one")
	good := r.want(200, "POST", "/sessions/a/close?include_messages", "").body
	schema := ref{"#/components/schemas/Rollout"}
	if err := d.check(schema, good); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"schema_version":1,`, ``},
		{`"session_id":"a"`, `"session_id":null`},
		{`"status":"completed"`, `"status":"done"`},
		{`"created_at":"`, `"created_at":"on `},
		{`"loss_mask":[0,`, `"loss_mask":[2,`},
		{`"input_ids":[`, `"input_ids":["x",`},
		{`"logprobs":[0.0`, `"logprobs":["0.0"`},
		{`"role":"agent"`, `"role":"main"`},
		{`"outcome":"complete"`, `"outcome":"fine"`},
		{`"trainable":true`, `"trainable":"yes"`},
		{`"n_turns":1`, `"n_turns":1.5`},
		{`"[WARN] `, `"[SOME] `},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Errorf("the document has no %s: %s", change[0], good)
		} else if d.check(schema, bad) == nil {
			t.Errorf("%s fits as well as %s", change[1], change[0])
		}
	}
}
