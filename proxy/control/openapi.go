package control

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/invopop/jsonschema"

	"captureproxy/export"
	"captureproxy/proxy/events"
)

// openAPI is the part of an OpenAPI 3.1 description that is needed here.
type openAPI struct {
	OpenAPI    string                           `json:"openapi"`
	Info       apiInfo                          `json:"info"`
	Security   []securityNeed                   `json:"security"`
	Paths      map[string]map[string]*operation `json:"paths"` // by path and method
	Components components                       `json:"components"`
}

type apiInfo struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

// securityNeed names one way to show the key.
type securityNeed map[string][]string

type components struct {
	Schemas  jsonschema.Definitions    `json:"schemas"`
	Security map[string]securityScheme `json:"securitySchemes"`
}

type securityScheme struct {
	Type   string `json:"type"`
	Scheme string `json:"scheme,omitempty"`
	In     string `json:"in,omitempty"`
	Name   string `json:"name,omitempty"`
}

type operation struct {
	ID         string              `json:"operationId"`
	Summary    string              `json:"summary"`
	Security   *[]securityNeed     `json:"security,omitempty"` // an empty list where none is needed
	Parameters []parameter         `json:"parameters,omitempty"`
	Body       *body               `json:"requestBody,omitempty"`
	Responses  map[string]response `json:"responses"` // by status
}

type parameter struct {
	Name        string             `json:"name"`
	In          string             `json:"in"`
	Required    bool               `json:"required,omitempty"`
	Description string             `json:"description"`
	Schema      *jsonschema.Schema `json:"schema"`
}

type body struct {
	Required bool             `json:"required"`
	Content  map[string]media `json:"content"`
}

type response struct {
	Description string           `json:"description"`
	Content     map[string]media `json:"content"`
}

type media struct {
	Schema *jsonschema.Schema `json:"schema"`
}

func jsonContent(s *jsonschema.Schema) map[string]media {
	return map[string]media{"application/json": {s}}
}

// description is what an operation does and speaks; its values stand for their types.
type description struct {
	id, summary string
	query       []parameter
	body        any  // nil for none
	mayBeEmpty  bool // the body may be left out
	answer      any
	unavailable any  // what a 503 holds in place of an error
	stream      bool // the answer is a stream of server-sent events, each with such data
	plain       bool // the answer is text
}

// descriptions says of every route what it does, by method and path.
func descriptions() map[string]description {
	return map[string]description{
		"POST /sessions":                   {id: "createSession", summary: "Create a session; its id is the harness's API key", body: CreateRequest{}, answer: Created{}},
		"GET /sessions":                    {id: "listSessions", summary: "The run index, newest first", query: listParameters(), answer: SessionList{}},
		"GET /sessions/{id}":               {id: "showSession", summary: "How a session stands", answer: Status{}},
		"DELETE /sessions/{id}":            {id: "deleteSession", summary: "Cancel what is under way, and remove the session with its turns", answer: Deleted{}},
		"POST /sessions/{id}/close":        {id: "closeSession", summary: "End a session and get its rollout document", query: append(documentParameters(), waitParameter()), body: CloseRequest{}, mayBeEmpty: true, answer: export.Rollout{}},
		"POST /sessions/{id}/cancel":       {id: "cancelSession", summary: "Give a session up; calls under way are aborted", body: CancelRequest{}, mayBeEmpty: true, answer: Status{}},
		"POST /sessions/{id}/score":        {id: "scoreSession", summary: "Change what is said about a session, also after its end; null removes", body: ScoreRequest{}, answer: Scored{}},
		"GET /sessions/{id}/rollout":       {id: "showRollout", summary: "The rollout document, so far or for good", query: documentParameters(), answer: export.Rollout{}},
		"GET /sessions/{id}/trace_entries": {id: "showTraceEntries", summary: "The usable agent turns as OpenEnv's trainers read them", query: []parameter{sharedParameter()}, answer: TraceEntries{}},
		"GET /groups/{id}":                 {id: "showGroup", summary: "How the sessions of one task did", answer: GroupStatus{}},
		"GET /events":                      {id: "followEvents", summary: "What happens to sessions, as it happens; an event's name is its data's `event`, Last-Event-ID resumes", query: eventParameters(), answer: events.Event{}, stream: true},
		"POST /policy":                     {id: "setPolicy", summary: "Say which weights are live from now on", body: policyRequest{}, answer: Policy{}},
		"GET /policy":                      {id: "showPolicy", summary: "The weights that are live", answer: Policy{}},
		"GET /health":                      {id: "showHealth", summary: "How the proxy is, and what it stands in front of", answer: Health{}},
		"GET /ready":                       {id: "showReady", summary: "Whether the proxy should be given work", answer: Ready{}, unavailable: Ready{}},
		"GET /metrics":                     {id: "showMetrics", summary: "Counters and histograms, as Prometheus reads them", answer: "", plain: true},
		"GET /openapi.json":                {id: "showOpenAPI", summary: "This description", answer: map[string]json.RawMessage{}},
	}
}

