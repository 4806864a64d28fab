package format

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/validate"
)

// Advantage says what stands where a form has an advantage.
type Advantage string

// Kinds of advantages.
const (
	AdvantageNone  Advantage = "none"  // the reward itself
	AdvantageGroup Advantage = "group" // the reward against those of the group's other sessions
)

// Options choose what is exported, and how.
type Options struct {
	Advantage Advantage // none when empty
	// Groups holds the rewards of all sessions of the export; needed for AdvantageGroup.
	Groups *Groups
	// MinReward leaves out the sessions with a smaller reward, and those without any.
	MinReward *float64
	// Shared says whether a turn that lies on several rows is trained once, as an empty value has it, or in each.
	Shared record.Shared
	// Parquet writes Parquet in place of JSON, where the form can.
	Parquet bool
}

// Output is where a form is written: to a stream, or for a form that is a directory, to files made by Create.
type Output struct {
	Stream io.Writer
	Create func(name string) (io.WriteCloser, error)
}

// Exporter writes the sessions of one export. It is not safe for concurrent use.
type Exporter struct {
	form    form
	options Options
	writer  writer
	summary Summary
	rows    map[[16]byte]bool // the row and session ids so far, hashed: they are kept for the whole export
	groups  map[string]*place
}

// place is a group's number in the export, and how many of its sessions came.
type place struct{ index, sessions int }

// New opens an export in the form of a name.
func New(name string, out Output, o Options) (*Exporter, error) {
	f, err := find(name)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Directory && out.Create == nil:
		return nil, fmt.Errorf("format %s writes a file per row: give a directory", name)
	case !f.Directory && out.Stream == nil:
		return nil, fmt.Errorf("format %s writes one file: give a stream", name)
	case o.Parquet && !f.Parquet:
		return nil, fmt.Errorf("format %s cannot be written as Parquet", name)
	case o.Advantage == AdvantageGroup && o.Groups == nil:
		return nil, errors.New("an advantage within the group needs the groups: collect them first, with Groups.Add")
	}
	e := &Exporter{form: f, options: o, writer: f.open(out, o), rows: map[[16]byte]bool{}, groups: map[string]*place{}}
	e.summary.Format = name
	if o.Advantage == AdvantageGroup && !f.advantage {
		e.summary.note("%s has no place for an advantage, it got the rewards: its trainer makes its own of them, over rows", name)
	}
	return e, nil
}

// Add takes the next document; source says where it came from, for errors. The sessions of one group follow each other
// where the form is made of groups (atropos).
func (e *Exporter) Add(source string, r *export.Rollout) error {
	if err := refuseDamaged(source, r); err != nil {
		return err
	}
	if err := e.refuseRepeated(source, r); err != nil {
		return err
	}
	if reason := e.leaveOut(r); reason != "" {
		e.summary.leaveOut(&e.summary.SessionsLeftOut, reason)
		return nil
	}
	if e.form.messages && lacksMessages(r) {
		return fmt.Errorf("%s holds no messages, which format %s needs: make the document with include_messages", source, e.form.Name)
	}
	s, err := e.session(r)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	w, err := e.writer.write(s)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	e.count(s, w)
	return nil
}

func (e *Exporter) count(s *session, w written) {
	if w.rows == 0 {
		e.summary.leaveOut(&e.summary.SessionsLeftOut, "nothing to write")
		return
	}
	e.summary.Sessions++
	e.summary.Rows += w.rows
	e.summary.TrainedTokens += w.tokens
	for i := range s.doc.Sequences {
		row := &s.doc.Sequences[i]
		if e.form.live || s.has(row.RowID) {
			continue
		}
		reason := "trains nothing"
		if row.Role != export.Agent {
			reason = string(row.Role)
		}
		e.summary.leaveOut(&e.summary.RowsLeftOut, reason)
	}
	if e.form.mustAdvantage() && s.advantage == 0 {
		e.summary.zero++
	}
}

// Close writes what is left and returns the counts.
func (e *Exporter) Close() (Summary, error) {
	if e.summary.zero > 0 {
		e.summary.note("sessions with advantage 0, from which the policy learns nothing: %d", e.summary.zero)
	}
	return e.summary, e.writer.close()
}

// DamagedError says that a document contradicts itself.
type DamagedError struct {
	Source   string
	Findings []validate.Finding
}

func (e *DamagedError) Error() string {
	more := ""
	if n := len(e.Findings) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("%s is damaged and is not exported: %s%s", e.Source, e.Findings[0], more)
}

func refuseDamaged(source string, r *export.Rollout) error {
	var fatal []validate.Finding
	for _, f := range export.Check(r) {
		if f.Level == validate.Fatal {
			fatal = append(fatal, f)
		}
	}
	if len(fatal) > 0 {
		return &DamagedError{Source: source, Findings: fatal}
	}
	return nil
}

// refuseRepeated sees that nothing comes twice: it would count twice.
func (e *Exporter) refuseRepeated(source string, r *export.Rollout) error {
	if !e.first("session\x00" + r.SessionID) {
		return fmt.Errorf("%s: the session %s was exported already: give each once", source, r.SessionID)
	}
	for i := range r.Sequences {
		if id := r.Sequences[i].RowID; !e.first("row\x00" + id) {
			return fmt.Errorf("%s: the row id %q was exported already: a row id is unique over all sessions", source, id)
		}
	}
	return nil
}

func (e *Exporter) first(key string) bool {
	sum := sha256.Sum256([]byte(key))
	id := [16]byte(sum[:16])
	if e.rows[id] {
		return false
	}
	e.rows[id] = true
	return true
}

// leaveOut says why a session is no part of this export, "" when it is.
func (e *Exporter) leaveOut(r *export.Rollout) string {
	if reason := shut(r, e.form.eval); reason != "" {
		return reason
	}
	min := e.options.MinReward
	switch {
	case r.Reward == nil && (e.form.reward || min != nil):
		return "not scored"
	case min != nil && *r.Reward < *min:
		return fmt.Sprintf("reward below %v", *min)
	}
	return ""
}

// shut says why nothing of a document may be trained on.
func shut(r *export.Rollout, eval bool) string {
	switch {
	case r.Status == record.Running:
		return "still running"
	case r.RolloutType != export.TypeTrain && !eval:
		return "eval rollout"
	case validate.AnyFatal(r.Validation):
		return "gate shut: " + fatalCodes(r.Validation)
	case r.RolloutType == export.TypeTrain && !r.Trainable:
		return "gate shut: no trainable row"
	}
	return ""
}

func fatalCodes(findings []validate.Finding) string {
	codes, said := "", map[validate.Code]bool{}
	for _, f := range findings {
		if f.Level != validate.Fatal || said[f.Code] {
			continue
		}
		said[f.Code] = true
		if codes != "" {
			codes += ", "
		}
		codes += string(f.Code)
	}
	return codes
}

func lacksMessages(r *export.Rollout) bool {
	for i := range r.Turns {
		if r.Turns[i].RequestMessages == nil {
			return true
		}
	}
	return false
}
