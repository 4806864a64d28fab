package format

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"captureproxy/export"
)

// atif writes an ATIF-v1.7 trajectory a line, one per row. A turn that an earlier row trains is is_copied_context here;
// a turn that may not be trained has its counts, and neither ids nor logprobs.
type atif struct{ *lines }

func newATIF(w io.Writer) *atif { return &atif{newLines(w)} }

type atifTrajectory struct {
	SchemaVersion string     `json:"schema_version"`
	SessionID     string     `json:"session_id"`
	TrajectoryID  string     `json:"trajectory_id"`
	Agent         atifAgent  `json:"agent"`
	Steps         []atifStep `json:"steps"`
	Extra         atifExtra  `json:"extra"`
}

type atifAgent struct {
	Name      string           `json:"name"`
	Version   string           `json:"version"`
	ModelName string           `json:"model_name"`
	Extra     *atifAgentSource `json:"extra,omitempty"`
}

// atifAgentSource is what the harness called itself.
type atifAgentSource struct {
	Harness string `json:"harness"`
	Version string `json:"version"`
}

type atifExtra struct {
	Reward  *number `json:"reward"`
	GroupID string  `json:"group_id"`
}

type atifStep struct {
	StepID       int              `json:"step_id"`
	Source       string           `json:"source"`
	ModelName    string           `json:"model_name,omitempty"`
	Message      string           `json:"message"`
	Reasoning    string           `json:"reasoning_content,omitempty"`
	ToolCalls    []atifToolCall   `json:"tool_calls,omitempty"`
	Observation  *atifObservation `json:"observation,omitempty"`
	Metrics      *atifMetrics     `json:"metrics,omitempty"`
	IsCopied     bool             `json:"is_copied_context,omitempty"`
	LLMCallCount int              `json:"llm_call_count,omitempty"`
	Extra        *atifStepExtra   `json:"extra,omitempty"`
}

type atifToolCall struct {
	ToolCallID   string          `json:"tool_call_id"`
	FunctionName string          `json:"function_name"`
	Arguments    json.RawMessage `json:"arguments"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	SourceCallID *string `json:"source_call_id,omitempty"`
	Content      string  `json:"content"`
}

type atifMetrics struct {
	PromptTokens       int             `json:"prompt_tokens"`
	CompletionTokens   int             `json:"completion_tokens"`
	PromptTokenIDs     []int32         `json:"prompt_token_ids,omitempty"`
	CompletionTokenIDs []int32         `json:"completion_token_ids,omitempty"`
	Logprobs           export.Logprobs `json:"logprobs,omitempty"`
}

type atifStepExtra struct {
	NodeID string `json:"node_id"`
}

func (w *atif) write(s *session) (n written, err error) {
	for i := range s.rows {
		r := &s.rows[i]
		steps, err := atifSteps(r)
		if err != nil {
			return n, err
		}
		err = w.put(atifTrajectory{
			SchemaVersion: "ATIF-v1.7", SessionID: s.doc.SessionID, TrajectoryID: r.RowID,
			Agent: atifAgentOf(s.doc, r), Steps: steps, Extra: atifExtra{optional(s.doc.Reward), s.group},
		})
		if err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

func atifAgentOf(doc *export.Rollout, r *row) atifAgent {
	a := atifAgent{Name: "capture-proxy", Version: cmp.Or(doc.ProxyVersion, "unknown"), ModelName: modelOf(doc)}
	if h := r.last().turn.Harness; h.Name != "" {
		a.Extra = &atifAgentSource{h.Name, h.Version}
	}
	return a
}

func atifSteps(r *row) ([]atifStep, error) {
	var steps []atifStep
	var parent *export.Turn
	for _, st := range r.steps {
		for _, raw := range fresh(st.turn, parent) {
			m, err := parseMessage(raw)
			if err != nil {
				return nil, err
			}
			if steps, err = atifContext(steps, &m); err != nil {
				return nil, err
			}
		}
		answer, err := atifAnswer(st)
		if err != nil {
			return nil, err
		}
		steps = append(steps, answer)
		parent = st.turn
	}
	for i := range steps {
		steps[i].StepID = i + 1
	}
	return steps, nil
}

// atifContext adds a message of a request. A tool's result belongs to the step that called it; an assistant's message
// that no turn of this row said (a history that the harness brought along) is copied context.
func atifContext(steps []atifStep, m *message) ([]atifStep, error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	switch m.Role {
	case "assistant":
		step := atifStep{Source: "agent", Message: text, Reasoning: m.reasoning(), ToolCalls: atifCalls(m), IsCopied: true}
		return append(steps, step), nil
	case "tool":
		if at := calledBy(steps, m.ToolCallID); at >= 0 {
			steps[at].observe(atifResult{&m.ToolCallID, text})
			return steps, nil
		}
		if len(steps) == 0 {
			steps = append(steps, atifStep{Source: "system"})
		}
		steps[len(steps)-1].observe(atifResult{nil, text})
		return steps, nil
	case "system":
		return append(steps, atifStep{Source: "system", Message: text}), nil
	}
	return append(steps, atifStep{Source: "user", Message: text}), nil
}

func (s *atifStep) observe(result atifResult) {
	if s.Observation == nil {
		s.Observation = &atifObservation{}
	}
	s.Observation.Results = append(s.Observation.Results, result)
}

// calledBy finds the latest step with a tool call of that id, -1 for none.
func calledBy(steps []atifStep, id string) int {
	for i := len(steps) - 1; i >= 0; i-- {
		if slices.ContainsFunc(steps[i].ToolCalls, func(c atifToolCall) bool { return c.ToolCallID == id }) {
			return i
		}
	}
	return -1
}

func atifAnswer(st step) (atifStep, error) {
	t := st.turn
	out := atifStep{
		Source: "agent", ModelName: t.Model, IsCopied: st.copied, LLMCallCount: 1, Extra: &atifStepExtra{t.NodeID},
		Metrics: &atifMetrics{PromptTokens: t.NPrompt, CompletionTokens: t.NSampled},
	}
	if st.trained || st.copied {
		out.Metrics.PromptTokenIDs, out.Metrics.CompletionTokenIDs, out.Metrics.Logprobs = st.prompt, st.sampled, t.SampledLogprobs
	}
	if len(t.ResponseMessage) == 0 || string(t.ResponseMessage) == "null" {
		return out, nil
	}
	m, err := parseMessage(t.ResponseMessage)
	if err != nil {
		return out, err
	}
	out.Reasoning, out.ToolCalls = m.reasoning(), atifCalls(&m)
	out.Message, err = m.text()
	return out, err
}

// atifCalls are the message's tool calls. Arguments must be an object: what a model wrote that is none stands under
// "raw".
func atifCalls(m *message) []atifToolCall {
	var calls []atifToolCall
	for _, c := range m.ToolCalls {
		args := json.RawMessage(c.Function.Arguments)
		var object map[string]json.RawMessage
		if json.Unmarshal(args, &object) != nil || object == nil {
			raw, _ := json.Marshal(map[string]string{"raw": c.Function.Arguments}) //nolint:errcheck // strings always marshal
			args = raw
		}
		calls = append(calls, atifToolCall{c.ID, c.Function.Name, args})
	}
	return calls
}
