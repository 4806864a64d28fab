package main

import (
	"encoding/json"

	"github.com/spf13/pflag"

	"captureproxy/internal/jsonscan"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// sessionFlags describe a session that is to be created.
type sessionFlags struct {
	id, group, env, runID string
	groupSize, minTurns   int
	temperature           float64
	step                  int
	purpose, runKind      *choice
	frozen                bool
	metadata              pairs
	set                   *pflag.FlagSet
}

func (f *sessionFlags) add(flags *pflag.FlagSet) {
	f.purpose = oneOf(string(record.PurposeAuto), string(record.PurposeTrain), string(record.PurposeEval))
	f.runKind = oneOf("train", "eval")
	f.metadata = pairs{}
	f.set = flags
	flags.StringVar(&f.id, "session-id", "", "the session's id (default a random one)")
	flags.Var(f.purpose, "purpose", f.purpose.usage("what the rollout is for; train is refused where token ids cannot be captured"))
	flags.Var(f.metadata, "metadata", "metadata of the session; the value is JSON, or else a string (repeatable)")
	flags.StringVar(&f.env, "env", "", "id of the environment")
	flags.StringVar(&f.group, "group", "", "id of the group of sessions planned together from one task")
	flags.IntVar(&f.groupSize, "group-size", 0, "how many sessions the group has")
	flags.StringVar(&f.runID, "run", "", "id of the run")
	flags.Var(f.runKind, "run-kind", f.runKind.usage("kind of the run"))
	flags.IntVar(&f.step, "step", 0, "step of the training run")
	flags.Float64Var(&f.temperature, "temperature", 0, "pin the sampling to this temperature, with nothing cut off")
	flags.IntVar(&f.minTurns, "min-turns", 0, "a rollout with fewer turns is not trainable")
	flags.BoolVar(&f.frozen, "frozen", false, "the weights do not change: staleness does not apply")
}

// request makes the request that the flags describe.
func (f *sessionFlags) request() (control.CreateRequest, error) {
	req := control.CreateRequest{Purpose: record.Purpose(f.purpose.value), Frozen: f.frozen, Metadata: jsonValues(f.metadata)}
	if f.id != "" {
		req.SessionID = &f.id
	}
	if f.env != "" {
		req.Env = &record.Env{ID: f.env}
	}
	if f.group != "" {
		req.Group = &control.Group{ID: f.group, Size: f.whole("group-size", f.groupSize)}
	}
	if f.runID != "" {
		req.Run = &control.Run{Kind: f.runKind.value, ID: f.runID}
		if step := f.whole("step", f.step); step != nil {
			req.Run.Metadata = &control.RunMetadata{Kind: "train", Step: step}
		}
	}
	if f.set.Changed("temperature") {
		req.Sampling = &control.Sampling{Temperature: &f.temperature}
	}
	req.MinTurns = f.whole("min-turns", f.minTurns)
	for _, part := range []struct{ flag, of, value string }{{"group-size", "group", f.group}, {"step", "run", f.runID}, {"run-kind", "run", f.runID}} {
		if f.set.Changed(part.flag) && part.value == "" {
			return req, usagef("--%s needs --%s", part.flag, part.of)
		}
	}
	return req, nil
}

// whole returns a number that was given, nil when it was not.
func (f *sessionFlags) whole(flag string, n int) *control.Whole {
	if !f.set.Changed(flag) {
		return nil
	}
	whole := control.Whole(n)
	return &whole
}

// jsonValues takes each value as JSON, and as a string where it is none.
func jsonValues(p pairs) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	for name, text := range p {
		value := json.RawMessage(text)
		if !json.Valid(value) {
			value = jsonscan.AppendQuote(nil, text)
		}
		values[name] = value
	}
	return values
}
