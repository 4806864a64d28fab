//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"captureproxy/internal/pgtest"
)

// cluster is some proxies on one PostgreSQL. Its next proxy is another one each time, as behind a load balancer.
type cluster struct {
	db      *pgtest.Server
	url     string // of the database
	proxies []*proxy
	turn    atomic.Int64
}

func newCluster(t *testing.T, engine string, n int, flags ...string) *cluster {
	t.Helper()
	db, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{db: db}
	if c.url, err = db.Database(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range n {
		c.proxies = append(c.proxies, serve(t, append([]string{"--upstream", engine, "--store", c.url, "--data", t.TempDir(), "--drain-timeout", "5s"}, flags...)...))
	}
	return c
}

func (c *cluster) next() *proxy {
	return c.proxies[int(c.turn.Add(1))%len(c.proxies)]
}

// ask makes one call that is not streamed and returns its status and body.
func ask(t *testing.T, p *proxy, session, text string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)
	req, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+session)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("a call: %v", err)
		return 0, ""
	}
	defer res.Body.Close() //nolint:errcheck // it is read to its end
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("a call's answer: %v", err)
	}
	return res.StatusCode, string(answer)
}

// play holds conversations of three calls, many at a time, each call through the proxy that next gives, and returns their
// documents without what differs from run to run.
func play(t *testing.T, sessions int, next func() *proxy, between func(done int)) []any {
	t.Helper()
	ids, docs := make([]string, sessions), make([]any, sessions)
	for i := range ids {
		ids[i] = next().session(t)
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	slots := make(chan bool, 16)
	for i, id := range ids {
		wg.Go(func() {
			slots <- true
			defer func() { <-slots }()
			messages := []message{{"system", "You are a coding agent."}, {"user", fmt.Sprintf("Task %d: mend the parser.", i)}}
			for n := range 3 {
				messages = append(messages, talk(t, next(), id, messages), message{"user", fmt.Sprintf("Go on, step %d.", n)})
				between(int(done.Add(1)))
			}
		})
	}
	wg.Wait()
	for i, id := range ids {
		text := next().control(t, http.MethodPost, "/sessions/"+id+"/close?include_messages", "{}")
		if doc := document(t, text); doc.Stats.Turns != 3 || !doc.Trainable {
			t.Errorf("session %d: %+v, trainable %t", i, doc.Stats, doc.Trainable)
		}
		docs[i] = timeless(t, text, id)
	}
	return docs
}

// timeless is a document without ids and times.
func timeless(t *testing.T, text []byte, id string) any {
	t.Helper()
	var doc any
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(id), []byte("the-session")), &doc); err != nil {
		t.Fatal(err)
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"timing", "created_at", "closed_at", "request_id", "row_id", "instance"} {
				delete(v, name)
			}
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(doc)
	return doc
}

// Sessions whose calls go through three proxies in turn give the documents that one proxy gives.
func TestThreeProxiesActAsOne(t *testing.T) {
	engine := fakeEngine(t)
	c := newCluster(t, engine, 3)
	single := serve(t, "--upstream", engine, "--data", t.TempDir())
	idle := func(int) {}
	want := play(t, 100, func() *proxy { return single }, idle)
	got := play(t, 100, c.next, idle)
	for i := range want {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Fatalf("session %d differs (-one proxy +three):\n%s", i, diff)
		}
	}
	for _, p := range c.proxies {
		if strings.Contains(p.stderr.String(), "hush-hush") {
			t.Error("the database's password is in a log")
		}
	}
}

