package format

import (
	"cmp"
	"fmt"
	"math"

	"captureproxy/export"
)

// Groups holds the rewards of a whole export, by group. A session without a group is a group of its own.
type Groups struct {
	byID map[string]*group
}

type group struct {
	rewards   map[string]float64 // by session
	order     []string           // sums depend on the order of their terms, in the last digit
	size      int                // as planned, 0 when nobody said
	mean, std float64
	measured  bool
}

// NewGroups returns none.
func NewGroups() *Groups { return &Groups{byID: map[string]*group{}} }

// Add takes a document into account, if it may be trained on and was scored.
func (g *Groups) Add(r *export.Rollout) {
	if r.Reward == nil || shut(r, false) != "" {
		return
	}
	id := groupID(r)
	at := g.byID[id]
	if at == nil {
		at = &group{rewards: map[string]float64{}}
		g.byID[id] = at
	}
	if r.Group != nil && r.Group.Size != nil {
		at.size = *r.Group.Size
	}
	if _, have := at.rewards[r.SessionID]; !have {
		at.order = append(at.order, r.SessionID)
	}
	at.rewards[r.SessionID] = *r.Reward
	at.measured = false
}

// groupID names a document's group.
func groupID(r *export.Rollout) string {
	if r.Group != nil {
		return r.Group.ID
	}
	return r.SessionID
}

// baseline returns the mean and the population's standard deviation over the sessions of a document's group.
func (g *Groups) baseline(r *export.Rollout) (mean, std float64, err error) {
	at := g.byID[groupID(r)]
	if at == nil {
		return 0, 0, errChanged(r)
	}
	if reward, ok := at.rewards[r.SessionID]; !ok || r.Reward == nil || reward != *r.Reward {
		return 0, 0, errChanged(r)
	}
	if !at.measured {
		at.measure()
	}
	return at.mean, at.std, nil
}

func errChanged(r *export.Rollout) error {
	return fmt.Errorf("session %s was scored or closed while its group was counted: export again", r.SessionID)
}

func (g *group) measure() {
	sum, n := 0.0, float64(len(g.order))
	for _, id := range g.order {
		sum += g.rewards[id]
	}
	g.mean = sum / n
	squares := 0.0
	for _, id := range g.order {
		off := g.rewards[id] - g.mean
		squares += off * off
	}
	g.std = math.Sqrt(squares / n)
	g.measured = true
}

// incomplete counts the groups of which fewer sessions are here than were planned.
func (g *Groups) incomplete() int {
	n := 0
	for _, at := range g.byID {
		if len(at.rewards) < cmp.Or(at.size, 1) {
			n++
		}
	}
	return n
}
