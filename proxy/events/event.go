package events

import (
	"strconv"
	"strings"
	"time"

	"captureproxy/internal/record"
)

// Kind says what happened.
type Kind string

// The kinds of events.
const (
	SessionOpened  Kind = "session_opened"
	CallStarted    Kind = "call_started"
	TurnRecorded   Kind = "turn_recorded" // a call has ended and is durable; failed ones too, their outcome says so
	SessionEnded   Kind = "session_ended"
	Scored         Kind = "scored"
	SessionDeleted Kind = "session_deleted"
	// Gap stands where events are missing: whoever follows has to read anew what he follows.
	Gap Kind = "gap"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{SessionOpened, CallStarted, TurnRecorded, SessionEnded, Scored, SessionDeleted, Gap}
}

// Event is one thing that happened to a session. Fields that do not concern its kind are empty.
type Event struct {
	ID      ID        `json:"-"`
	Kind    Kind      `json:"event"`
	Time    time.Time `json:"time"`
	Session string    `json:"session_id,omitempty"` // of every kind but gap
	Group   string    `json:"group,omitempty"`
	Run     string    `json:"run,omitempty"`

	Call       int            `json:"call,omitempty"` // number
	RetryOf    int            `json:"retry_of,omitempty"`
	Outcome    record.Outcome `json:"outcome,omitempty"`
	HTTPStatus int            `json:"http_status,omitempty"` // that the harness got
	NPrompt    int            `json:"n_prompt,omitempty"`    // ids
	NSampled   int            `json:"n_sampled,omitempty"`   // ids, over all choices
	DurationMS int64          `json:"duration_ms,omitempty"` // from the request's arrival to its being recorded

	Calls    int `json:"calls,omitempty"` // of the session so far
	Turns    int `json:"turns,omitempty"`
	InFlight int `json:"in_flight,omitempty"`

	Status record.Status `json:"status,omitempty"` // of the session
	Error  string        `json:"error,omitempty"`
	Reward *float64      `json:"reward,omitempty"`
}

// ID names an event: who published it, and which one of his it is.
type ID struct {
	Origin string
	Seq    uint64
}

func (id ID) String() string { return id.Origin + "-" + strconv.FormatUint(id.Seq, 10) }

// ParseID reads what String wrote. What it cannot read is the id of no event.
func ParseID(text string) ID {
	origin, seq, _ := strings.Cut(text, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return ID{}
	}
	return ID{origin, n}
}

// Filter chooses events; its zero value chooses all. A gap concerns everybody.
type Filter struct{ Session, Group, Run string }

// Match reports whether an event is chosen.
func (f Filter) Match(e *Event) bool {
	return e.Kind == Gap ||
		(f.Session == "" || f.Session == e.Session) && (f.Group == "" || f.Group == e.Group) && (f.Run == "" || f.Run == e.Run)
}
