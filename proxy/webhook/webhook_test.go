package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/secret"
	"captureproxy/proxy/session"
	"captureproxy/proxy/webhook"
	"captureproxy/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// arrival is one request to the receiver.
type arrival struct {
	header http.Header
	body   []byte
}

// receiver takes documents, after it has answered what its script says.
type receiver struct {
	url      string
	arrivals chan arrival

	mu     sync.Mutex
	script []int // statuses of the next answers, 200 after them
	astray int   // requests that followed a redirect
}

func newReceiver(t *testing.T, script ...int) *receiver {
	r := &receiver{arrivals: make(chan arrival, 100), script: script}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	r.url = strings.Replace(srv.URL, "http://", "http://user:hidden-password@", 1) + "/hook?token=hidden-token"
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	status := 200
	if len(r.script) > 0 {
		status, r.script = r.script[0], r.script[1:]
	}
	switch {
	case err != nil:
		return
	case req.URL.Path == "/astray":
		r.astray++
	case status == 302:
		w.Header().Set("Location", "/astray")
	}
	w.WriteHeader(status)
	r.arrivals <- arrival{req.Header, body}
}

func (r *receiver) next(t *testing.T) arrival {
	t.Helper()
	select {
	case a := <-r.arrivals:
		return a
	case <-time.After(time.Minute):
		t.Fatal("nothing arrives")
		return arrival{}
	}
}

// rig is a store with a registry and a sender over it.
type rig struct {
	t      *testing.T
	dir    string
	store  *store.Log
	reg    *session.Registry
	sender *webhook.Sender
	logs   *bytes.Buffer // read when everything has ended
	stop   func()
}

