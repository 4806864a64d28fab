package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// controlFlags say where a proxy's control API is.
type controlFlags struct {
	url, key string
	json     bool
}

const defaultURL = "http://127.0.0.1:8100"

func (f *controlFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "url", defaultURL, "the proxy's URL")
	flags.StringVar(&f.key, "admin-key", "", "the proxy's admin key")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

func (f *controlFlags) client() *control.Client { return &control.Client{URL: f.url, Key: f.key} }

func newSession() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Short:   "Create, watch and end sessions of a running proxy",
		Example: "  capture-proxy session create --purpose train\n  capture-proxy session list --status running",
		RunE:    needsCommand,
	}
	flags := new(controlFlags)
	flags.add(cmd.PersistentFlags())
	cmd.AddCommand(
		newSessionCreate(flags), newSessionList(flags), newSessionStatus(flags), newSessionClose(flags), newSessionCancel(flags),
		newSessionScore(flags), newSessionDelete(flags),
	)
	return cmd
}

func newSessionCreate(flags *controlFlags) *cobra.Command {
	var session sessionFlags
	var engine struct{ url, key, authHeader, model, provider string }
	var calls, tokens int
	var quiet bool
	continuity := &choice{"", []string{"auto", "on", "off"}}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a session",
		Long:  "create registers a session. Its id is the API key that the harness is to use.",
		Example: `  capture-proxy session create --purpose train --group task-7 --metadata task=7
  KEY=$(capture-proxy session create --quiet)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := session.request()
			if err != nil {
				return err
			}
			req.LLMURL, req.APIKey, req.AuthHeader, req.Model, req.Provider = engine.url, engine.key, engine.authHeader, engine.model, engine.provider
			req.Continuity = continuity.value
			req.MaxModelCalls, req.MaxOutputTokens = session.whole("max-model-calls", calls), session.whole("max-output-tokens", tokens)
			created, err := flags.client().Create(cmd.Context(), req)
			if err != nil {
				return err
			}
			return printCreated(cmd.OutOrStdout(), created, flags.json, quiet)
		},
	}
	f := cmd.Flags()
	session.add(f)
	f.Var(continuity, "continuity", continuity.usage("send the engine its own ids for the past of the conversation (default as the proxy has it)"))
	f.IntVar(&calls, "max-model-calls", 0, "model calls, after which the proxy answers by itself that the budget is spent")
	f.IntVar(&tokens, "max-output-tokens", 0, "output cap of every call in tokens")
	f.StringVar(&engine.url, "llm-url", "", "the session's own engine")
	f.StringVar(&engine.key, "api-key", "", "the key of that engine")
	f.StringVar(&engine.authHeader, "auth-header", "", "header that carries that key")
	f.StringVar(&engine.model, "model", "", "model name to send upstream")
	f.StringVar(&engine.provider, "provider", "", "what that engine is")
	f.BoolVarP(&quiet, "quiet", "q", false, "print the id only")
	return cmd
}

func printCreated(w io.Writer, created *control.Created, asJSON, quiet bool) error {
	switch {
	case asJSON:
		return printJSON(w, created)
	case quiet:
		_, err := fmt.Fprintln(w, created.SessionID)
		return err
	}
	return table(w, [][]string{
		{"session", created.SessionID + "  (the harness's API key)"},
		{"base URL", created.BaseURL + "  (where the key cannot be set)"},
		{"capture level", orDash(created.CaptureLevel)},
		{"rollout type", orDash(created.RolloutType)},
		{"engine", plain(orDash(created.LLMURL))},
		{"model", plain(orDash(created.Model))},
	})
}

func newSessionList(flags *controlFlags) *cobra.Command {
	var o control.ListOptions
	var since string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List sessions, newest first",
		Example: "  capture-proxy session list --group task-7\n  capture-proxy session list --status failed --since 24h --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			list, err := flags.client().List(cmd.Context(), o)
			if err != nil {
				return err
			}
			if flags.json {
				return printJSON(cmd.OutOrStdout(), list)
			}
			return printList(cmd.OutOrStdout(), cmd.ErrOrStderr(), list)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Status, "status", "", "running, completed, failed, cancelled or expired")
	f.StringVar(&o.Group, "group", "", "id of the group")
	f.StringVar(&o.Run, "run", "", "id of the run")
	f.StringVar(&o.Env, "env", "", "id of the environment")
	f.StringVar(&since, "since", "", "created since, as in 24h or 2026-01-31T12:00:00Z")
	f.IntVar(&o.Limit, "limit", 0, "at most so many (default 100)")
	f.StringVar(&o.After, "after", "", "go on where a page ended")
	return cmd
}

// parseSince reads a time, or how long ago it was.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("--since %s is neither a duration such as 24h nor a time such as 2026-01-31T12:00:00Z", text)
	}
	return t, nil
}

func printList(w, notes io.Writer, list *control.SessionList) error {
	rows := [][]string{{"SESSION", "STATUS", "TURNS", "REWARD", "GROUP", "CREATED", "ERROR"}}
	for _, s := range list.Sessions {
		group := "-"
		if s.Group != nil {
			group = s.Group.ID
		}
		rows = append(rows, []string{
			s.SessionID, string(s.Status), strconv.Itoa(s.Turns), number(s.Reward), plain(group), s.CreatedAt.Local().Format(time.DateTime), plain(orDash(s.Error)),
		})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if list.Next != "" {
		fmt.Fprintf(notes, "There are more: --after %s\n", list.Next)
	}
	if list.Damage != "" {
		fmt.Fprintln(notes, "Some sessions are missing:", plain(list.Damage))
	}
	return nil
}

func newSessionStatus(flags *controlFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "status SESSION",
		Short:   "Say how a session stands",
		Example: "  capture-proxy session status s-1234 --json",
		Args:    need("SESSION", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := flags.client().Status(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), status, flags.json)
		},
	}
}

func printStatus(w io.Writer, s *control.Status, asJSON bool) error {
	if asJSON {
		return printJSON(w, s)
	}
	rows := [][]string{
		{"session", s.SessionID},
		{"status", string(s.Status)},
		{"turns", fmt.Sprintf("%d (%d roots, %d discarded, %d calls failed)", s.NTurns, s.NRoots, s.NDiscarded, s.NFailedCalls)},
		{"in flight", strconv.Itoa(s.InFlight)},
		{"trainable", fmt.Sprintf("%t (%d tokens)", s.Trainable, s.NTrainable)},
		{"capture level", orDash(s.CaptureLevel)},
		{"engine", plain(orDash(s.LLMURL))},
		{"model", plain(orDash(s.Model))},
		{"reward", number(s.Reward)},
		{"upstream errors", strconv.Itoa(s.UpstreamErrors)},
	}
	if s.IdleS != nil {
		rows = append(rows, []string{"idle", (time.Duration(*s.IdleS * float64(time.Second))).Round(time.Second).String()})
	}
	if s.Error != nil {
		rows = append(rows, []string{"error", plain(*s.Error)})
	}
	if s.KeyStored != nil && !*s.KeyStored {
		rows = append(rows, []string{"engine key", "in memory only: it is lost when the proxy stops (see --secret)"})
	}
	if s.Webhook != nil {
		rows = append(rows, []string{"webhook", string(*s.Webhook)})
	}
	if s.CaptureFailed != nil {
		rows = append(rows, []string{"capture failed", plain(*s.CaptureFailed)})
	}
	return table(w, rows)
}

func newSessionCancel(flags *controlFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "cancel SESSION",
		Short:   "Give a session up and abort its calls now",
		Example: "  capture-proxy session cancel s-1234 --reason 'the step is over'",
		Args:    need("SESSION", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			status, err := flags.client().Cancel(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), status, flags.json)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func newSessionDelete(flags *controlFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "delete SESSION...",
		Short:   "Delete sessions and their turns for good",
		Example: "  capture-proxy session delete s-1234",
		Args:    need("SESSION", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := flags.client().Delete(cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			if flags.json {
				return printJSON(cmd.OutOrStdout(), struct {
					Deleted []string `json:"deleted"`
				}{args})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "deleted", strings.Join(args, " "))
			return err
		},
	}
}

// fetchDocument asks a running proxy for a session's document, with everything in it.
func fetchDocument(ctx context.Context, client *control.Client, id string) (*export.Rollout, error) {
	text, err := client.Rollout(ctx, id, control.DocumentOptions{IncludeDiscarded: true, IncludeMessages: true})
	if err != nil {
		return nil, err
	}
	return export.Read(bytes.NewReader(text))
}

// claim reads how a session is said to have ended.
func claim(failed string) *control.Outcome {
	if failed == "" {
		return nil
	}
	return &control.Outcome{Status: string(record.Failed), Error: failed}
}

func orDash[T ~string](s *T) string {
	if s == nil {
		return "-"
	}
	return string(*s)
}

func number(f *float64) string {
	if f == nil {
		return "-"
	}
	return strconv.FormatFloat(*f, 'g', -1, 64)
}
