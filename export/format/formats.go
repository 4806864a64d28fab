package format

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Info describes a form.
type Info struct {
	Name      string
	About     string
	Directory bool // one file per row, in a directory
	Parquet   bool // can be written as Parquet too
}

// writer writes the sessions of one export in one trainer's form.
type writer interface {
	// write takes the next session and says what of it is now in the file.
	write(s *session) (written, error)
	close() error
}

// written counts what one session became.
type written struct {
	rows   int
	tokens int // that the trainer will train
}

// form is a form and what it asks of the sessions that it gets.
type form struct {
	Info
	messages  bool // needs documents made with include_messages
	reward    bool // must have a reward or an advantage
	advantage bool // has a place for one
	together  bool // needs the sessions of a group one after the other
	eval      bool // takes eval rollouts too
	live      bool // has the live rows of every role, not only those that are trained
	open      func(out Output, o Options) writer
}

// mustAdvantage reports whether the trainer takes the advantage as it is given, so that a 0 teaches nothing.
func (f form) mustAdvantage() bool { return f.reward && f.advantage && !f.together }

// stream makes an open function of one that needs nothing but a stream.
func stream[W writer](open func(io.Writer) W) func(Output, Options) writer {
	return func(out Output, _ Options) writer { return open(out.Stream) }
}

func forms() []form {
	return []form{
		{Info: Info{Name: "openenv", About: "JSONL, a session a line: the turns as OpenEnv's trainers read them"},
			messages: true, open: stream(newOpenEnv)},
		{Info: Info{Name: "verifiers", About: "traces.jsonl, an episode a line; prime-rl reads it too"},
			messages: true, open: stream(newVerifiers)},
		{Info: Info{Name: "verl", About: "JSONL of agent-loop outputs, a row a line"},
			reward: true, open: stream(newVerl)},
		{Info: Info{Name: "tinker", About: "JSONL of Datum for importance sampling, a row a line"},
			reward: true, advantage: true, open: stream(newTinker)},
		{Info: Info{Name: "tinker-sft", About: "JSONL of Datum for cross entropy, a row a line"},
			open: stream(newTinkerSFT)},
		{Info: Info{Name: "trl-sft", About: "input_ids and labels, JSONL or Parquet, no code needed", Parquet: true},
			open: func(out Output, o Options) writer { return newTRLSFT(out.Stream, o.Parquet) }},
		{Info: Info{Name: "trl-async", About: "JSONL of RolloutSample, a row a line"},
			messages: true, reward: true, advantage: true, open: stream(newTRLAsync)},
		{Info: Info{Name: "skyrl", About: "JSON, the columns of one batch"},
			reward: true, open: stream(newSkyRL)},
		{Info: Info{Name: "nemo-gym", About: "a directory with one <row>.tokens.jsonl per row", Directory: true},
			messages: true, open: func(out Output, _ Options) writer { return newNemoGym(out.Create) }},
		{Info: Info{Name: "areal", About: "JSONL, a session a line: row id to tensors"},
			reward: true, open: stream(newAReaL)},
		{Info: Info{Name: "atif", About: "JSONL of trajectories (ATIF-v1.7), one per agent row"},
			messages: true, open: stream(newATIF)},
		{Info: Info{Name: "atropos", About: "JSONL of scored data, a group a line"},
			messages: true, reward: true, advantage: true, together: true, open: stream(newAtropos)},
		{Info: Info{Name: "miles", About: "JSONL of Sample, a row a line; slime reads it too"},
			messages: true, reward: true, open: stream(newMiles)},
		{Info: Info{Name: "rows", About: "one flat row per sequence, JSONL or Parquet", Parquet: true},
			messages: true, advantage: true, live: true, open: func(out Output, o Options) writer { return newRows(out.Stream, o.Parquet) }},
		{Info: Info{Name: "messages", About: "JSONL of chats without ids, eval rollouts included"},
			messages: true, eval: true, open: stream(newMessages)},
	}
}

// All lists the forms.
func All() []Info {
	var list []Info
	for _, f := range forms() {
		list = append(list, f.Info)
	}
	return list
}

// Names lists the forms' names.
func Names() []string {
	var names []string
	for _, f := range forms() {
		names = append(names, f.Name)
	}
	return names
}

// Find returns the form of a name.
func Find(name string) (Info, error) {
	f, err := find(name)
	return f.Info, err
}

func find(name string) (form, error) {
	list := forms()
	i := slices.IndexFunc(list, func(f form) bool { return f.Name == name })
	if i < 0 {
		return form{}, fmt.Errorf("there is no format %q, there is: %s", name, strings.Join(Names(), ", "))
	}
	return list[i], nil
}
