package control

import (
	"errors"
	"math"
	"net/http"

	"captureproxy/internal/record"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// GroupStatus is how the sessions of one task did.
type GroupStatus struct {
	GroupID    string         `json:"group_id"`
	Size       *int           `json:"size"` // as planned, null when nobody said
	Sessions   []GroupSession `json:"sessions"`
	MeanReward *float64       `json:"mean_reward"` // of the scored sessions, null without any
	StdReward  *float64       `json:"std_reward"`
	PassRate   *float64       `json:"pass_rate"` // share of them with a reward of 1 or more
	NTrainable int            `json:"n_trainable"`
}

// GroupSession is one session of a group.
type GroupSession struct {
	SessionID string        `json:"session_id"`
	Status    record.Status `json:"status"`
	Reward    *float64      `json:"reward"`
	Trainable bool          `json:"trainable"`
}

func (a *API) showGroup(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	ctx, id := r.Context(), r.PathValue("id")
	recs, _, err := a.Store.Sessions(ctx, store.Filter{Group: id})
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	g := GroupStatus{GroupID: id, Sessions: []GroupSession{}}
	if session.ValidID(id) { // a session without a group is a group of its own
		if rec, err := a.Store.Session(ctx, id); err == nil && rec.Spec.Group == nil {
			one := 1
			recs, g.Size = append(recs, rec), &one
		} else if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if len(recs) == 0 {
		return &Error{Status: http.StatusNotFound, Message: "no session belongs to this group"}
	}
	standings, err := a.Sessions.StandAll(ctx, recs)
	if err != nil {
		return err
	}
	var rewards []float64
	for i := len(recs) - 1; i >= 0; i-- { // oldest first
		v := standings[i]
		d, err := a.derive(ctx, v)
		if err != nil {
			return err
		}
		g.add(v.Record, d)
		if v.Record.Reward != nil {
			rewards = append(rewards, *v.Record.Reward)
		}
	}
	g.Score(rewards)
	writeJSON(w, g)
	return nil
}

func (g *GroupStatus) add(rec *record.Session, d derived) {
	g.Sessions = append(g.Sessions, GroupSession{SessionID: rec.ID, Status: rec.Status, Reward: rec.Reward, Trainable: d.trainable})
	if d.trainable {
		g.NTrainable++
	}
	if group := rec.Spec.Group; group != nil && group.Size != nil && (g.Size == nil || *group.Size > *g.Size) {
		g.Size = group.Size
	}
}

// Score computes mean, standard deviation (of the group itself, not of what it is a sample of) and pass rate.
func (g *GroupStatus) Score(rewards []float64) {
	if len(rewards) == 0 {
		return
	}
	n, sum, passed := float64(len(rewards)), 0.0, 0.0
	for _, r := range rewards {
		sum += r
		if r >= 1 {
			passed++
		}
	}
	mean, squares := sum/n, 0.0
	for _, r := range rewards {
		squares += (r - mean) * (r - mean)
	}
	std, rate := math.Sqrt(squares/n), passed/n
	g.MeanReward, g.StdReward, g.PassRate = &mean, &std, &rate
}