// A budget holds over all proxies.
func TestBudgetAcrossProxies(t *testing.T) {
	c := newCluster(t, fakeEngine(t), 3)
	c.next().control(t, http.MethodPost, "/sessions", `{"session_id":"s","max_model_calls":10}`)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if status, text := ask(t, c.next(), "s", fmt.Sprintf("question %d", i)); status != http.StatusOK {
				t.Errorf("call %d: %d %s", i, status, text)
			}
		})
	}
	wg.Wait()
	doc := c.next().close(t, "s")
	if doc.Stats.Turns != 10 || doc.BudgetStops != 40 {
		t.Errorf("%d turns and %d budget stops, want 10 and 40", doc.Stats.Turns, doc.BudgetStops)
	}
	for _, p := range c.proxies {
		if status, text := ask(t, p, "s", "more"); status != http.StatusConflict {
			t.Errorf("a call of a session that ended elsewhere: %d %s", status, text)
		}
	}
}

// A proxy is killed while its sessions run: no turn that a client saw the end of is lost, and the others go on.
func TestProxyIsKilled(t *testing.T) {
	c := newCluster(t, fakeEngine(t), 3)
	ids := make([]string, 12)
	said := make([][]message, len(ids))
	for i := range ids {
		ids[i] = c.next().session(t)
		said[i] = []message{{"user", fmt.Sprintf("Task %d.", i)}}
	}
	round := func() {
		for i, id := range ids {
			said[i] = append(said[i], talk(t, c.next(), id, said[i]), message{"user", "Go on."})
		}
	}
	round()
	round()
	c.proxies[0].kill()
	c.proxies = c.proxies[1:]
	round()
	for _, id := range ids {
		if doc := c.next().close(t, id); doc.Stats.Turns != 3 || doc.Stats.Roots != 1 || !doc.Trainable {
			t.Errorf("%+v, trainable %t", doc.Stats, doc.Trainable)
		}
	}
}

// The database crashes and comes back in the middle of it all: nothing is lost, and no harness notices.
func TestDatabaseRestartsInTheMiddle(t *testing.T) {
	c := newCluster(t, fakeEngine(t, "--per-token", "2ms"), 3)
	restart := sync.OnceFunc(func() {
		if err := c.db.Halt(true); err != nil {
			t.Error(err)
		}
		if err := c.db.Resume(); err != nil {
			t.Error(err)
		}
	})
	play(t, 30, c.next, func(done int) {
		if done >= 30 {
			restart()
		}
	})
	for _, p := range c.proxies {
		p.control(t, http.MethodGet, "/ready", "")
	}
}

// A cancel through one proxy ends a call that streams through another.
func TestCancelThroughAnotherProxy(t *testing.T) {
	c := newCluster(t, fakeEngine(t, "--per-token", "80ms"), 2)
	id := c.proxies[0].session(t)
	events, err := http.Get(c.proxies[1].url + "/events?session=" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close() //nolint:errcheck // it has no end
	followed := bufio.NewReader(events.Body)
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"Take your time."}]}`
	req, err := http.NewRequest(http.MethodPost, c.proxies[0].url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+id)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it is cut off
	stream := bufio.NewReader(res.Body)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	text := c.proxies[1].control(t, http.MethodPost, "/sessions/"+id+"/cancel", `{"reason":"enough"}`)
	rest, _ := io.ReadAll(stream) //nolint:errcheck // how it ends is the proxy's choice
	t.Logf("the stream ended %s after the cancel was asked for", time.Since(began).Round(time.Millisecond))
	if bytes.Contains(rest, []byte("[DONE]")) || !bytes.Contains(text, []byte(`"status":"cancelled"`)) {
		t.Errorf("the stream ended with %q, the session is %s", rest, text)
	}
	for _, p := range c.proxies {
		if status, text := ask(t, p, id, "more"); status != http.StatusConflict {
			t.Errorf("a call after the cancel: %d %s", status, text)
		}
	}
	doc := c.proxies[0].rollout(t, id)
	if len(doc.FailedCalls) != 1 || doc.FailedCalls[0].Outcome != "cancelled" {
		t.Errorf("failed calls: %+v", doc.FailedCalls)
	}
	for {
		line, err := followed.ReadString('\n')
		if err != nil {
			t.Fatalf("the other proxy tells of no end: %v", err)
		}
		if strings.HasPrefix(line, "data: ") && strings.Contains(line, `"session_ended"`) {
			break
		}
	}
}
