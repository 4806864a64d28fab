package control

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// Pages of the list.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// SessionList is one page of the run index, newest first.
type SessionList struct {
	Sessions []Summary `json:"sessions"`
	Next     string    `json:"next,omitempty"` // ?after= of the next page, "" on the last
	// Damage says that some sessions are missing because their record cannot be read any more.
	Damage string `json:"damage,omitempty"`
}

// Summary is one line about a session.
type Summary struct {
	SessionID      string                     `json:"session_id"`
	Status         record.Status              `json:"status"`
	Turns          int                        `json:"turns"`
	Roots          int                        `json:"roots"`
	IdleS          *float64                   `json:"idle_s"` // null once the session has ended
	UpstreamErrors int                        `json:"upstream_errors"`
	InFlight       int                        `json:"in_flight"`
	NTrainable     int                        `json:"n_trainable_tokens"`
	Trainable      bool                       `json:"trainable"`
	Harness        *string                    `json:"harness"` // of the first call that named one
	CreatedAt      export.Time                `json:"created_at"`
	ClosedAt       export.Time                `json:"closed_at"`
	Error          *string                    `json:"error"`
	Reward         *float64                   `json:"reward"`
	Group          *record.Group              `json:"group"`
	Run            json.RawMessage            `json:"run"`
	Env            *record.Env                `json:"env"`
	Metadata       map[string]json.RawMessage `json:"metadata"`
}

// Status is all about a session but its turns.
type Status struct {
	Summary
	Rewards         map[string]float64 `json:"rewards"`
	Purpose         record.Purpose     `json:"purpose"`
	CaptureLevel    *record.Level      `json:"capture_level"`
	RolloutType     *string            `json:"rollout_type"`
	LLMURL          *string            `json:"llm_url"`
	Model           *string            `json:"model"`
	MaxModelCalls   *int               `json:"max_model_calls"`
	NTurns          int                `json:"n_turns"`
	NRoots          int                `json:"n_roots"`
	NLeaves         int                `json:"n_leaves"`
	NForks          int                `json:"n_forks"`
	NDiscarded      int                `json:"n_discarded"`
	NFailedCalls    int                `json:"n_failed_calls"`
	BudgetStopCount int                `json:"budget_stop_count"`
	CaptureFailed   *string            `json:"capture_failed"`
	// KeyStored says whether the session's own api_key survives the proxy, encrypted; null when it brought none.
	KeyStored *bool `json:"key_stored"`
	// Webhook says whether the document has reached --webhook; null while the session runs, or when there was none.
	Webhook *record.Delivery `json:"webhook"`
}

func (a *API) listSessions(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r)
	if err != nil {
		return err
	}
	var list SessionList
	recs, next, err := a.Store.Sessions(r.Context(), f)
	switch {
	case errors.Is(err, store.ErrBadCursor):
		return invalid("after", "it is the `next` of the page before")
	case errors.Is(err, store.ErrDamaged):
		list.Damage = err.Error()
	case err != nil:
		return err
	}
	standings, err := a.Sessions.StandAll(r.Context(), recs)
	if err != nil {
		return err
	}
	list.Next, list.Sessions = next, make([]Summary, 0, len(recs))
	for i := range recs {
		v := standings[i]
		d, err := a.derive(r.Context(), v)
		switch {
		case errors.Is(err, store.ErrNotFound): // deleted since
			continue
		case err != nil:
			return err
		}
		list.Sessions = append(list.Sessions, summary(v, d))
	}
	writeJSON(w, list)
	return nil
}

var statuses = []string{"", string(record.Running), string(record.Completed), string(record.Failed), string(record.SessionCanceled), string(record.Expired)}

func filterOf(r *http.Request) (store.Filter, error) {
	q, err := query(r, "status", "group", "run", "env", "since", "limit", "after")
	if err != nil {
		return store.Filter{}, err
	}
	f := store.Filter{
		Status: q.Get("status"), Group: q.Get("group"), Run: q.Get("run"), Env: q.Get("env"), After: q.Get("after"), Limit: defaultLimit,
	}
	if !slices.Contains(statuses, f.Status) {
		return f, invalid("status", "it is running, completed, failed, cancelled or expired")
	}
	if text := q.Get("since"); text != "" {
		if f.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return f, invalid("since", "it is a time such as 2026-01-31T12:00:00Z")
		}
	}
	if text := q.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 || f.Limit > maxLimit {
			return f, invalid("limit", "it is a whole number from 1 to %d", maxLimit)
		}
	}
	return f, nil
}

func (a *API) showSession(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	status, err := a.status(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, status)
	return nil
}

func (a *API) status(ctx context.Context, id string) (*Status, error) {
	v, err := a.Sessions.Stand(ctx, id)
	if err != nil {
		return nil, err
	}
	d, err := a.derive(ctx, v)
	if err != nil {
		return nil, err
	}
	rec, s := v.Record, d.stats
	status := &Status{
		Summary: summary(v, d), Rewards: rec.Rewards, Purpose: rec.Spec.Purpose, CaptureLevel: orNil(rec.CaptureLevel), RolloutType: rolloutType(rec),
		LLMURL: orNil(rec.Engine.URL), Model: orNil(modelOf(rec)), MaxModelCalls: rec.Spec.MaxModelCalls,
		NTurns: s.Turns, NRoots: s.Roots, NLeaves: s.Leaves, NForks: s.Forks, NDiscarded: s.Discarded, NFailedCalls: s.FailedCalls,
		BudgetStopCount: d.budgetStops, CaptureFailed: orNil(rec.CaptureFailed), KeyStored: keyStored(rec),
		Webhook: orNil(rec.Webhook),
	}
	if status.Rewards == nil {
		status.Rewards = map[string]float64{}
	}
	return status, nil
}

func summary(v session.Standing, d derived) Summary {
	rec := v.Record
	s := Summary{
		SessionID: rec.ID, Status: rec.Status, Turns: d.stats.Turns, Roots: d.stats.Roots, UpstreamErrors: d.upstreamErrors,
		NTrainable: d.stats.TrainableTokens, Trainable: d.trainable, Harness: orNil(d.harness), CreatedAt: export.Time{Time: rec.CreatedAt}, Reward: rec.Reward, Group: rec.Spec.Group, Run: rec.Spec.Run, Env: rec.Spec.Env, Metadata: rec.Metadata,
	}
	if rec.ClosedAt != nil {
		s.ClosedAt = export.Time{Time: *rec.ClosedAt}
	}
	if rec.Outcome != nil {
		s.Error = rec.Outcome.Error
	}
	if v.Counts != nil {
		idle := math.Round(v.Idle.Seconds()*1000) / 1000
		s.IdleS, s.InFlight = &idle, v.Counts.InFlight
	}
	if s.Metadata == nil {
		s.Metadata = map[string]json.RawMessage{}
	}
	return s
}
