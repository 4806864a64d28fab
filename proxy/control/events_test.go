package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"captureproxy/proxy/events"
)

// stream is an event stream that is being read.
type stream struct {
	t    *testing.T
	in   *bufio.Reader
	stop func()
	last string // id
	text string // data of the last event
}

func (r *rig) follow(query, after string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/events"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := r.client.HTTP.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("GET /events%s: %d %v", query, resp.StatusCode, resp.Header)
	}
	s := &stream{t: r.t, in: bufio.NewReader(resp.Body), stop: func() { cancel(); resp.Body.Close() }}
	r.t.Cleanup(s.stop)
	return s
}

// next reads one event; false at the stream's end.
func (s *stream) next() (events.Event, bool) {
	s.t.Helper()
	var e events.Event
	name := ""
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case field == "id":
			s.last = value
		case field == "event":
			name = value
		case field == "data":
			s.text = value
			if err := json.Unmarshal([]byte(value), &e); err != nil || string(e.Kind) != name {
				s.t.Fatalf("event %s with data %s: %v", name, value, err)
			}
		case line == "\n" && name != "":
			return e, true
		}
	}
}

func (s *stream) want(kind events.Kind, check func(events.Event) bool) events.Event {
	s.t.Helper()
	e, ok := s.next()
	if !ok || e.Kind != kind || check != nil && !check(e) {
		s.t.Fatalf("event %s (open %t), want %s as described", s.text, ok, kind)
	}
	return e
}

func TestEvents(t *testing.T) {
	r := newRig(t, setup{})
	s := r.follow("", "")
	d := describedBy(t, r)
	schema := ref{"#/components/schemas/Event"}
	want := func(kind events.Kind, check func(events.Event) bool) {
		t.Helper()
		s.want(kind, check)
		if err := d.check(schema, s.text); err != nil {
			t.Errorf("%s does not fit its schema: %v", s.text, err)
		}
	}
	r.create("a", `,"group":{"id":"g"},"run":{"kind":"eval","id":"r"}`)
	want(events.SessionOpened, func(e events.Event) bool {
		return e.Session == "a" && e.Group == "g" && e.Run == "r" && e.Status == "running"
	})
	r.say("a", "one")
	want(events.CallStarted, func(e events.Event) bool { return e.Call == 1 && e.Calls == 1 && e.InFlight == 1 })
	want(events.TurnRecorded, func(e events.Event) bool {
		return e.Call == 1 && e.Outcome == "complete" && e.HTTPStatus == 200 && e.NPrompt > 0 && e.NSampled > 0 && e.Turns == 1 && e.InFlight == 0
	})
	r.say("a", "[[fault:status 500]]")
	want(events.CallStarted, func(e events.Event) bool { return e.Call == 2 })
	want(events.TurnRecorded, func(e events.Event) bool { return e.Call == 2 && e.Outcome == "upstream_error" && e.Turns == 1 })
	r.say("a", "two")
	want(events.CallStarted, nil)
	want(events.TurnRecorded, nil)
	r.want(200, "POST", "/sessions/a/score", `{"reward":0}`)
	want(events.Scored, func(e events.Event) bool { return e.Reward != nil && *e.Reward == 0 && e.Session == "a" })
	r.want(200, "POST", "/sessions/a/close", ``)
	want(events.SessionEnded, func(e events.Event) bool { return e.Status == "completed" && e.Error == "" })
	r.want(200, "POST", "/sessions/a/score", `{"reward":1.5}`)
	want(events.Scored, func(e events.Event) bool { return *e.Reward == 1.5 && e.Status == "completed" })
	r.want(200, "DELETE", "/sessions/a", ``)
	want(events.SessionDeleted, func(e events.Event) bool { return e.Session == "a" })
}

func TestEventsResumeAndFilter(t *testing.T) {
	r := newRig(t, setup{})
	all := r.follow("", "")
	one := r.follow("?session=b", "")
	r.create("a", "")
	r.create("b", "")
	all.want(events.SessionOpened, func(e events.Event) bool { return e.Session == "a" })
	one.want(events.SessionOpened, func(e events.Event) bool { return e.Session == "b" })
	all.stop()
	r.create("c", `,"group":{"id":"g"}`)
	back := r.follow("", all.last)
	for _, id := range []string{"b", "c"} {
		back.want(events.SessionOpened, func(e events.Event) bool { return e.Session == id })
	}
	grouped := r.follow("?group=g", all.last)
	grouped.want(events.SessionOpened, func(e events.Event) bool { return e.Session == "c" })
	unknown := r.follow("", "another-7")
	unknown.want(events.Gap, nil)
	if a := r.raw("GET", "/events?kind=x", ""); a.status != 400 {
		t.Errorf("an unknown parameter: %d", a.status)
	}
	r.reg.Drain(t.Context())
	if e, more := back.next(); more {
		t.Errorf("after the proxy has drained: %v", e)
	}
}

// A call that could not be recorded is no turn.
func TestNoEventForALostTurn(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	s := r.follow("?session=a", "")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.say("a", "one")
	s.want(events.CallStarted, nil)
	r.reg.Drain(t.Context())
	if e, more := s.next(); more {
		t.Errorf("the call could not be recorded: %v", e)
	}
}
