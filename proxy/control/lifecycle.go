package control

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/events"
	"captureproxy/proxy/session"
)

// Patience of a close with calls under way.
const (
	defaultWait = 30 * time.Second
	maxWait     = time.Hour
)

// CloseRequest says how a session ended. All of it is optional.
type CloseRequest struct {
	Outcome  *Outcome                             `json:"outcome,omitempty"`
	Reward   Optional[float64]                    `json:"reward,omitzero"`
	Rewards  Optional[map[string]*float64]        `json:"rewards,omitzero"`
	Metadata Optional[map[string]json.RawMessage] `json:"metadata,omitzero"`
}

// Outcome is what a caller claims; whether it stands is decided by what was recorded.
type Outcome struct {
	Status string `json:"status"`          // completed or failed
	Error  string `json:"error,omitempty"` // "Type: message", for failed
}

func (o *Outcome) check() error {
	switch {
	case o == nil:
		return nil
	case o.Status != string(record.Completed) && o.Status != string(record.Failed):
		return invalid("outcome.status", "it is completed or failed")
	case o.Error != "" && o.Status != string(record.Failed):
		return invalid("outcome.error", "it goes with status failed")
	}
	return nil
}

func (o *Outcome) claim() session.Claim {
	if o == nil {
		return session.Claim{}
	}
	return session.Claim{Status: record.Status(o.Status), Error: o.Error}
}

func (a *API) closeSession(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, append([]string{"wait"}, documentQuery...)...)
	if err != nil {
		return err
	}
	wait, err := waitOf(q)
	if err != nil {
		return err
	}
	options, err := a.documentOptions(q)
	if err != nil {
		return err
	}
	var req CloseRequest
	if err := decode(w, r, &req, true); err != nil {
		return err
	}
	if err := req.Outcome.check(); err != nil {
		return err
	}
	ctx, id := r.Context(), r.PathValue("id")
	live, err := a.Sessions.Find(ctx, id)
	if err == nil {
		// A caller that hangs up comes back for the document; until then the session is closed as asked.
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
		defer cancel()
		_, err = live.Close(patience, req.Outcome.claim(), func(s *record.Session) {
			mergeScores(s, req.Reward, req.Rewards, req.Metadata)
		})
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusServiceUnavailable, Message: "another request is closing this session and waits for its calls: try again"}
	case err != nil && !errors.Is(err, session.ErrEnded): // one that has ended gives its document once more
		return err
	}
	doc, err := a.document(ctx, id, options)
	if err != nil {
		return err
	}
	if live == nil && a.Redeliver != nil { // it had ended: to close it again asks for what did not work the first time
		if rec, err := a.Store.Session(ctx, id); err == nil && rec.Webhook == record.DeliveryFailed {
			a.Redeliver(rec)
		}
	}
	if a.OutDir != "" {
		if err := saveDocument(a.OutDir, doc); err != nil {
			a.Logger.Error("a document could not be written to --out-dir: it is in the store, close the session again to repeat",
				zap.String("request", w.Header().Get("X-Request-Id")), errField(err, id))
		}
	}
	return sendDocument(w, doc)
}

// waitOf reads how long a close waits for calls under way, in seconds (30) or spelled out (1m30s).
func waitOf(q url.Values) (time.Duration, error) {
	text := q.Get("wait")
	if text == "" {
		return defaultWait, nil
	}
	wait, err := time.ParseDuration(text)
	if seconds, numeric := strconv.ParseFloat(text, 64); numeric == nil {
		wait, err = time.Duration(min(seconds, 2*maxWait.Seconds())*float64(time.Second)), nil
	}
	if err != nil || !(wait >= 0 && wait <= maxWait) {
		return 0, invalid("wait", "it is a number of seconds, %d at most", int(maxWait.Seconds()))
	}
	return wait, nil
}

// CancelRequest says why a session is given up.
type CancelRequest struct {
	Reason string `json:"reason,omitempty"`
}

// teardown bounds how long a cancelled session's calls may take to wind up.
const teardown = 15 * time.Second

func (a *API) cancelSession(w http.ResponseWriter, r *http.Request) error {
	var req CancelRequest
	if err := decode(w, r, &req, true); err != nil {
		return err
	}
	id := r.PathValue("id")
	live, err := a.Sessions.Find(r.Context(), id)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), teardown)
		defer cancel()
		_, err = live.Cancel(ctx, req.Reason)
	}
	if err != nil && !errors.Is(err, session.ErrEnded) {
		return err
	}
	status, err := a.status(r.Context(), id)
	if err != nil {
		return err
	}
	if status.Status != record.SessionCanceled {
		return &Error{Status: http.StatusConflict, Message: "the session has ended already: it is " + string(status.Status)}
	}
	writeJSON(w, status)
	return nil
}

