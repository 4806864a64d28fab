package control_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

func TestClient(t *testing.T) {
	r := newRig(t, setup{})
	ctx, c := t.Context(), r.client
	id, calls := "a", control.Whole(4)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	created, err := c.Create(ctx, control.CreateRequest{
		SessionID: &id, Purpose: record.PurposeTrain, MaxModelCalls: &calls, Group: &control.Group{ID: "g"}, Run: &control.Run{Kind: "train", ID: "r"},
		Metadata: map[string]json.RawMessage{"task": json.RawMessage(`"t"`)},
	})
	must(err)
	if created.SessionID != id || *created.MaxModelCalls != 4 {
		t.Errorf("%+v", created)
	}
	must(c.SetPolicy(ctx, 3))
	r.say(id, "hi")
	status, err := c.Status(ctx, id)
	must(err)
	if status.NTurns != 1 || status.Turns != 1 || status.Status != record.Running {
		t.Errorf("%+v", status)
	}
	list, err := c.List(ctx, control.ListOptions{Group: "g", Status: "running", Since: status.CreatedAt.Time, Limit: 5})
	must(err)
	if len(list.Sessions) != 1 {
		t.Errorf("%+v", list)
	}
	text, err := c.Close(ctx, id, control.CloseRequest{Outcome: &control.Outcome{Status: "completed"}, Reward: control.Some(0.5)}, time.Second,
		control.DocumentOptions{IncludeMessages: true})
	must(err)
	doc, err := export.Read(bytes.NewReader(text))
	must(err)
	if *doc.Reward != 0.5 || len(doc.Turns[0].RequestMessages) != 1 || *doc.Policy.Start != 3 {
		t.Errorf("%s", text)
	}
	scored, err := c.Score(ctx, id, control.ScoreRequest{Reward: control.Null[float64](), Run: control.Some(control.RunPatch{ID: control.Some("r2")})})
	must(err)
	if scored.Reward != nil || string(scored.Run) != `{"kind":"train","id":"r2"}` {
		t.Errorf("%+v", scored)
	}
	if doc, err = c.ReadRollout(ctx, id, control.DocumentOptions{Shared: "once", IncludeDiscarded: true}); err != nil || doc.Shared != record.SharedOnce || doc.Reward != nil {
		t.Errorf("%+v %v", doc, err)
	}
	entries, err := c.TraceEntries(ctx, id)
	must(err)
	group, err := c.Group(ctx, "g")
	must(err)
	health, err := c.Health(ctx)
	must(err)
	if len(entries.Entries) != 1 || len(group.Sessions) != 1 || health.Status != "ok" {
		t.Errorf("%+v %+v %+v", entries, group, health)
	}
	other := "b"
	_, err = c.Create(ctx, control.CreateRequest{SessionID: &other})
	must(err)
	cancelled, err := c.Cancel(ctx, other, "enough")
	must(err)
	if *cancelled.Error != "enough" {
		t.Errorf("%+v", cancelled)
	}
	must(c.Delete(ctx, other))

	var e *control.Error
	if _, err = c.Status(ctx, other); !errors.As(err, &e) || e.Status != 404 || e.Type != "not_found_error" {
		t.Errorf("an unknown session: %v", err)
	}
	if _, err = c.Create(ctx, control.CreateRequest{Continuity: "x"}); !errors.As(err, &e) || e.Field != "continuity" || e.Error() != "continuity: it is auto, on or off" {
		t.Errorf("an invalid field: %v", err)
	}
	stranger := &control.Client{URL: r.engine, HTTP: c.HTTP}
	if _, err = stranger.Status(ctx, "a"); !errors.As(err, &e) || e.Status != 404 {
		t.Errorf("at something else: %v", err)
	}
	if _, err = (&control.Client{URL: "http://127.0.0.1:1", HTTP: c.HTTP}).Health(ctx); err == nil || errors.As(err, &e) && e.Status == 0 {
		t.Errorf("at nothing: %v", err)
	}
}
