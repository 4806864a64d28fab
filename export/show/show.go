// Package show draws a rollout document for people: [Tree] on a terminal, [Mermaid] and [Dot] as graphs.
//
// The text of a rollout is hostile: models, harnesses and engines wrote it. Nothing here prints a control character,
// or a character that a terminal or a graph reads as a command, as it came.
package show

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// Options choose how a rollout is drawn on a terminal.
type Options struct {
	Color bool
	Width int // columns, 0 for 100
}

// clean makes foreign text fit for one line of a terminal: control and format characters become visible, line
// breaks spaces.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cut shortens a cleaned line to width characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// Verdict says in words whether the rollout may be trained on, and if not what to do.
func Verdict(r *export.Rollout) string {
	if r.Trainable {
		return fmt.Sprintf("trainable: %s, %s", count(r.Stats.TrainableSequences, "row"), count(r.Stats.DistinctTrainableTokens, "token"))
	}
	if r.RolloutType != export.TypeTrain {
		if r.CaptureLevel == record.LevelTokens {
			return "an eval rollout: nothing is trained, as its purpose says"
		}
		return "an eval rollout: the engine gives no token ids here; point the session at one that does to train"
	}
	for _, f := range r.Validation {
		if f.Level == validate.Fatal {
			return "not trainable: " + string(f.Code) + Advice(f.Code)
		}
	}
	for i := range r.Sequences {
		for _, f := range r.Sequences[i].Validation {
			if r.Sequences[i].Role == export.Agent && f.Level == validate.Fatal {
				return "not trainable: " + string(f.Code) + Advice(f.Code)
			}
		}
	}
	return "not trainable: no agent row has a token to train"
}

// Advice says what helps against a finding that forbids training, "" where there is none to give. It begins with "; ".
func Advice(code validate.Code) string {
	switch code {
	case validate.NoTurns:
		return "; check that the harness uses the session's base URL and key"
	case validate.CaptureFailed:
		return "; check the store (disk full? read-only?) and run the rollout again"
	case validate.LogprobsMode:
		return "; sample at temperature 1 without truncation, or start the engine with processed logprobs"
	case validate.SamplingPolicyChanged:
		return "; the session pins sampling, and some call was sent with another one"
	case validate.DegenerateRollout:
		return "; the harness made fewer calls than min_turns asks for: look at its log"
	case validate.NothingTrainable:
		return "; see the turns' findings for why each of them is context"
	case validate.EmptyResponse:
		return "; the model sampled nothing"
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Roles gives each turn the role of the rows it lies on, the agent's before the others.
func Roles(r *export.Rollout) map[string]export.Role {
	rank := map[export.Role]int{export.Agent: 3, export.Auxiliary: 2, export.Discarded: 1}
	of := map[string]export.Role{}
	for i := range r.Turns {
		if r.Turns[i].Discarded {
			of[r.Turns[i].NodeID] = export.Discarded
		}
	}
	for i := range r.Sequences {
		row := &r.Sequences[i]
		for _, id := range row.NodeIDs {
			if rank[row.Role] > rank[of[id]] {
				of[id] = row.Role
			}
		}
	}
	return of
}

// label is a turn in a few words: its id, its tokens and how it ended.
func label(t *export.Turn) string {
	s := fmt.Sprintf("%s  %d → %d", t.NodeID, t.NPrompt, t.NSampled)
	if t.FinishReason != "" {
		s += "  " + t.FinishReason
	}
	if t.Outcome != record.Complete {
		s += "  " + string(t.Outcome)
	}
	return clean(s)
}

// printer remembers the first error of a writer, so that drawing reads as drawing.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