func textParameter(name, about string, enum ...any) parameter {
	return parameter{Name: name, In: "query", Description: about, Schema: &jsonschema.Schema{Type: "string", Enum: enum}}
}

func flagParameter(name, about string) parameter {
	return parameter{Name: name, In: "query", Description: about, Schema: &jsonschema.Schema{Type: "boolean"}}
}

func sharedParameter() parameter {
	return textParameter("shared", "whether a turn that lies on several rows is trained on each or on the first", "every", "once")
}

func waitParameter() parameter {
	return textParameter("wait", "how long calls under way are waited for, in seconds or as 1m30s")
}

func documentParameters() []parameter {
	return []parameter{
		flagParameter("include_discarded", "with the rows of discarded turns"),
		flagParameter("include_messages", "with the messages and tools of each turn"),
		sharedParameter(),
		textParameter("format", "the document's form", "rollout", "json"),
	}
}

func listParameters() []parameter {
	since := textParameter("since", "created at this time or later")
	since.Schema.Format = "date-time"
	limit := parameter{Name: "limit", In: "query", Description: "sessions per page", Schema: &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "1000"}}
	return []parameter{
		textParameter("status", "sessions of this status", anyOf(statuses[1:])...),
		textParameter("group", "sessions of this group"), textParameter("run", "sessions of this run"), textParameter("env", "sessions of this environment"),
		since, limit, textParameter("after", "`next` of the page before"),
	}
}

func eventParameters() []parameter {
	return []parameter{textParameter("session", "of this session"), textParameter("group", "of this group"), textParameter("run", "of this run")}
}

func anyOf[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// describeAPI writes the API's OpenAPI description.
func (a *API) describeAPI() ([]byte, error) {
	doc := openAPI{
		OpenAPI:  "3.1.0",
		Info:     apiInfo{"capture-proxy control API", "Sessions, rollout documents, groups and policy of a capture proxy. Errors are {\"error\": {\"message\", \"type\"}}.", a.ProxyVersion},
		Security: []securityNeed{{"bearer": {}}, {"apiKey": {}}, {"googApiKey": {}}},
		Paths:    map[string]map[string]*operation{},
	}
	all, texts := newSchemas(), descriptions()
	for _, r := range a.routes() {
		if doc.Paths[r.path] == nil {
			doc.Paths[r.path] = map[string]*operation{}
		}
		doc.Paths[r.path][strings.ToLower(r.method)] = texts[r.method+" "+r.path].operation(r, all)
	}
	if err := all.finish(); err != nil {
		return nil, err
	}
	doc.Components = components{all.defs, map[string]securityScheme{
		"bearer":     {Type: "http", Scheme: "bearer"},
		"apiKey":     {Type: "apiKey", In: "header", Name: "x-api-key"},
		"googApiKey": {Type: "apiKey", In: "header", Name: "x-goog-api-key"},
	}}
	return json.Marshal(doc)
}

func (d description) operation(r route, all *schemas) *operation {
	o := &operation{ID: d.id, Summary: d.summary, Parameters: append(pathParameters(r.path), d.query...)}
	if r.open {
		o.Security = &[]securityNeed{}
	}
	if d.body != nil {
		o.Body = &body{!d.mayBeEmpty, jsonContent(all.add(d.body, true))}
	}
	done := jsonContent(all.add(d.answer, false))
	if d.plain {
		done = map[string]media{"text/plain": done["application/json"]}
	}
	if d.stream {
		done = map[string]media{"text/event-stream": done["application/json"]}
	}
	o.Responses = map[string]response{
		"200":     {"Done", done},
		"default": {"An error", jsonContent(all.add(errorBody{}, false))},
	}
	if d.unavailable != nil {
		o.Responses["503"] = response{"Not now", jsonContent(all.add(d.unavailable, false))}
	}
	return o
}

func pathParameters(path string) []parameter {
	var list []parameter
	for _, found := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
		list = append(list, parameter{Name: found[1], In: "path", Required: true, Description: "of the session or group", Schema: &jsonschema.Schema{Type: "string"}})
	}
	return list
}

func (a *API) showOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	text, err := a.describeAPI()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // a failed write is the client's hanging up
	return nil
}
