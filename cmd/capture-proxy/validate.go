package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"captureproxy/export"
	"captureproxy/validate"
)

func newValidate() *cobra.Command {
	var (
		asJSON  bool
		against []string
	)
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check rollout documents again, offline",
		Long: `validate reads rollout documents and checks that their parts agree: token arrays, masks, spans, ids, counts and the gate.
What a document says about itself in its own findings is printed too. The exit code is 1 when a document cannot be read,
contradicts itself, or holds a FATAL finding on the whole rollout. A dash stands for standard input.

With --against one document is held against the harness's own record of the session: an ATIF trajectory, or the session
log of claude-code (projects/*/*.jsonl), codex (sessions/**/rollout-*.jsonl), pi (sessions/*/*.jsonl) or opencode (what
"opencode export" prints, or its storage directory). It tells which calls are missing, extra or retried, where token counts
differ, which steps the harness wrote itself when a call failed, and what the budget ended. A FATAL one fails the check.
Documents with messages are compared call by call, others by counts and order.`,
		Example: `  capture-proxy validate rollout-s-1234.json
  capture-proxy validate --json rollouts/*.json
  capture-proxy validate rollout-s-1234.json --against ~/.codex/sessions/2026/01/31/rollout-2026-01-31T12-00-00-1234.jsonl`,
		Args: need("FILE", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(against) > 0 && len(args) > 1 {
				return usagef("--against takes one document: a record is of one session")
			}
			reports := make([]documentReport, len(args))
			failed := false
			for i, path := range args {
				reports[i] = checkDocument(path, cmd.InOrStdin(), against)
				failed = failed || !reports[i].OK
			}
			if err := printReports(cmd.OutOrStdout(), reports, asJSON); err != nil {
				return err
			}
			if failed {
				return exitStatus(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one element per file")
	cmd.Flags().StringArrayVar(&against, "against", nil, "`FILE` or directory of the harness's own record; may be repeated, for the logs of subagents")
	return cmd
}

// documentReport is what validate says about one file.
type documentReport struct {
	File      string          `json:"file"`
	OK        bool            `json:"ok"`
	SessionID string          `json:"session_id,omitempty"`
	Trainable bool            `json:"trainable"`
	Error     string          `json:"error,omitempty"` // why it, or the record to compare with, could not be read
	Findings  []placedFinding `json:"findings"`
}

// placedFinding is a finding and where in the document it belongs.
type placedFinding struct {
	Where  string         `json:"where"`
	Level  validate.Level `json:"level"`
	Code   validate.Code  `json:"code"`
	Detail string         `json:"detail"`
}

func checkDocument(path string, stdin io.Reader, against []string) documentReport {
	report := documentReport{File: path, Findings: []placedFinding{}}
	doc, err := readDocument(path, stdin)
	if err != nil {
		report.Error = err.Error()
		return report
	}
	report.SessionID, report.Trainable = doc.SessionID, doc.Trainable
	checked := export.Check(doc)
	report.OK = !validate.AnyFatal(checked) && !validate.AnyFatal(doc.Validation)
	report.add("document", checked)
	report.add("rollout", doc.Validation)
	for i := range doc.Turns {
		report.add("turn "+doc.Turns[i].NodeID, doc.Turns[i].Validation)
	}
	for i := range doc.Sequences {
		report.add("row "+doc.Sequences[i].RowID, doc.Sequences[i].Validation)
	}
	if len(against) > 0 {
		report.reconcile(doc, against)
	}
	return report
}

// reconcile adds what a comparison with the harness's record finds.
func (r *documentReport) reconcile(doc *export.Rollout, paths []string) {
	where := recordName(paths)
	findings, err := reconcileWith(doc, paths)
	if err != nil {
		r.OK, r.Error = false, where+": "+err.Error()
		return
	}
	r.OK = r.OK && !validate.AnyFatal(findings)
	r.add(where, findings)
}

func (r *documentReport) add(where string, findings []validate.Finding) {
	for _, f := range findings {
		r.Findings = append(r.Findings, placedFinding{where, f.Level, f.Code, f.Detail})
	}
}

// readDocument reads a rollout document from a file, or from stdin for "-".
func readDocument(path string, stdin io.Reader) (*export.Rollout, error) {
	if path == "-" {
		return export.Read(stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return export.Read(f)
}

func printReports(w io.Writer, reports []documentReport, asJSON bool) error {
	if asJSON {
		return printJSON(w, reports)
	}
	ink := colours(w)
	for _, r := range reports {
		switch {
		case r.SessionID == "":
			fmt.Fprintf(w, "%s: %s %s\n", r.File, ink.red("unreadable:"), plain(r.Error))
			continue
		case !r.OK:
			fmt.Fprintf(w, "%s: %s", r.File, ink.red("not good"))
		default:
			fmt.Fprintf(w, "%s: %s", r.File, ink.green("ok"))
		}
		fmt.Fprintf(w, " (session %s, %s)\n", plain(r.SessionID), trainability(r.Trainable))
		if r.Error != "" {
			fmt.Fprintf(w, "  %s\n", ink.red(plain(r.Error)))
		}
		for _, f := range r.Findings {
			fmt.Fprintf(w, "  %s %s\n", ink.dim(plain(f.Where)), ink.level(validate.Finding{Level: f.Level, Code: f.Code, Detail: f.Detail}))
		}
	}
	return nil
}

func trainability(trainable bool) string {
	if trainable {
		return "trainable"
	}
	return "not trainable"
}

// level colours a finding by what it means.
func (p palette) level(f validate.Finding) string {
	switch f.Level {
	case validate.Fatal:
		return p.red(plain(f.String()))
	case validate.Warn:
		return p.yellow(plain(f.String()))
	}
	return plain(f.String())
}
