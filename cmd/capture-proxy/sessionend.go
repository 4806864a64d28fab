package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/proxy/control"
)

// scoreFlags are what can be said about a session, at its end or later.
type scoreFlags struct {
	reward   string
	rewards  pairs
	metadata pairs
}

func (f *scoreFlags) add(flags *pflag.FlagSet) {
	f.rewards, f.metadata = pairs{}, pairs{}
	flags.StringVar(&f.reward, "reward", "", "the reward, a number; null removes it")
	flags.Var(f.rewards, "rewards", "a named reward; null removes it (repeatable)")
	flags.Var(f.metadata, "metadata", "metadata; the value is JSON, or else a string; null removes it (repeatable)")
}

// values returns what the flags say, in the form of a request.
func (f *scoreFlags) values() (v control.CloseRequest, err error) {
	if f.reward != "" {
		n, err := reward(f.reward)
		if err != nil {
			return v, err
		}
		v.Reward = control.Optional[float64]{Set: true, Value: n}
	}
	if len(f.rewards) > 0 {
		named := map[string]*float64{}
		for name, text := range f.rewards {
			if named[name], err = reward(text); err != nil {
				return v, err
			}
		}
		v.Rewards = control.Some(named)
	}
	if len(f.metadata) > 0 {
		v.Metadata = control.Some(jsonValues(f.metadata))
	}
	return v, nil
}

func reward(text string) (*float64, error) {
	if text == "null" {
		return nil, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, usagef("the reward %q is no finite number", text)
	}
	return &n, nil
}

func newSessionClose(flags *controlFlags) *cobra.Command {
	var scores scoreFlags
	var failed, out string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "close SESSION",
		Short: "End a session and get its rollout",
		Long: `close ends a session: new calls are refused at once, running ones are waited for. It prints a summary, or with --json the
rollout document. Closing twice gives the same document.`,
		Example: `  capture-proxy session close s-1234 --reward 1 --out rollout.json
  capture-proxy session close s-1234 --failed 'TimeoutError: the agent took too long' --json`,
		Args: need("SESSION", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := scores.values()
			if err != nil {
				return err
			}
			req.Outcome = claim(failed)
			everything := control.DocumentOptions{IncludeDiscarded: true, IncludeMessages: true}
			text, err := flags.client().Close(cmd.Context(), args[0], req, wait, everything)
			if err != nil {
				return err
			}
			return giveDocument(cmd.OutOrStdout(), text, out, flags.json)
		},
	}
	f := cmd.Flags()
	scores.add(f)
	f.StringVar(&failed, "failed", "", "the session failed, and why: \"Type: message\"")
	f.DurationVar(&wait, "wait", 30*time.Second, "how long running calls are waited for")
	f.StringVar(&out, "out", "", "file for the rollout document")
	return cmd
}

// giveDocument writes a document to a file, prints it, or prints a summary of it.
func giveDocument(w io.Writer, text []byte, path string, asJSON bool) error {
	write := func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
	if path != "" {
		if err := writeFile(path, write); err != nil {
			return err
		}
	}
	if asJSON {
		return write(w)
	}
	doc, err := export.Read(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if path == "" {
		return show.Tree(w, doc, show.Options{Color: bool(colours(w))})
	}
	return printSummary(w, doc, path)
}

func newSessionScore(flags *controlFlags) *cobra.Command {
	var scores scoreFlags
	var runID string
	var step int
	cmd := &cobra.Command{
		Use:   "score SESSION",
		Short: "Say or change how good a session was, also after its end",
		Example: `  capture-proxy session score s-1234 --reward 0.5 --rewards tests=1
  capture-proxy session score s-1234 --step 17`,
		Args: need("SESSION", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := scores.values()
			if err != nil {
				return err
			}
			req := control.ScoreRequest{Reward: v.Reward, Rewards: v.Rewards, Metadata: v.Metadata}
			var run control.RunPatch
			if runID != "" {
				run.ID = control.Some(runID)
			}
			if cmd.Flags().Changed("step") {
				run.Metadata = control.Some(control.RunMetadataPatch{Step: control.Some(control.Whole(step))})
			}
			if run != (control.RunPatch{}) {
				req.Run = control.Some(run)
			}
			scored, err := flags.client().Score(cmd.Context(), args[0], req)
			if err != nil {
				return err
			}
			return printScored(cmd.OutOrStdout(), scored, flags.json)
		},
	}
	f := cmd.Flags()
	scores.add(f)
	f.StringVar(&runID, "run", "", "id of the run")
	f.IntVar(&step, "step", 0, "step of the training run")
	return cmd
}

func printScored(w io.Writer, s *control.Scored, asJSON bool) error {
	if asJSON {
		return printJSON(w, s)
	}
	named, err := json.Marshal(s.Rewards)
	if err != nil {
		return err
	}
	metadata, err := json.Marshal(s.Metadata)
	if err != nil {
		return err
	}
	return table(w, [][]string{
		{"session", s.SessionID}, {"status", string(s.Status)}, {"reward", number(s.Reward)},
		{"rewards", plain(string(named))}, {"metadata", plain(string(metadata))}, {"run", plain(cmp.Or(string(s.Run), "-"))},
	})
}
