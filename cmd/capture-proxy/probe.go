package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
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

// probeReport has the fields of SPEC 8.
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
}

// measure probes an endpoint. What was not measured is null.
func measure(ctx context.Context, up *engine.Upstream) probeReport {
	p := up.Measure(ctx)
	r := probeReport{
		Reachable: p.Measured, StreamCapture: p.StreamCapture, ToolSupport: p.ToolSupport,
		Models: append([]string{}, p.Models...), ParamEdits: []export.Edit{}, Findings: append([]string{}, p.Findings...),
	}
	if !p.Measured {
		r.StreamCapture, r.Findings = false, append(r.Findings, unreachable(ctx, up))
		return r
	}
	r.CaptureLevel, r.LogprobsMode = &p.Level, &p.LogprobsMode
	if p.Served != "" {
		r.Model = &p.Served
	}
	for _, e := range up.Record().ParamEdits {
		r.ParamEdits = append(r.ParamEdits, export.Edit{Param: e.Param, From: e.From, To: e.To, Why: e.Why})
	}
	return r
}

// unreachable says why an endpoint could not be measured.
func unreachable(ctx context.Context, up *engine.Upstream) string {
	resp, err := up.Do(ctx, &engine.Request{Method: http.MethodGet, Path: "/models"})
	if err != nil {
		return "the endpoint cannot be reached: " + err.Error()
	}
	resp.Body.Close()
	return fmt.Sprintf("the endpoint is not ready: it answers %d", resp.Status)
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
		if err := table(w, rows); err != nil {
			return err
		}
		for _, e := range r.ParamEdits {
			fmt.Fprintf(w, "edit: %s\n", plain(fmt.Sprintf("%s %s → %s (%s)", e.Param, e.From, e.To, e.Why)))
		}
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, ink.yellow("note:"), plain(f))
	}
	return nil
}
