package format

import (
	"io"

	"captureproxy/export"
)

// verl writes an AgentLoopOutput a line. Prompt and response are split where the first request ends; mask and logprobs
// cover the response. The reward stands on every row of a session, and its uid is the group: verl's own group baseline
// runs over rows, so a session with several rows weighs more there.
type verl struct{ *lines }

func newVerl(w io.Writer) *verl { return &verl{newLines(w)} }

type verlRow struct {
	UID       string     `json:"uid"`
	SessionID int        `json:"session_id"` // among those of the uid
	Index     int        `json:"index"`      // of the row in the session
	Output    verlOutput `json:"output"`
}

type verlOutput struct {
	PromptIDs        []int32         `json:"prompt_ids"`
	ResponseIDs      []int32         `json:"response_ids"`
	ResponseMask     export.Mask     `json:"response_mask"`
	ResponseLogprobs export.Logprobs `json:"response_logprobs"`
	RewardScore      number          `json:"reward_score"`
	NumTurns         int             `json:"num_turns"` // the trainer counts both sides
	Metrics          struct{}        `json:"metrics"`
	ExtraFields      verlExtra       `json:"extra_fields"`
}

type verlExtra struct {
	MinGlobalSteps  *int64   `json:"min_global_steps"`
	MaxGlobalSteps  *int64   `json:"max_global_steps"`
	RewardExtraInfo struct{} `json:"reward_extra_info"`
}

func (w *verl) write(s *session) (n written, err error) {
	policy := policyOf(s.doc)
	for i := range s.rows {
		r := &s.rows[i]
		err := w.put(verlRow{UID: s.group, SessionID: s.inGroup, Index: i, Output: verlOutput{
			PromptIDs: r.prompt(), ResponseIDs: r.response(), ResponseMask: r.responseMask(), ResponseLogprobs: r.responseLogs(),
			RewardScore: number(s.reward), NumTurns: 2 * r.NTurns,
			ExtraFields: verlExtra{MinGlobalSteps: policy.Start, MaxGlobalSteps: policy.End},
		}})
		if err != nil {
			return n, err
		}
		n.rows++
		n.tokens += r.trained
	}
	return n, nil
}

// policyOf is the document's policy; without a version in it when the weights do not move or nobody said.
func policyOf(r *export.Rollout) export.Policy {
	if r.Policy == nil {
		return export.Policy{}
	}
	return *r.Policy
}