// ScoreRequest changes what is said about a session, also after its end. Later keys win, null removes.
type ScoreRequest struct {
	Reward   Optional[float64]                    `json:"reward,omitzero"`
	Rewards  Optional[map[string]*float64]        `json:"rewards,omitzero"`
	Metadata Optional[map[string]json.RawMessage] `json:"metadata,omitzero"`
	Run      Optional[RunPatch]                   `json:"run,omitzero"`
}

// RunPatch changes a run; what it does not name stays.
type RunPatch struct {
	Kind     Optional[string]           `json:"kind,omitzero"`
	ID       Optional[string]           `json:"id,omitzero"`
	Metadata Optional[RunMetadataPatch] `json:"metadata,omitzero"`
}

// RunMetadataPatch changes a run's metadata.
type RunMetadataPatch struct {
	Kind Optional[string] `json:"kind,omitzero"`
	Step Optional[Whole]  `json:"step,omitzero"`
}

// Scored is what is said about a session now.
type Scored struct {
	SessionID string                     `json:"session_id"`
	Status    record.Status              `json:"status"`
	Reward    *float64                   `json:"reward"`
	Rewards   map[string]float64         `json:"rewards"`
	Metadata  map[string]json.RawMessage `json:"metadata"`
	Run       json.RawMessage            `json:"run"`
}

func (a *API) scoreSession(w http.ResponseWriter, r *http.Request) error {
	var req ScoreRequest
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	id := r.PathValue("id")
	if !session.ValidID(id) {
		return session.ErrUnknown
	}
	rec, err := a.Sessions.Update(context.WithoutCancel(r.Context()), id, func(s *record.Session) error {
		run, err := applyRun(s.Spec.Run, req.Run)
		if err != nil {
			return err
		}
		s.Spec.Run = run
		mergeScores(s, req.Reward, req.Rewards, req.Metadata)
		return nil
	})
	if err != nil {
		return err
	}
	a.Sessions.Announce(events.Scored, rec)
	scored := Scored{SessionID: rec.ID, Status: rec.Status, Reward: rec.Reward, Rewards: rec.Rewards, Metadata: rec.Metadata, Run: rec.Spec.Run}
	if scored.Rewards == nil {
		scored.Rewards = map[string]float64{}
	}
	if scored.Metadata == nil {
		scored.Metadata = map[string]json.RawMessage{}
	}
	writeJSON(w, scored)
	return nil
}

// mergeScores puts new values over those that a record has. The record's own maps stay as they are: others read them.
func mergeScores(s *record.Session, reward Optional[float64], rewards Optional[map[string]*float64], metadata Optional[map[string]json.RawMessage]) {
	if reward.Set {
		s.Reward = reward.Value
	}
	switch {
	case rewards.Set && rewards.Value == nil:
		s.Rewards = nil
	case rewards.Set:
		s.Rewards = cloned(s.Rewards)
		for name, value := range *rewards.Value {
			if value == nil {
				delete(s.Rewards, name)
			} else {
				s.Rewards[name] = *value
			}
		}
	}
	switch {
	case metadata.Set && metadata.Value == nil:
		s.Metadata = nil
	case metadata.Set:
		s.Metadata = cloned(s.Metadata)
		for name, value := range *metadata.Value {
			if string(value) == "null" {
				delete(s.Metadata, name)
			} else {
				s.Metadata[name] = value
			}
		}
	}
}

func cloned[M ~map[K]V, K comparable, V any](m M) M {
	if m == nil {
		return M{}
	}
	return maps.Clone(m)
}

func (a *API) deleteSession(w http.ResponseWriter, r *http.Request) error {
	var none struct{}
	if err := decode(w, r, &none, true); err != nil {
		return err
	}
	id := r.PathValue("id")
	if !session.ValidID(id) {
		return session.ErrUnknown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), teardown)
	defer cancel()
	if err := a.Sessions.Delete(ctx, id); err != nil {
		return err
	}
	writeJSON(w, Deleted{Deleted: true})
	return nil
}

// Deleted answers a deletion.
type Deleted struct {
	Deleted bool `json:"deleted"`
}
