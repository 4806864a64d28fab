package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
	"captureproxy/proxy/session"
)

// Documents are rollouts that were read from disk.
type Documents struct {
	keys []string // newest first
	byID map[string]*export.Rollout
}

// NewDocuments takes documents. Each has an address of its own: its session's id where that is one, and the only one.
func NewDocuments(docs []*export.Rollout) *Documents {
	d := &Documents{byID: map[string]*export.Rollout{}}
	for i, doc := range docs {
		key := doc.SessionID
		if _, taken := d.byID[key]; taken || !session.ValidID(key) {
			key = "document-" + strconv.Itoa(i+1)
		}
		for d.byID[key] != nil {
			key += "-" + strconv.Itoa(i+1)
		}
		d.keys, d.byID[key] = append(d.keys, key), doc
	}
	slices.SortStableFunc(d.keys, func(a, b string) int { return d.byID[b].CreatedAt.Compare(d.byID[a].CreatedAt.Time) })
	return d
}

// Keys name the documents, newest first.
func (d *Documents) Keys() []string { return slices.Clone(d.keys) }

// List implements Source.
func (d *Documents) List(_ context.Context, o control.ListOptions) (*control.SessionList, error) {
	list := &control.SessionList{Sessions: []control.Summary{}}
	started, limit := o.After == "", cmp.Or(o.Limit, 100)
	for _, key := range d.keys {
		doc := d.byID[key]
		switch {
		case !started:
			started = key == o.After
		case !chosen(doc, o):
		case len(list.Sessions) == limit:
			list.Next = list.Sessions[limit-1].SessionID
			return list, nil
		default:
			list.Sessions = append(list.Sessions, summaryOf(key, doc))
		}
	}
	return list, nil
}

func chosen(doc *export.Rollout, o control.ListOptions) bool {
	return (o.Status == "" || string(doc.Status) == o.Status) &&
		(o.Group == "" || doc.Group != nil && doc.Group.ID == o.Group) &&
		(o.Env == "" || doc.Env != nil && (doc.Env.ID == o.Env || doc.Env.Name == o.Env)) &&
		(o.Run == "" || runID(doc.Run) == o.Run) &&
		!doc.CreatedAt.Before(o.Since)
}

func runID(run json.RawMessage) string {
	var r struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(run, &r) != nil { // a run of another form has no id to look for
		return ""
	}
	return r.ID
}

func summaryOf(key string, doc *export.Rollout) control.Summary {
	s := control.Summary{
		SessionID: key, Status: doc.Status, Turns: doc.Stats.Turns, Roots: doc.Stats.Roots, NTrainable: doc.Stats.TrainableTokens,
		Trainable: doc.Trainable, CreatedAt: doc.CreatedAt, ClosedAt: doc.ClosedAt, Reward: doc.Reward, Run: doc.Run, Metadata: doc.Metadata,
	}
	for _, f := range doc.FailedCalls {
		if f.Outcome == record.UpstreamError {
			s.UpstreamErrors++
		}
	}
	if doc.Outcome != nil {
		s.Error = doc.Outcome.Error
	}
	if doc.Group != nil {
		s.Group = &record.Group{ID: doc.Group.ID, Size: doc.Group.Size}
	}
	if doc.Env != nil {
		s.Env = &record.Env{ID: doc.Env.ID, Name: doc.Env.Name}
	}
	if name := harnessOf(doc); name != "" {
		s.Harness = &name
	}
	return s
}

// Status implements Source.
func (d *Documents) Status(_ context.Context, id string) (*control.Status, error) {
	doc, err := d.find(id)
	if err != nil {
		return nil, err
	}
	level, kind := doc.CaptureLevel, doc.RolloutType
	return &control.Status{
		Summary: summaryOf(id, doc), Rewards: doc.Rewards, CaptureLevel: &level, RolloutType: &kind, LLMURL: &doc.Engine.URL, Model: &doc.Engine.Model,
		NTurns: doc.Stats.Turns, NRoots: doc.Stats.Roots, NLeaves: doc.Stats.Leaves, NForks: doc.Stats.Forks, NDiscarded: doc.Stats.Discarded,
		NFailedCalls: doc.Stats.FailedCalls, BudgetStopCount: doc.BudgetStops,
	}, nil
}

// Group implements Source.
func (d *Documents) Group(_ context.Context, id string) (*control.GroupStatus, error) {
	g := &control.GroupStatus{GroupID: id, Sessions: []control.GroupSession{}}
	var rewards []float64
	for _, key := range slices.Backward(d.keys) { // oldest first
		doc := d.byID[key]
		own := doc.Group == nil && key == id // a session without a group is a group of its own
		if !own && (doc.Group == nil || doc.Group.ID != id) {
			continue
		}
		g.Sessions = append(g.Sessions, control.GroupSession{SessionID: key, Status: doc.Status, Reward: doc.Reward, Trainable: doc.Trainable})
		if doc.Trainable {
			g.NTrainable++
		}
		if doc.Reward != nil {
			rewards = append(rewards, *doc.Reward)
		}
		if doc.Group != nil && doc.Group.Size != nil && (g.Size == nil || *doc.Group.Size > *g.Size) {
			g.Size = doc.Group.Size
		}
	}
	if len(g.Sessions) == 0 {
		return nil, &control.Error{Status: http.StatusNotFound, Message: "no session belongs to this group"}
	}
	g.Score(rewards)
	return g, nil
}

// Document implements Source.
func (d *Documents) Document(_ context.Context, id string) (*export.Rollout, error) {
	return d.find(id)
}

// Health implements Source: there is no proxy.
func (d *Documents) Health(context.Context) (*control.Health, error) { return nil, nil }

func (d *Documents) find(id string) (*export.Rollout, error) {
	if doc := d.byID[id]; doc != nil {
		return doc, nil
	}
	return nil, &control.Error{Status: http.StatusNotFound, Message: "no document has this id: see the list of those that were given"}
}
