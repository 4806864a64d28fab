package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

func newProbe() *cobra.Command {
	var flags engineFlags
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "probe --upstream URL",
		Short: "Measure what an endpoint can return",
		Long: `probe makes a few short calls and says what came back: whether token ids and logprobs can be captured, also in streams, what
its logprobs describe, whether it takes tools, and which models it serves. Nothing is assumed from a name.`,
		Example: `  capture-proxy probe --upstream http://127.0.0.1:8000
  capture-proxy probe --upstream https://api.openai.com --upstream-key "$KEY" --model gpt-4.1 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.url == "" {
				return usagef("--upstream is missing: which endpoint?")
			}
			up, err := engine.NewUpstream(flags.config())
			if err != nil {
				return usageError{err}
			}
			defer up.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			report := measure(ctx, up)
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = report.print(cmd.OutOrStdout(), up.URL())
			}
			if err == nil && !report.Reachable {
				return exitStatus(exitFailed)
			}
			return err
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this long")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// probeReport has the fields of SPEC 8, and what else was found out.
type probeReport struct {
	Reachable     bool                 `json:"reachable"`
	Models        []string             `json:"models"`
	Model         *string              `json:"model"`
	CaptureLevel  *record.Level        `json:"capture_level"`
	StreamCapture bool                 `json:"stream_capture"`
	LogprobsMode  *record.LogprobsMode `json:"logprobs_mode"`
	ToolSupport   bool                 `json:"tool_support"`
	ParamEdits    []export.Edit        `json:"param_edits"`
	Findings      []string             `json:"findings"`

	Provider       string           `json:"provider,omitempty"`
	Version        string           `json:"version,omitempty"`
	Buffered       bool             `json:"buffered,omitempty"`   // streams are made of whole answers
	ForcedIDs      string           `json:"forced_ids,omitempty"` // the field that takes prompt ids
	ReasoningField string           `json:"reasoning_field,omitempty"`
	Tokenizes      bool             `json:"tokenizes,omitempty"`
	Native         []record.Dialect `json:"native,omitempty"`
	WeightVersion  string           `json:"weight_version,omitempty"`
	VocabSize      int              `json:"vocab_size,omitempty"`
}

// measure probes an endpoint. What was not measured is null.
func measure(ctx context.Context, up *engine.Upstream) probeReport {
	p := up.Measure(ctx)
	r := probeReport{
		Reachable: p.Measured, Models: append([]string{}, p.Models...), ParamEdits: []export.Edit{}, Findings: append([]string{}, p.Findings...),
	}
	if !p.Measured {
		r.Findings = append(r.Findings, "the endpoint cannot be measured: "+cmp.Or(up.Problem(), "it gave no reason")+". Is it running, and is --upstream its API root?")
		return r
	}
	r.CaptureLevel, r.LogprobsMode, r.StreamCapture, r.ToolSupport = &p.Level, &p.LogprobsMode, p.StreamCapture, p.ToolSupport
	r.Provider, r.Version, r.Buffered, r.ForcedIDs, r.ReasoningField = p.Provider, p.Version, p.Buffered, p.Forced, p.ReasoningField
	r.Tokenizes, r.Native, r.WeightVersion, r.VocabSize = p.Tokenizes, p.Native, p.WeightVersion, p.VocabSize
	if p.Served != "" {
		r.Model = &p.Served
	}
	for _, e := range up.Record().ParamEdits {
		r.ParamEdits = append(r.ParamEdits, export.Edit{Param: e.Param, From: e.From, To: e.To, Why: e.Why})
	}
	return r
}

func (r probeReport) print(w io.Writer, url string) error {
	ink := colours(w)
	if !r.Reachable {
		fmt.Fprintf(w, "%s  %s\n", url, ink.red("not reachable"))
	} else {
		yesNo := map[bool]string{true: "yes", false: "no"}
		model := "(none chosen)"
		if r.Model != nil {
			model = *r.Model
		}
		rows := [][]string{
			{"endpoint", url},
			{"capture level", string(*r.CaptureLevel)},
			{"in streams too", yesNo[r.StreamCapture]},
			{"logprobs mode", string(*r.LogprobsMode)},
			{"tool support", yesNo[r.ToolSupport]},
			{"model", plain(model)},
			{"models", cmp.Or(plain(strings.Join(r.Models, ", ")), "(none listed)")},
		}
		for _, extra := range [][]string{
			{"engine", strings.TrimSpace(r.Provider + " " + r.Version)}, {"prompt ids in", r.ForcedIDs}, {"weights", r.WeightVersion},
		} {
			if extra[1] != "" {
				rows = append(rows, []string{extra[0], plain(extra[1])})
			}
		}
		if err := table(w, rows); err != nil {
			return err
		}
		for _, e := range r.ParamEdits {
			fmt.Fprintf(w, "edit: %s\n", plain(edited(e)))
		}
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, ink.yellow("note:"), plain(f))
	}
	return nil
}

// edited says in words what is done with a parameter.
func edited(e export.Edit) string {
	if string(e.To) == "null" {
		return e.Param + " is left out (" + e.Why + ")"
	}
	return fmt.Sprintf("%s becomes %s (%s)", e.Param, e.To, e.Why)
}
