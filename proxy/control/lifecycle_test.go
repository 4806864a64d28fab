package control_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/control"
)

// What a claim is worth is decided by what was recorded (SPEC 6).
func TestVerdict(t *testing.T) {
	r := newRig(t, setup{})
	const fails = "[[fault:status 500]]"
	for i, c := range []struct {
		what  string
		calls []string
		close string
		want  record.Status
		says  string // the error begins so
	}{
		{"no turns", nil, ``, record.Failed, "NoTurns: "},
		{"no turns, claimed completed", nil, `{"outcome":{"status":"completed"}}`, record.Failed, "NoTurns: "},
		{"a turn", []string{"hi"}, ``, record.Completed, ""},
		{"only a failed call", []string{fails}, ``, record.Failed, "UpstreamError: the engine answered 500"},
		{"the last call failed", []string{"hi", fails}, `{"outcome":{"status":"completed"}}`, record.Failed, "UpstreamError: the engine answered 500"},
		{"the last call was refused", []string{"hi", "[[fault:status 400]]"}, ``, record.Failed, "Rejected: the engine answered 400"},
		{"failed, then recovered", []string{fails, "hi"}, ``, record.Completed, ""},
		{"failed twice, then recovered", []string{"hi", fails, fails, "hi"}, `{}`, record.Completed, ""},
		{"an explicit failure", []string{"hi"}, `{"outcome":{"status":"failed","error":"TestsFailed: 3 of 5"}}`, record.Failed, "TestsFailed: 3 of 5"},
		{"an explicit failure stands over a failed call", []string{fails}, `{"outcome":{"status":"failed","error":"Timeout: 600 s"}}`, record.Failed, "Timeout: 600 s"},
		{"a failure without words", []string{"hi"}, `{"outcome":{"status":"failed"}}`, record.Failed, "Failed: "},
	} {
		id := fmt.Sprintf("v%d", i)
		r.create(id, "")
		for _, text := range c.calls {
			r.say(id, text)
		}
		doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/"+id+"/close", c.close))
		got := ""
		if doc.Outcome != nil && doc.Outcome.Error != nil {
			got = *doc.Outcome.Error
		}
		if doc.Status != c.want || doc.Outcome.Status != string(c.want) || !strings.HasPrefix(got, c.says) || (got == "") != (c.says == "") || doc.ClosedAt.IsZero() {
			t.Errorf("%s: %s %q, want %s %q", c.what, doc.Status, got, c.want, c.says)
		}
	}
	// A session without budget was never given a turn.
	r.create("budget", `,"max_model_calls":0`)
	r.say("budget", "hi")
	if doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/budget/close", "")); doc.Status != record.Failed || doc.BudgetStops != 1 {
		t.Errorf("budget: %s, %d stops", doc.Status, doc.BudgetStops)
	}
}

func TestClose(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", `,"metadata":{"keep":1,"old":2}`)
	r.say("a", "hi")
	for body, field := range map[string]string{
		`{"outcome":{"status":"cancelled"}}`:              "outcome.status",
		`{"outcome":{"status":"completed","error":"no"}}`: "outcome.error",
		`{"outcome":"completed"}`:                         "outcome",
		`{"reward":"high"}`:                               "reward",
		`{"rewards":{"a":"b"}}`:                           "rewards",
		`{"metadata":3}`:                                  "metadata",
		`{"rewardd":3}`:                                   "rewardd",
	} {
		if a := r.want(400, "POST", "/sessions/a/close", body); !strings.HasPrefix(a.message(), field) {
			t.Errorf("%s: %s", body, a.message())
		}
	}
	for _, q := range []string{"wait=soon", "wait=-1", "wait=NaN", "wait=2h", "waits=1", "shared=never", "format=verl"} {
		name, _, _ := strings.Cut(q, "=")
		if a := r.want(400, "POST", "/sessions/a/close?"+q, ""); !strings.HasPrefix(a.message(), name+": ") {
			t.Errorf("%s: %s", q, a.message())
		}
	}
	first := r.want(200, "POST", "/sessions/a/close?wait=1m", `{"reward":0.5,"rewards":{"tests":1,"style":null},"metadata":{"old":null,"new":"x"}}`)
	doc := read[export.Rollout](t, first)
	if *doc.Reward != 0.5 || len(doc.Rewards) != 1 || doc.Rewards["tests"] != 1 || len(doc.Metadata) != 2 || string(doc.Metadata["new"]) != `"x"` {
		t.Errorf("reward %v, rewards %v, metadata %v", *doc.Reward, doc.Rewards, doc.Metadata)
	}
	if !doc.Trainable || doc.ProxyVersion != "test" || len(doc.Turns) != 1 {
		t.Errorf("document: %s", first.body)
	}
	if second := r.want(200, "POST", "/sessions/a/close", `{"reward":9}`); second.body != first.body {
		t.Errorf("closing twice:\n%s\n%s", first.body, second.body)
	}
	if status := r.say("a", "hi"); status != 409 {
		t.Errorf("a call after the close: %d", status)
	}
}