func newRig(t *testing.T, dir, url string, attempts int) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, logs: new(bytes.Buffer)}
	var err error
	if r.store, err = store.Open(dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	none := func(*record.Session) *engine.Upstream { return nil }
	if r.reg, err = session.Open(t.Context(), r.store, time.Now, none); err != nil {
		t.Fatal(err)
	}
	box, err := secret.New("the secret of the operator")
	if err != nil {
		t.Fatal(err)
	}
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(r.logs)), zap.DebugLevel))
	r.sender, err = webhook.New(webhook.Options{
		URL: url, Secret: box, Sessions: r.reg, Store: r.store, Logger: logger,
		First: time.Millisecond, Longest: 4 * time.Millisecond, Attempts: attempts, Sweep: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.reg.OnEnd(r.sender.Mark, r.sender.Send)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { r.sender.Run(ctx); close(ran) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-ran
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) create(id string) *session.Live {
	r.t.Helper()
	live, err := r.reg.Create(r.t.Context(), &record.Session{ID: id}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return live
}

func (r *rig) end(live *session.Live, claim session.Claim) {
	r.t.Helper()
	if _, err := live.Close(r.t.Context(), claim, nil); err != nil {
		r.t.Fatal(err)
	}
}

// until waits for a session's delivery to reach a state.
func (r *rig) until(id string, want record.Delivery) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		rec, err := r.store.Session(r.t.Context(), id)
		if err != nil {
			r.t.Fatal(err)
		}
		if rec.Webhook == want {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s is %q, want %q", id, rec.Webhook, want)
		}
	}
}

// However a session ends, its document arrives, signed, as the control API gives it.
func TestEveryEndArrives(t *testing.T) {
	to := newReceiver(t)
	r := newRig(t, t.TempDir(), to.url, 5)
	for id, end := range map[string]func(*session.Live){
		"closed":  func(l *session.Live) { r.end(l, session.Claim{Status: record.Failed, Error: "Oops: x"}) },
		"expired": func(l *session.Live) { r.end(l, session.Claim{Expired: true}) },
		"cancelled": func(l *session.Live) {
			if _, err := l.Cancel(t.Context(), "enough"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		end(r.create(id))
		got := to.next(t)
		r.until(id, record.Delivered)
		rec, err := r.store.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if _, err := export.Build(rec, nil, export.Options{}).WriteTo(&want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.body, want.Bytes()) || got.header.Get("Idempotency-Key") != rec.Instance || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v %s", id, got.header, got.body)
		}
		box, err := secret.New("the secret of the operator")
		if err != nil {
			t.Fatal(err)
		}
		code, err := hex.DecodeString(strings.TrimPrefix(got.header.Get("X-Capture-Proxy-Signature"), "sha256="))
		if err != nil || !hmac.Equal(code, box.Sign(got.body)) {
			t.Errorf("%s: the signature is %s", id, got.header.Get("X-Capture-Proxy-Signature"))
		}
	}
	r.stop()
	if len(to.arrivals) > 0 {
		t.Errorf("%d documents too many", len(to.arrivals))
	}
}

// A receiver that does not take a document gets the same one again; a redirect leads nowhere.
func TestSentAgain(t *testing.T) {
	to := newReceiver(t, 500, 302, 404)
	r := newRig(t, t.TempDir(), to.url, 5)
	r.end(r.create("hidden-session"), session.Claim{})
	first := to.next(t)
	for range 3 {
		if again := to.next(t); !bytes.Equal(again.body, first.body) || again.header.Get("Idempotency-Key") != first.header.Get("Idempotency-Key") {
			t.Errorf("another document: %s", again.body)
		}
	}
	r.until("hidden-session", record.Delivered)
	r.stop()
	if to.astray > 0 || strings.Contains(r.logs.String(), "hidden") || !strings.Contains(r.logs.String(), "redirects are not followed") {
		t.Errorf("%d went astray; log %s", to.astray, r.logs)
	}
}

func TestGivenUpAndRepeated(t *testing.T) {
	to := newReceiver(t, 500, 500, 500)
	r := newRig(t, t.TempDir(), to.url, 3)
	r.end(r.create("a"), session.Claim{})
	r.until("a", record.DeliveryFailed)
	rec, err := r.store.Session(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r.sender.Again(rec)
	r.until("a", record.Delivered)
	if n := len(to.arrivals); n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
}

// What was not delivered when the process ended is delivered by the next one, and by no later one.
func TestDeliveredAfterARestart(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	first := newRig(t, t.TempDir(), dead.URL, 1<<20)
	first.end(first.create("a"), session.Claim{})
	first.create("running")
	first.stop()

	to := newReceiver(t)
	second := newRig(t, first.dir, to.url, 5)
	if got := to.next(t); !bytes.Contains(got.body, []byte(`"session_id":"a"`)) {
		t.Errorf("arrived: %s", got.body)
	}
	second.until("a", record.Delivered)
	second.stop()
	third := newRig(t, first.dir, to.url, 5)
	third.end(third.create("last"), session.Claim{})
	if got := to.next(t); !bytes.Contains(got.body, []byte(`"session_id":"last"`)) {
		t.Errorf("arrived: %s", got.body)
	}
}

// A receiver that hangs delays no close, and what is deleted meanwhile is not sent.
func TestNobodyWaits(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan []byte, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		arrived <- body
		<-release
	}))
	defer srv.Close()
	r := newRig(t, t.TempDir(), srv.URL, 5)
	ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, id := range ids { // more than are sent together
		r.end(r.create(id), session.Claim{})
	}
	sent := map[string]bool{}
	for range 4 {
		doc, err := export.Read(bytes.NewReader(<-arrived))
		if err != nil {
			t.Fatal(err)
		}
		sent[doc.SessionID] = true
	}
	var waiting []string
	for _, id := range ids {
		if !sent[id] {
			waiting = append(waiting, id)
		}
	}
	gone, kept := waiting[0], waiting[1:]
	if err := r.reg.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	close(release)
	for _, id := range kept {
		r.until(id, record.Delivered)
	}
	r.stop()
	for len(arrived) > 0 {
		if body := <-arrived; bytes.Contains(body, []byte(`"session_id":"`+gone+`"`)) {
			t.Errorf("a deleted session was sent: %s", body)
		}
	}
}
