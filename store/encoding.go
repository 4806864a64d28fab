package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"captureproxy/internal/record"
)

// What stands here is for other implementations of Store: they keep sessions and calls in the encoding of the log, which
// stores once what a session's calls repeat, and only have to say where the payloads lie.

// Encoder lays out calls. The zero value is not usable.
type Encoder struct{ hash hasher }

// NewEncoder returns an encoder; dictionaries go with the encoder of their process.
func NewEncoder() *Encoder { return &Encoder{newHasher()} }

// Prepared is a call that is encoded as far as that needs no dictionary. It refers to the call's slices.
type Prepared struct{ call *pendingCall }

// Prepare encodes a call; it is safe for concurrent use.
func (e *Encoder) Prepare(c *record.Call) (Prepared, error) {
	p, err := e.hash.prepare(c)
	return Prepared{p}, err
}

// Size is about what the call holds in memory.
func (p Prepared) Size() int64 { return p.call.size() }

// Dictionary knows what of a session was stored by its earlier payloads. All payloads of a dictionary must be stored, in
// order; one that was not spoils those that follow, so begin a new dictionary then. It belongs to one goroutine.
type Dictionary struct{ d *dictionary }

// NewDictionary returns a dictionary; no two of a session have the same id.
func NewDictionary(id uint32) *Dictionary { return &Dictionary{newDictionary(id)} }

// Payload encodes a call, and learns what it brings.
func (d *Dictionary) Payload(p Prepared) ([]byte, error) {
	b := d.d.appendCall(nil, p.call)
	if len(b) > maxPayload {
		return nil, fmt.Errorf("store: call %d takes more than %d bytes", p.call.number, maxPayload)
	}
	return b, nil
}

// DecodeCalls reads payloads of one session, those of each dictionary in order, and returns the calls by number. Their
// Session and Instance are empty. When some cannot be read the others come beside an error that is ErrDamaged.
func DecodeCalls(payloads [][]byte) ([]*record.Call, error) {
	stored, err := decodeAll(payloads)
	calls := expandAll(stored)
	slices.SortFunc(calls, func(a, b *record.Call) int { return cmp.Compare(a.Number, b.Number) })
	return calls, err
}

// DecodeBody returns the body of the call whose payload is the last; before it come the others of its dictionary.
func DecodeBody(payloads [][]byte) ([]byte, error) {
	stored, err := decodeAll(payloads)
	if len(stored) == 0 || err != nil {
		return nil, err
	}
	last := stored[len(stored)-1]
	return last.library.join(last.body), nil
}

func decodeAll(payloads [][]byte) ([]*storedCall, error) {
	var (
		d    decoder
		errs []error
	)
	stored := make([]*storedCall, 0, len(payloads))
	for _, payload := range payloads {
		s, err := d.decode(payload)
		if err != nil {
			errs = append(errs, fmt.Errorf("store: a stored call: %w: %w", ErrDamaged, err))
			continue
		}
		stored = append(stored, s)
	}
	return stored, errors.Join(errs...)
}

// EncodeSession lays out a session's record, DecodeSession reads it.
func EncodeSession(s *record.Session) ([]byte, error) { return appendSessionRecord(nil, s) }

// DecodeSession reads what EncodeSession wrote.
func DecodeSession(b []byte) (*record.Session, error) {
	r := reader{b: b}
	s := r.sessionRecord()
	if r.err != nil {
		return nil, fmt.Errorf("store: a stored session: %w: %w", ErrDamaged, r.err)
	}
	return s, nil
}

// Labels are what lists are filtered by, beside the status.
type Labels struct{ Group, Run, Env string }

// LabelsOf returns a session's labels, "" for those that it does not have.
func LabelsOf(s *record.Session) (l Labels) {
	if s.Spec.Group != nil {
		l.Group = s.Spec.Group.ID
	}
	if s.Spec.Env != nil {
		l.Env = s.Spec.Env.ID
	}
	var run struct {
		ID string `json:"id"`
	}
	// A run whose id is no string is not found by any filter; the control API refuses such runs.
	if json.Unmarshal(s.Spec.Run, &run) == nil {
		l.Run = run.ID
	}
	return l
}

// Cursor names a place in a list of sessions: behind a session, whether or not that is still there.
type Cursor struct {
	Created time.Time
	ID      string
}

func (c Cursor) String() string {
	return fmt.Sprintf("%d.%d.%s", c.Created.Unix(), c.Created.Nanosecond(), c.ID)
}

// ParseCursor reads what String wrote; ErrBadCursor when it is something else.
func ParseCursor(text string) (Cursor, error) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return Cursor{}, fmt.Errorf("store: %q: %w", text, ErrBadCursor)
	}
	seconds, err1 := strconv.ParseInt(parts[0], 10, 64)
	nanos, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil {
		return Cursor{}, fmt.Errorf("store: %q: %w", text, ErrBadCursor)
	}
	return Cursor{Created: time.Unix(seconds, nanos), ID: parts[2]}, nil
}
