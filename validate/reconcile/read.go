package reconcile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Kind is whose record it is.
type Kind string

// Kinds of records.
const (
	ATIF       Kind = "ATIF"
	ClaudeCode Kind = "claude-code"
	Codex      Kind = "codex"
	Pi         Kind = "pi"
	OpenCode   Kind = "opencode"
)

// Trajectory is a harness's record of a session, read down to what can be compared.
type Trajectory struct {
	Kind      Kind
	SessionID string // the harness's own
	Steps     []Step // in the record's order
	Retries   []string
	Cut       bool // the last line is not whole
}

// Step is one model call as the harness saw it.
type Step struct {
	ID        string   // how the record names it
	ToolCalls []string // ids
	Text      string   // what the assistant said, white space normalised
	// Prompt and Completion are the counts of the answer's usage, cached and reasoning tokens included; nil where the
	// record does not say them, or not so that they could be compared.
	Prompt, Completion *int64
	CompletionIDs      []int32 // nil where unknown
	// Synthetic steps hold an error in place of an answer.
	Synthetic bool
	// Copied steps were brought along from another trajectory.
	Copied bool
}

func (s *Step) describe() string {
	if len(s.ToolCalls) > 0 {
		return "tool calls " + strings.Join(s.ToolCalls, ", ")
	}
	if s.Text == "" {
		return "no text"
	}
	return fmt.Sprintf("%q", clip(s.Text))
}

// ErrUnknownKind is returned for what is no record that this package reads.
var ErrUnknownKind = errors.New("this is no harness's record: want an ATIF trajectory, or a session log as claude-code (projects/*/*.jsonl), " +
	"codex (sessions/**/rollout-*.jsonl), pi (sessions/*/*.jsonl) or opencode (`opencode export`, or its message and part files one after the other) write it")

// ErrDatabase is returned for opencode's database.
var ErrDatabase = errors.New("this is opencode's database: give what `opencode export SESSION` prints")

// reader takes the JSON values of one kind of record, one after the other.
type reader interface {
	add(value json.RawMessage) error
	// finish is called once, after the last value.
	finish() Trajectory
}

// Read takes a record and tells its kind from its content.
func Read(in io.Reader) (*Trajectory, error) {
	buffered := bufio.NewReader(in)
	if magic, err := buffered.Peek(6); err == nil && string(magic) == "SQLite" {
		return nil, ErrDatabase
	}
	var (
		dec    = json.NewDecoder(buffered)
		before []json.RawMessage // values that do not tell the kind
		r      reader
		cut    bool
	)
	for n := 1; ; n++ {
		var value json.RawMessage
		err := dec.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) && r != nil && n > 1 {
			cut = true
			break
		}
		if err != nil {
			return nil, fmt.Errorf("value %d of the record cannot be read: %w", n, err)
		}
		if r == nil {
			if r = readerFor(value); r == nil {
				before = append(before, value)
				continue
			}
			for _, v := range before {
				if err := r.add(v); err != nil {
					return nil, err
				}
			}
		}
		if err := r.add(value); err != nil {
			return nil, fmt.Errorf("value %d of the record: %w", n, err)
		}
	}
	if r == nil {
		return nil, ErrUnknownKind
	}
	t := r.finish()
	t.Cut = cut
	for i := range t.Steps {
		t.Steps[i].Text = normal(t.Steps[i].Text)
	}
	return &t, nil
}

// marks are the fields by which a value shows whose it is.
type marks struct {
	SchemaVersion text            `json:"schema_version"`
	Type          text            `json:"type"`
	Payload       json.RawMessage `json:"payload"`
	ClaudeSession text            `json:"sessionId"`
	ID            text            `json:"id"`
	Version       json.RawMessage `json:"version"`
	Info          json.RawMessage `json:"info"`
	Messages      json.RawMessage `json:"messages"`
	OpenSession   text            `json:"sessionID"`
}

// readerFor returns the reader of the kind that the value belongs to, nil where it does not tell.
func readerFor(value json.RawMessage) reader {
	var m marks
	if json.Unmarshal(value, &m) != nil {
		return nil
	}
	switch {
	case strings.HasPrefix(string(m.SchemaVersion), "ATIF"):
		return &atifReader{}
	case m.Payload != nil && m.Type != "":
		return &codexReader{}
	case m.Type == "session" && m.ID != "" && m.Version != nil:
		return &piReader{}
	case m.ClaudeSession != "" && m.Type != "":
		return &claudeReader{}
	case m.Info != nil && m.Messages != nil, strings.HasPrefix(string(m.OpenSession), "ses"):
		return &openCodeReader{}
	}
	return nil
}

// text is a string field; what stands there and is none reads as empty, since a field of that name may be another
// kind's.
type text string

// UnmarshalJSON reads a string.
func (t *text) UnmarshalJSON(b []byte) error {
	*t = ""
	var s string
	if bytes.HasPrefix(b, []byte{'"'}) && json.Unmarshal(b, &s) == nil {
		*t = text(s)
	}
	return nil
}

// normal makes texts comparable that harnesses trim and wrap.
func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

// sum adds counts; nil unless the first is known, since the others are parts that a record may leave out.
func sum(first *int64, more ...*int64) *int64 {
	if first == nil {
		return nil
	}
	total := *first
	for _, n := range more {
		if n != nil {
			total += *n
		}
	}
	return &total
}
