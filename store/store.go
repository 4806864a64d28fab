package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"captureproxy/internal/record"
)

// Errors to branch on; what a method returns wraps them.
var (
	// ErrNotFound: no such session (or call).
	ErrNotFound = errors.New("not found")
	// ErrExists: the session id is taken.
	ErrExists = errors.New("already exists")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrBadCursor: Filter.After is not a cursor that Sessions returned.
	ErrBadCursor = errors.New("not a cursor of this list")
	// ErrDamaged: part of what was stored can no longer be read.
	ErrDamaged = errors.New("stored data is damaged")
	// ErrBusy: more is waiting to be written than the store is allowed to hold in memory.
	ErrBusy = errors.New("the disk does not keep up")
)

// Store is a durable log of sessions and their calls.
//
// All methods are safe for concurrent use. A write that returned nil (or whose channel gave nil) is on disk: no crash of
// the process or the machine loses it, and every read that starts afterwards sees it. A write that returned another
// error than that of its context did not happen; one whose context ended may have.
//
// Strings in records are UTF-8. Numbers in a session's record are finite.
type Store interface {
	// CreateSession writes a new session. ErrExists when the id is taken by a session that was not deleted.
	CreateSession(ctx context.Context, s *record.Session) error
	// PutSession replaces a session's record as a whole; the last one wins. ErrNotFound when there is none. CreatedAt
	// and Instance do not change in a session's life.
	PutSession(ctx context.Context, s *record.Session) error
	// Session returns a session's record; it belongs to the caller. ErrNotFound when there is none. A session of which
	// the store lost something says so in CaptureFailed.
	Session(ctx context.Context, id string) (*record.Session, error)
	// Sessions lists the sessions that match, newest first (by CreatedAt, then id), and the cursor for Filter.After
	// that continues the list, "" at its end. Paging through while sessions come and go repeats none and misses none
	// that stay. Sessions whose record cannot be read any more are left out and named in an error that is ErrDamaged.
	Sessions(ctx context.Context, f Filter) ([]*record.Session, string, error)
	// DeleteSession removes a session and its calls; its id is free again. ErrNotFound when there is none.
	DeleteSession(ctx context.Context, id string) error

	// Append records a call of a session. It does not wait for the disk: the channel, which has room for one value,
	// gets nil when the call is durable, else the error (ErrNotFound when there is no such session, or when the call
	// names another Instance of it). The caller must not write to the call's slices any more, ever.
	//
	// A second append of the same call number to the same session is a success without effect, also while the first
	// is under way, so a caller may repeat what it is not sure of.
	Append(c *record.Call) <-chan error
	// Calls returns the calls of a session by number, without their Body and Cuts. The calls belong to the caller;
	// their slices may be shared among them and must not be written to. ErrNotFound when there is no such session.
	//
	// When some calls cannot be read any more, the others are returned beside an error that is ErrDamaged.
	Calls(ctx context.Context, id string) ([]*record.Call, error)
	// Body returns the Body of one call. Bodies repeat the whole conversation each time, so they are not part of
	// Calls: a session's memory would grow with turns × context.
	Body(ctx context.Context, id string, number int) ([]byte, error)
	// Past reads a session's log once, for who looks for answers and bodies in it. Its errors are those of Calls.
	Past(ctx context.Context, id string) (*Past, error)

	// Healthy returns nil, or why writes fail at present.
	Healthy() error
	// Close waits for what was accepted, then closes. Writes that come later get ErrClosed.
	Close() error
}

// Filter chooses sessions; its zero value chooses all.
type Filter struct {
	Status string    // a record.Status
	Group  string    // Spec.Group.ID
	Run    string    // the "id" in Spec.Run
	Env    string    // Spec.Env.ID
	Since  time.Time // created then or later
	Limit  int       // at most so many, 0 for no limit
	After  string    // the cursor of the page before
}

// DamageError says which part of the log cannot be read. It is ErrDamaged.
type DamageError struct {
	File    string // segment
	Offset  int64  // first unreadable byte
	Length  int64
	Session string // whose data it was, "" when that cannot be told
	Reason  string
}

func (e *DamageError) Error() string {
	whose := ""
	if e.Session != "" {
		whose = fmt.Sprintf(" (session %q)", e.Session)
	}
	return fmt.Sprintf("store: %s is damaged at offset %d, %d bytes%s: %s; what stands around it is kept, restore the file from a copy to get it back",
		e.File, e.Offset, e.Length, whose, e.Reason)
}

// Unwrap makes a DamageError an ErrDamaged.
func (e *DamageError) Unwrap() error { return ErrDamaged }
