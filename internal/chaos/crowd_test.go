package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"captureproxy/internal/fakeengine"
	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// A thousand sessions at once, in five dialects. Of each four one runs to its end, one has a client that hangs up in mid-answer, one
// is cancelled and one is closed meanwhile: each call is recorded once, under its own session, with its own text, no client gets
// anything of another's, and all connections and goroutines are given back.
func TestThousandSessions(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := descriptors(t)
	defer func() { // behind all that gives back
		if after := descriptors(t); after > before {
			t.Errorf("%d file descriptors, %d before", after, before)
		}
	}()
	fake, err := fakeengine.Start(fakeengine.Options{Keep: 4096, PerToken: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	up, err := engine.NewUpstream(engine.Config{URL: fake.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	sessions, err := session.Open(t.Context(), st, time.Now, func(*record.Session) *engine.Upstream { return up })
	if err != nil {
		t.Fatal(err)
	}
	up.Measure(t.Context())
	srv := httptest.NewServer(proxy.New(proxy.Config{Sessions: sessions, Log: st}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	outcomes := map[string]map[record.Outcome]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 1000 {
		all.Go(func() {
			id, marker := fmt.Sprintf("s%d", n), fmt.Sprintf("mark-%d-end", n)
			live, err := sessions.Create(context.Background(), &record.Session{ID: id, CaptureLevel: record.LevelTokens, Engine: up.Record()}, up)
			if err != nil {
				t.Error(err)
				return
			}
			fate, d := fates[n%len(fates)], dialects[n%len(dialects)]
			ctx, hangUp := context.WithCancel(context.Background())
			defer hangUp()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+pathOf(d.path, true), strings.NewReader(fmt.Sprintf(d.body, true, marker)))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+id)
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if fate != "whole" {
				if _, err := resp.Body.Read(make([]byte, 16)); err != nil {
					t.Error(err)
				}
			}
			answer, cut := "", error(nil)
			if fate == "hung up" {
				hangUp()
			}
			if err := end(live, fate); err != nil {
				t.Errorf("%s, %s: %v", id, fate, err)
			}
			if fate != "hung up" {
				var text []byte
				text, cut = io.ReadAll(resp.Body)
				answer = string(text)
			}
			calls := wait(t, st, id)
			if len(calls) != 1 {
				t.Errorf("%s: %d records", id, len(calls))
				return
			}
			o := calls[0].Outcome
			mu.Lock()
			if outcomes[fate] == nil {
				outcomes[fate] = map[record.Outcome]int{}
			}
			outcomes[fate][o]++
			mu.Unlock()
			switch {
			case o == record.Complete || o == record.Length:
				check(t, id, fake, calls[0], true, answer, marker)
				if cut != nil && fate != "cancelled" {
					t.Errorf("%s, %s: recorded as %s, and the client's answer was cut: %v", id, fate, o, cut)
				}
			case o == record.ClientGone && fate == "hung up":
			case o == record.Cancelled && fate == "cancelled":
				if cut == nil && !strings.Contains(answer, "error") {
					t.Errorf("%s: a cancelled stream ended well: %q", id, answer)
				}
			default:
				t.Errorf("%s, %s: %s: %s", id, fate, o, calls[0].Detail)
			}
			if mixed(answer, marker) {
				t.Errorf("%s: the answer holds another call's text: %s", id, answer)
			}
			body, err := st.Body(context.Background(), id, 1)
			if err != nil || !strings.Contains(string(body), marker) || mixed(string(body), marker) {
				t.Errorf("%s: recorded body %q, %v", id, body, err)
			}
		})
	}
	all.Wait()
	for _, fate := range fates {
		t.Logf("%-10s %v", fate, outcomes[fate])
	}
}

// end ends a session from outside, as somebody does who asks again when a machine is too busy to answer in time.
func end(live *session.Live, fate string) (err error) {
	for range 10 {
		patience, cancel := context.WithTimeout(context.Background(), time.Minute)
		switch fate {
		case "cancelled":
			_, err = live.Cancel(patience, "enough")
		case "closed":
			_, err = live.Close(patience, session.Claim{}, nil)
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	if errors.Is(err, session.ErrEnded) { // the try before was through after all
		return nil
	}
	return err
}

// fates are what becomes of a call in the crowd.
var fates = []string{"whole", "hung up", "cancelled", "closed"}
