package format

import (
	"encoding/json"
	"io"

	"captureproxy/export"
	"captureproxy/internal/record"
)

// verifiers writes an Episode with one Trace a line, as `traces.jsonl` has them. The trace is a graph of messages
// (verifiersnodes.go). A session that nobody scored has a reward of null, which says that scoring did not run.
type verifiers struct{ *lines }

func newVerifiers(w io.Writer) *verifiers { return &verifiers{newLines(w)} }

type vfEpisode struct {
	ID     string           `json:"id"`
	Env    vfEnv            `json:"env"`
	Task   vfTask           `json:"task"`
	Group  vfGroup          `json:"group"`
	Run    *vfRun           `json:"run"`
	OK     bool             `json:"ok"`
	Errors []vfError        `json:"errors"`
	Traces []verifiersTrace `json:"traces"`
}

type vfEnv struct {
	ID   string  `json:"id"`
	Name *string `json:"name"`
}

type vfGroup struct {
	ID string `json:"id"`
}

type vfTask struct {
	Type string     `json:"type"`
	Data vfTaskData `json:"data"`
	Key  string     `json:"key"`
}

type vfTaskData struct {
	Index  int    `json:"idx"`
	Prompt string `json:"prompt"`
}

type vfError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type vfRun struct {
	Type string  `json:"type"`
	ID   string  `json:"id"`
	Work *vfWork `json:"work,omitempty"`
}

type vfWork struct {
	Type   string        `json:"type"`
	Step   int           `json:"step"`
	Policy *vfPolicySpan `json:"policy"`
}

type vfPolicySpan struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

type verifiersTrace struct {
	Version       int                  `json:"version"`
	ID            string               `json:"id"`
	Task          vfTask               `json:"task"`
	Agent         vfAgent              `json:"agent"`
	Nodes         []vfNode             `json:"nodes"`
	Calls         []vfCall             `json:"calls"`
	Rewards       map[string]*vfReward `json:"rewards"`
	Metrics       struct{}             `json:"metrics"`
	Info          struct{}             `json:"info"`
	IsCompleted   bool                 `json:"is_completed"`
	OK            bool                 `json:"ok"`
	StopCondition string               `json:"stop_condition"`
	Errors        []vfError            `json:"errors"`
}

type vfAgent struct {
	Config    vfAgentConfig `json:"config"`
	Name      string        `json:"name"`
	Trainable bool          `json:"trainable"`
}

type vfAgentConfig struct {
	Model string `json:"model"`
}

type vfReward struct {
	Score  number `json:"score"`
	Weight number `json:"weight"`
}

func (w *verifiers) write(s *session) (written, error) {
	g := newVFGraph(s)
	for i := range s.doc.Turns {
		if err := g.turn(&s.doc.Turns[i]); err != nil {
			return written{}, err
		}
	}
	prompt, err := firstQuestion(s.doc)
	if err != nil {
		return written{}, err
	}
	r := s.doc
	task := vfTask{Type: "capture-proxy", Data: vfTaskData{s.groupIndex, prompt}, Key: s.group}
	completed := r.Status == record.Completed
	errs := vfErrors(r)
	trace := verifiersTrace{
		Version: 1, ID: r.SessionID, Task: task, Agent: vfAgent{vfAgentConfig{modelOf(r)}, "agent", true},
		Nodes: g.nodes, Calls: g.calls, Rewards: vfRewards(r),
		IsCompleted: completed, OK: completed, StopCondition: stopCondition(r), Errors: errs,
	}
	n := written{rows: len(s.rows)}
	for _, node := range g.nodes {
		n.tokens += len(node.Logprobs)
	}
	return n, w.put(vfEpisode{
		ID: r.SessionID, Env: vfEnvOf(r), Task: task, Group: vfGroup{s.group}, Run: vfRunOf(r),
		OK: completed, Errors: errs, Traces: []verifiersTrace{trace},
	})
}

func vfEnvOf(r *export.Rollout) vfEnv {
	if r.Env == nil {
		return vfEnv{}
	}
	return vfEnv{ID: r.Env.ID, Name: orNull(r.Env.Name)}
}

// vfRewards are the named rewards, weighed so that their sum, which is what the trainer takes, is the reward.
func vfRewards(r *export.Rollout) map[string]*vfReward {
	if r.Reward == nil {
		return map[string]*vfReward{"reward": nil}
	}
	out, sum := map[string]*vfReward{}, 0.0
	for _, name := range sortedKeys(r.Rewards) {
		out[name] = &vfReward{Score: number(r.Rewards[name]), Weight: 1}
		sum += r.Rewards[name]
	}
	if len(out) > 0 && sum == *r.Reward {
		return out
	}
	for _, v := range out {
		v.Weight = 0
	}
	out["reward"] = &vfReward{Score: number(*r.Reward), Weight: 1}
	return out
}

// vfRunOf is the run where it says all that the trainer's type must have, else nil.
func vfRunOf(r *export.Rollout) *vfRun {
	var run struct {
		Kind     string `json:"kind"`
		ID       string `json:"id"`
		Metadata *struct {
			Kind string `json:"kind"`
			Step *int   `json:"step"`
		} `json:"metadata"`
	}
	if len(r.Run) == 0 || json.Unmarshal(r.Run, &run) != nil {
		return nil // the caller's own words, in a form that is not the trainer's
	}
	if run.Kind == "eval" {
		return &vfRun{Type: run.Kind, ID: run.ID}
	}
	if run.Kind != "train" || run.Metadata == nil || run.Metadata.Step == nil {
		return nil
	}
	work := &vfWork{Type: run.Metadata.Kind, Step: *run.Metadata.Step}
	if p := r.Policy; p != nil && p.Start != nil && p.End != nil {
		work.Policy = &vfPolicySpan{*p.Start, *p.End}
	}
	return &vfRun{Type: run.Kind, ID: run.ID, Work: work}
}

func vfErrors(r *export.Rollout) []vfError {
	if r.Outcome == nil || r.Outcome.Error == nil {
		return []vfError{}
	}
	return []vfError{{Type: string(r.Status), Message: *r.Outcome.Error}}
}

func stopCondition(r *export.Rollout) string {
	switch {
	case r.BudgetStops > 0:
		return "max_turns"
	case r.Status == record.Completed:
		return "agent_completed"
	}
	return string(r.Status)
}

// modelOf is the model that answered the session's first turn.
func modelOf(r *export.Rollout) string {
	if len(r.Turns) == 0 {
		return r.Engine.Model
	}
	return r.Turns[0].Model
}

// firstQuestion is the last user message of the first request.
func firstQuestion(r *export.Rollout) (string, error) {
	question := ""
	if len(r.Turns) == 0 {
		return question, nil
	}
	for _, raw := range r.Turns[0].RequestMessages {
		m, err := parseMessage(raw)
		if err != nil {
			return "", err
		}
		if m.Role != "user" {
			continue
		}
		if question, err = m.text(); err != nil {
			return "", err
		}
	}
	return question, nil
}
