package control_test

import (
	"slices"
	"strings"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
	"captureproxy/validate"
)

// What cannot be written has not happened: nothing is left behind, and the same request works once the disk does.
func TestDiskFull(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.say("a", "hi")
	r.disk.full.Store(true)
	for _, call := range []struct{ path, body string }{
		{"/sessions", `{"session_id":"b"}`}, {"/sessions/a/score", `{"reward":1}`}, {"/sessions/a/close", ``}, {"/sessions/a/cancel", ``},
	} {
		a := r.want(503, "POST", call.path, call.body)
		if !strings.Contains(a.message(), "no space left") || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", call.path, a.header, a.body)
		}
	}
	if log := r.logs.String(); !strings.Contains(log, "no space left") || strings.Contains(log, `session a`) {
		t.Errorf("log: %s", log)
	}
	if s := read[control.Status](t, r.want(200, "GET", "/sessions/a", "")); s.Reward != nil || s.Status != record.Running {
		t.Errorf("after the failed writes: %+v", s)
	}
	r.want(404, "GET", "/sessions/b", "")
	if status := r.say("b", "hi"); status != 401 {
		t.Errorf("a call of the session that was not created: %d", status)
	}
	r.disk.full.Store(false)
	r.create("b", "")
	if status := r.say("b", "hi"); status != 200 {
		t.Errorf("a call after the disk works again: %d", status)
	}
	if doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/b/close", "")); doc.Status != record.Completed {
		t.Errorf("closed as %s", doc.Status)
	}
}

// Calls that can no longer be read are said in the document, which is not to be trained on.
func TestDamagedLog(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.say("a", "one")
	r.say("a", "two")
	r.disk.damaged.Store(true)
	doc := read[export.Rollout](t, r.want(200, "GET", "/sessions/a/rollout", ""))
	said := slices.ContainsFunc(doc.Validation, func(f validate.Finding) bool { return f.Code == validate.CaptureFailed })
	if len(doc.Turns) != 1 || doc.Trainable || !said {
		t.Errorf("%d turns, trainable %v, %v", len(doc.Turns), doc.Trainable, doc.Validation)
	}
	if list := read[control.SessionList](t, r.want(200, "GET", "/sessions", "")); list.Sessions[0].Turns != 1 {
		t.Errorf("%+v", list)
	}
}
