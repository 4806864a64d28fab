package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"captureproxy/internal/record"
	"captureproxy/store"
	"captureproxy/store/postgres"
	"captureproxy/store/storetest"
)

var ctx = context.Background()

// sql runs a statement on a database, beside the store.
func sql(t *testing.T, url, query string, args ...any) (value any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // of a test
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in 20 s it did not come about that %s", what)
		}
	}
}

func TestManyProxiesMayStartAtOnce(t *testing.T) {
	url := database(t)
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), url, postgres.Options{})
			if err == nil {
				err = s.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if v := sql(t, url, "select version from capture_proxy.schema_version"); v != int32(2) {
		t.Errorf("schema version %v", v)
	}
	sql(t, url, "update capture_proxy.schema_version set version = 99 returning version")
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a schema of a newer program: %v", err)
	}
}

func TestErrorsHoldNoPassword(t *testing.T) {
	for _, url := range []string{
		"postgres://u:hush-hush@127.0.0.1:1/db?sslmode=disable&connect_timeout=1", "postgres://u:hush-hush@127.0.0.1:port/db", "postgres://u:hush-hush%zz@h/db",
		"postgres://u:hush-hush@h/db?sslmode=nonsense", "mysql://u:hush-hush@h/db", strings.Replace(database(t), "/test", "/missing", 1),
	} {
		_, err := postgres.Open(t.Context(), url, postgres.Options{})
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("the address %s: %v", url, err)
		}
	}
	if name := postgres.Name("postgres://u:hush-hush@db.example:5433/rl?sslmode=require"); name != "postgres://db.example:5433/rl" {
		t.Errorf("shown as %s", name)
	}
}