func TestCloseWaits(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	call := r.sayLater("a")
	if s := read[control.Status](t, r.want(200, "GET", "/sessions/a", "")); s.InFlight != 1 || *s.IdleS != 0 || s.NTurns != 0 {
		t.Errorf("while the call is under way: %+v", s)
	}
	closed := make(chan answer, 2)
	for range 2 { // both wait, and both get the document
		go func() { closed <- r.raw("POST", "/sessions/a/close", "") }()
	}
	for r.say("a", "hi") != 409 { // until the close has begun
	}
	close(r.gate.opened)
	if status := <-call; status != 200 {
		t.Errorf("the call under way: %d", status)
	}
	one, two := <-closed, <-closed
	doc := read[export.Rollout](t, one)
	if one.status != 200 || doc.Status != record.Completed || !strings.Contains(one.body, "a-1") || one.body != two.body {
		t.Errorf("%d %s\n%d %s", one.status, one.body, two.status, two.body)
	}
}

// A close without patience ends the calls under way. The engine did nothing wrong, so the session has not failed.
func TestCloseNow(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.say("a", "hi")
	call := r.sayLater("a")
	doc := read[export.Rollout](t, r.want(200, "POST", "/sessions/a/close?wait=0", ""))
	<-r.gate.left
	<-call
	if doc.Status != record.Completed || len(doc.FailedCalls) != 1 || doc.FailedCalls[0].Outcome != record.Cancelled || !strings.Contains(doc.FailedCalls[0].Detail, "closed") {
		t.Errorf("status %s, failed calls %+v", doc.Status, doc.FailedCalls)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.say("a", "hi")
	call := r.sayLater("a")
	closed := make(chan answer, 1)
	go func() { closed <- r.raw("POST", "/sessions/a/close", `{"outcome":{"status":"completed"}}`) }()
	for r.say("a", "hi") != 409 {
	}
	s := read[control.Status](t, r.want(200, "POST", "/sessions/a/cancel", `{"reason":"the node is needed"}`))
	<-r.gate.left
	if status := <-call; status != 409 {
		t.Errorf("the call under way: %d", status)
	}
	doc := read[export.Rollout](t, <-closed)
	if s.Status != record.SessionCanceled || *s.Error != "the node is needed" || doc.Status != record.SessionCanceled || *doc.Outcome.Error != "the node is needed" {
		t.Errorf("status %+v, document %+v", s, doc.Outcome)
	}
	r.want(200, "POST", "/sessions/a/cancel", "") // again is the same
	if status := r.say("a", "hi"); status != 409 {
		t.Errorf("a call after the cancel: %d", status)
	}
	r.create("b", "")
	r.say("b", "hi")
	r.want(200, "POST", "/sessions/b/close", "")
	r.want(409, "POST", "/sessions/b/cancel", "")
	r.want(400, "POST", "/sessions/b/cancel", `{"why":"x"}`)
}

func TestDelete(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	call := r.sayLater("a")
	if a := r.want(200, "DELETE", "/sessions/a", ""); strings.TrimSpace(a.body) != `{"deleted":true}` {
		t.Errorf("answer: %s", a.body)
	}
	<-r.gate.left
	<-call
	r.want(404, "GET", "/sessions/a", "")
	r.want(404, "DELETE", "/sessions/a", "")
	if status := r.say("a", "hi"); status != 401 {
		t.Errorf("a call after the deletion: %d", status)
	}
	r.create("a", "")
	if s := read[control.Status](t, r.want(200, "GET", "/sessions/a", "")); s.NTurns != 0 || s.NFailedCalls != 0 {
		t.Errorf("the next session of the same name: %+v", s)
	}
}

func TestScore(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", `,"metadata":{"task":"t"},"run":{"kind":"train","id":"r1"}`)
	r.say("a", "hi")
	steps := []struct{ body, want string }{
		{`{"reward":1}`, `"reward":1,"rewards":{},"metadata":{"task":"t"},"run":{"kind":"train","id":"r1"}`},
		{`{"rewards":{"x":1,"y":2},"metadata":{"n":{"a":1}}}`, `"reward":1,"rewards":{"x":1,"y":2},"metadata":{"n":{"a":1},"task":"t"},"run":{"kind":"train","id":"r1"}`},
		{`{"rewards":{"x":null,"y":3},"metadata":{"task":null,"n":{"b":2}}}`, `"reward":1,"rewards":{"y":3},"metadata":{"n":{"b":2}},"run":{"kind":"train","id":"r1"}`},
		{`close`, ``},
		{`{"run":{"metadata":{"kind":"train","step":4}}}`, `"reward":1,"rewards":{"y":3},"metadata":{"n":{"b":2}},"run":{"kind":"train","id":"r1","metadata":{"kind":"train","step":4}}`},
		{`{"run":{"metadata":{"step":5}},"reward":null}`, `"reward":null,"rewards":{"y":3},"metadata":{"n":{"b":2}},"run":{"kind":"train","id":"r1","metadata":{"kind":"train","step":5}}`},
		{`{"run":null,"rewards":null,"metadata":null}`, `"reward":null,"rewards":{},"metadata":{},"run":null`},
		{`{}`, `"reward":null,"rewards":{},"metadata":{},"run":null`},
	}
	for _, s := range steps {
		if s.body == "close" {
			r.want(200, "POST", "/sessions/a/close", "")
			continue
		}
		if a := r.want(200, "POST", "/sessions/a/score", s.body); !strings.Contains(a.body, s.want) {
			t.Errorf("%s: %s, want %s", s.body, a.body, s.want)
		}
	}
	r.want(200, "POST", "/sessions/a/score", `{"reward":0.25,"run":{"kind":"train","id":"r2","metadata":{"kind":"eval"}}}`)
	doc := read[export.Rollout](t, r.want(200, "GET", "/sessions/a/rollout", ""))
	if *doc.Reward != 0.25 || !strings.Contains(string(doc.Run), `"r2"`) || doc.Status != record.Completed {
		t.Errorf("document: reward %v, run %s, %s", *doc.Reward, doc.Run, doc.Status)
	}
	for body, field := range map[string]string{
		`{"run":{"kind":"test"}}`:            "run.kind",
		`{"run":{"id":null}}`:                "run.id",
		`{"run":{"metadata":{"kind":null}}}`: "run.metadata.kind",
		`{"run":{"metadata":{"step":1.5}}}`:  "run.metadata.step",
		`{"run":{"kind":"eval"}}`:            "run.metadata",
		`{"run":{"nam":"x"}}`:                "nam",
		`{"reward":true}`:                    "reward",
		`{"outcome":{"status":"completed"}}`: "outcome",
	} {
		if a := r.want(400, "POST", "/sessions/a/score", body); !strings.HasPrefix(a.message(), field+": ") {
			t.Errorf("%s: %s", body, a.message())
		}
	}
	if again := read[export.Rollout](t, r.want(200, "GET", "/sessions/a/rollout", "")); *again.Reward != 0.25 || string(again.Run) != string(doc.Run) {
		t.Error("a refused score changed something")
	}
}

// Scores that arrive together are all kept, also while the session is being closed.
func TestScoreTogether(t *testing.T) {
	r := newRig(t, setup{})
	r.create("a", "")
	r.say("a", "hi")
	const n = 24
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if i == n/2 {
				r.raw("POST", "/sessions/a/close", "")
			}
			if a := r.raw("POST", "/sessions/a/score", fmt.Sprintf(`{"rewards":{"r%d":%d}}`, i, i)); a.status != 200 {
				t.Errorf("score %d: %d %s", i, a.status, a.body)
			}
		})
	}
	wg.Wait()
	r.stop()
	again := newRig(t, setup{dir: r.dir, engine: r.engine})
	doc := read[export.Rollout](t, again.want(200, "GET", "/sessions/a/rollout", ""))
	if len(doc.Rewards) != n || doc.Status != record.Completed {
		t.Errorf("%d of %d scores are on disk, status %s", len(doc.Rewards), n, doc.Status)
	}
}
