package store

import (
	"context"
	"errors"
	"time"

	"captureproxy/internal/record"
)

// ErrEnding: the session takes no calls any more.
var ErrEnding = errors.New("the session is ending or has ended")

// Shared is a Store that several proxies use at the same time. Beside the log it keeps what they must agree on: numbers,
// budgets, calls under way, who ends a session, and which weights are live. What one of them does the others are told.
//
// A session is named by id and Instance wherever an earlier one of the same id could be meant; the methods answer
// ErrNotFound when that one is gone.
type Shared interface {
	Store

	// Join makes the caller one of the proxies, under a name that no other has. Its calls under way count for as long as
	// it shows signs of life, which Join sends until leave is called. hear is told what others do, in order, from one
	// goroutine.
	Join(ctx context.Context, proxy string, hear func(Notice)) (leave func(context.Context) error, err error)
	// Tell tells all proxies, the caller too.
	Tell(ctx context.Context, n Notice) error

	// Admit takes a call into a session, in one step for all proxies. ErrEnding when it takes none any more.
	Admit(ctx context.Context, a Admission) (Admitted, error)
	// Gone says that the harness does not wait for a call any more: the same body again is a retry.
	Gone(ctx context.Context, session, instance string, number int) error
	// Leave ends the stay of a call that is not appended; forwarded says whether it counts against the budget. A call
	// that is appended leaves by that.
	Leave(ctx context.Context, session, instance string, number int, forwarded bool) error

	// States tells how sessions stand. Those that are not there are left out.
	States(ctx context.Context, ids ...string) (map[string]State, error)
	// Decisive returns what the verdict on a session depends on: its number of turns, and its calls from the last one on
	// that is a turn, of which only Number, Outcome and Detail are set.
	Decisive(ctx context.Context, id, instance string) (turns int, calls []*record.Call, err error)
	// NumRunning counts the running sessions.
	NumRunning(ctx context.Context) (int, error)
	// Idle names the running sessions without a call under way in which nothing has happened for so long.
	Idle(ctx context.Context, since time.Duration) ([]string, error)
	// Orphans names the sessions that a proxy was ending when it died.
	Orphans(ctx context.Context) ([]string, error)

	// UpdateSession changes a session's record, whoever else does so at the same time. When change fails nothing is
	// changed, and its error returned as it is.
	UpdateSession(ctx context.Context, id string, change func(*record.Session) error) (*record.Session, error)
	// BeginEnd makes the caller the one that ends the session, unless a living proxy is at it already, and keeps the
	// reason of a cancellation, "" for none: proxies with calls of it under way are told to abort them.
	BeginEnd(ctx context.Context, id, instance, cancelled string) (State, error)
	// AbandonEnd lets the session take calls again.
	AbandonEnd(ctx context.Context, id, instance string) error

	// SetPolicy notes which weights are live, Policy tells; nil when nobody has said.
	SetPolicy(ctx context.Context, version int64) error
	Policy(ctx context.Context) (*int64, error)
}

// Admission asks for a call to be admitted.
type Admission struct {
	Session, Instance string
	BodyHash          string
	Repeats           bool // the caller says that it is a retry
}

// Admitted is a call's place in its session.
type Admitted struct {
	Number   int
	RetryOf  int  // the earlier call that this one repeats, 0 for none
	Reserved bool // false when the budget is spent
	Turns    int  // of the session so far
	InFlight int  // with this one
}

// State is how a session stands among the proxies.
type State struct {
	Instance  string
	Calls     int // admitted
	Turns     int
	InFlight  int // of proxies that are alive
	Idle      time.Duration
	Ended     bool
	Ending    bool   // somebody is at it
	Mine      bool   // the caller is
	Cancelled string // the reason
}

// NoticeKind says what happened.
type NoticeKind string

// The kinds of notices.
const (
	NoticeChanged  NoticeKind = "changed"  // a session's record is another one now, or gone
	NoticeAbort    NoticeKind = "abort"    // its calls are to be aborted; Text is "cancelled" or "closed"
	NoticeIdle     NoticeKind = "idle"     // of a session that is ending the last call has left
	NoticePolicy   NoticeKind = "policy"   // other weights are live
	NoticeEvents   NoticeKind = "events"   // Text holds what happened to sessions
	NoticeFollowed NoticeKind = "followed" // somebody follows events
	NoticeMissed   NoticeKind = "missed"   // notices were lost: whatever was remembered may be out of date
)

// Notice is what proxies tell each other.
type Notice struct {
	Kind    NoticeKind `json:"k"`
	From    string     `json:"f,omitempty"` // the proxy that told
	Session string     `json:"s,omitempty"`
	Text    string     `json:"t,omitempty"`
}

// MaxNotice is how long a notice may be, in JSON.
const MaxNotice = 7900