// A conversation of which each call repeats all that came before is stored about once, by each proxy that serves it.
func TestConversationIsStoredOnce(t *testing.T) {
	url := database(t)
	proxies := []*postgres.Store{open(t, url, postgres.Options{}), open(t, url, postgres.Options{})}
	session := storetest.Session(1)
	storetest.Create(t, proxies[0], session)
	var messages []json.RawMessage
	var prompt []int32
	var calls []*record.Call
	total := 0
	for n := 1; n <= 40; n++ {
		messages = append(messages, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %s"}`, n, strings.Repeat("word ", 60))))
		for range 100 {
			prompt = append(prompt, int32(len(prompt)*7919%50000))
		}
		c := storetest.Call(session, n)
		c.Messages = append([]json.RawMessage{}, messages...)
		c.Body, c.Cuts = storetest.Body(c.Messages)
		c.Choices[0].PromptIDs = append([]int32{}, prompt...)
		total += len(c.Body)
		calls = append(calls, c)
		storetest.Append(t, proxies[n%2], c)
	}
	for _, s := range proxies {
		storetest.CheckCalls(t, s, session.ID, calls...)
	}
	stored := sql(t, url, "select sum(length(payload))::bigint from capture_proxy.calls").(int64)
	last := int64(len(calls[39].Body) + 3*len(prompt))
	if limit := 2*last + 40*1500; stored > limit {
		t.Errorf("%d bytes are stored, want at most %d (the last call alone has %d, all together %d)", stored, limit, last, total)
	}
}

// The database restarts, and crashes, while calls come in: none is lost, none is there twice, and the store says how it is.
func TestDatabaseRestartsUnderLoad(t *testing.T) {
	s := open(t, database(t), postgres.Options{})
	const sessions, calls = 6, 40
	for n := range sessions {
		storetest.Create(t, s, storetest.Session(n))
	}
	var wg sync.WaitGroup
	half := make(chan bool, sessions)
	for n := range sessions {
		wg.Go(func() {
			for i := range calls {
				if i == calls/2 {
					half <- true
				}
				if err := <-s.Append(storetest.Call(storetest.Session(n), i+1)); err != nil {
					t.Errorf("call %d of session %d: %v", i+1, n, err)
				}
			}
		})
	}
	<-half
	for _, atOnce := range []bool{false, true} {
		if err := server.Halt(atOnce); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the store says that the database is away", func() bool { return s.Healthy() != nil })
		if text := s.Healthy().Error(); strings.Contains(text, "hush") || !strings.Contains(text, "away") {
			t.Errorf("unhealthy: %s", text)
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the store is well again", func() bool { return s.Healthy() == nil })
	}
	wg.Wait()
	for n := range sessions {
		var want []*record.Call
		for i := range calls {
			want = append(want, storetest.Call(storetest.Session(n), i+1))
		}
		storetest.CheckCalls(t, s, storetest.Session(n).ID, want...)
	}
}

// What waits for a database that is away is bounded, and is stored when it comes back.
func TestWaitingIsBounded(t *testing.T) {
	s := open(t, database(t), postgres.Options{MaxWaiting: 200 << 10, Patience: 300 * time.Millisecond})
	session := storetest.Session(1)
	storetest.Create(t, s, session)
	if err := server.Halt(true); err != nil {
		t.Fatal(err)
	}
	var taken []*record.Call
	var done []<-chan error
	busy := false
	for n := 1; n <= 200 && !busy; n++ {
		d := s.Append(storetest.Call(session, n))
		select {
		case err := <-d:
			if !errors.Is(err, store.ErrBusy) {
				t.Errorf("call %d: %v", n, err)
			}
			busy = true
		default:
			taken, done = append(taken, storetest.Call(session, n)), append(done, d)
		}
	}
	if !busy || len(taken) < 2 {
		t.Errorf("busy %t after %d calls", busy, len(taken))
	}
	if _, err := s.Session(ctx, session.ID); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("reading while the database is away: %v", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for i, d := range done {
		if err := <-d; err != nil {
			t.Errorf("call %d, which was taken: %v", i+1, err)
		}
	}
	storetest.CheckCalls(t, s, session.ID, taken...)
}

// A store whose database does not come back is closed all the same, and says what is lost.
func TestCloseWithoutDatabase(t *testing.T) {
	s, err := postgres.Open(ctx, database(t), postgres.Options{CloseWithin: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	session := storetest.Session(1)
	storetest.Create(t, s, session)
	if err := server.Halt(true); err != nil {
		t.Fatal(err)
	}
	done := s.Append(storetest.Call(session, 1))
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("Close: %v", err)
	}
	if err := <-done; !errors.Is(err, store.ErrClosed) {
		t.Errorf("the call that waited: %v", err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}

// A call that cannot be stored does not keep the others of its batch from it.
func TestOneBadCallInABatch(t *testing.T) {
	url := database(t)
	s := open(t, url, postgres.Options{})
	session := storetest.Session(1)
	storetest.Create(t, s, session)
	sql(t, url, "alter table capture_proxy.calls add check (number <> 3)")
	var done []<-chan error
	for n := 1; n <= 6; n++ {
		done = append(done, s.Append(storetest.Call(session, n)))
	}
	for i, d := range done {
		if err := <-d; (err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	storetest.CheckCalls(t, s, session.ID, storetest.Call(session, 1), storetest.Call(session, 2), storetest.Call(session, 4), storetest.Call(session, 5), storetest.Call(session, 6))
}

// Labels of any kind and length are found again.
func TestLabels(t *testing.T) {
	s := open(t, database(t), postgres.Options{})
	labels := []string{"g", `g\0`, "g\x00", strings.Repeat("long ", 2000), strings.Repeat("long ", 2000) + "x", "ü\u2028"}
	for n, l := range labels {
		r := storetest.Session(n)
		r.Spec.Group = &record.Group{ID: l}
		storetest.Create(t, s, r)
	}
	for n, l := range labels {
		list, _, err := s.Sessions(ctx, store.Filter{Group: l})
		if err != nil || len(list) != 1 || list[0].ID != storetest.Session(n).ID {
			t.Errorf("label %.20q: %d sessions, %v", l, len(list), err)
		}
	}
}
