// Package webhook brings the documents of ended sessions to a receiver of the operator's:
//
//	sender, err := webhook.New(webhook.Options{URL: url, Sessions: registry, Store: store})
//	registry.OnEnd(sender.Mark, sender.Send)
//	go sender.Run(ctx)
//
// That a document is to be sent stands in the session's record, written together with its terminal status, so no crash
// forgets it: Run takes up what an earlier process left. A document arrives at least once, not exactly once: the header
// Idempotency-Key is the same for all attempts. Nobody waits for the receiver. One that does not answer 2xx is asked
// again, after a second at first, then ever more slowly, for about an hour; then the delivery is given up and the record
// says so. Redirects are not followed.
package webhook

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/internal/record"
	"captureproxy/proxy/secret"
	"captureproxy/proxy/session"
	"captureproxy/store"
)

// Store is the part of store.Store that documents are derived from.
type Store interface {
	Session(ctx context.Context, id string) (*record.Session, error)
	Sessions(ctx context.Context, f store.Filter) ([]*record.Session, string, error)
	Calls(ctx context.Context, id string) ([]*record.Call, error)
}

// Registry changes sessions' records.
type Registry interface {
	Update(ctx context.Context, id string, change func(*record.Session) error) (*record.Session, error)
}

// Options say where documents go. Zero durations get those of the package's comment.
type Options struct {
	URL      string
	Secret   *secret.Box // signs what is sent, nil for no signature
	Sessions Registry
	Store    Store
	Document export.Options
	Logger   *zap.Logger

	Timeout  time.Duration // of one attempt
	First    time.Duration // wait after the first attempt; it doubles
	Longest  time.Duration // wait between attempts
	Attempts int
	// Sweep is how often deliveries are taken up that another proxy left behind.
	Sweep time.Duration
}

// atOnce bounds how many documents are under way, and in memory, together.
const atOnce = 4

// Sender sends documents. It is safe for concurrent use.
type Sender struct {
	o      Options
	host   string // of the receiver: the rest of its URL may be a secret
	client *http.Client
	slots  chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	busy   map[string]bool // instances of sessions whose documents are on their way
}

// CheckURL reads the address of a receiver.
func CheckURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("write it as https://receiver.example.org/rollouts") // and do not show what may hold a password
	}
	return u, nil
}

// New returns a sender.
func New(o Options) (*Sender, error) {
	u, err := CheckURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	set(&o.Timeout, time.Minute)
	set(&o.First, time.Second)
	set(&o.Longest, 5*time.Minute)
	set(&o.Attempts, 20)
	set(&o.Sweep, 30*time.Minute)
	s := &Sender{o: o, host: u.Host, slots: make(chan struct{}, atOnce), busy: map[string]bool{}}
	s.client = &http.Client{
		Timeout:       o.Timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: atOnce},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func set[T time.Duration | int](value *T, usual T) {
	if *value <= 0 {
		*value = usual
	}
}

// Mark notes on the record of a session that ends that its document is to be sent.
func (s *Sender) Mark(rec *record.Session) { rec.Webhook = record.DeliveryPending }

// Send begins to send the document of a session that has ended. It does not block.
func (s *Sender) Send(rec *record.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy[rec.Instance] { // the mark stays for the next process
		return
	}
	s.busy[rec.Instance] = true
	s.work.Go(func() {
		s.deliver(rec.ID, rec.Instance)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, rec.Instance)
	})
}

// Again sends a document once more that was given up.
func (s *Sender) Again(rec *record.Session) {
	if s.settle(rec.ID, rec.Instance, record.DeliveryPending) {
		s.Send(rec)
	}
}

// Run takes up what earlier processes left, and returns once ctx is done and nothing is under way.
func (s *Sender) Run(ctx context.Context) {
	s.resume(ctx, 0)
	sweep := time.NewTicker(s.o.Sweep)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return
		case <-sweep.C: // whoever ended the session would have delivered or given up by now
			s.resume(ctx, s.patience())
		}
	}
}

// Close gives up what is under way; it stays marked.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	s.client.CloseIdleConnections()
}

// patience is how long a delivery takes at most.
func (s *Sender) patience() time.Duration {
	return time.Duration(s.o.Attempts) * (s.o.Longest + s.o.Timeout)
}

// resume sends the documents of sessions that ended longer ago than that and are marked.
func (s *Sender) resume(ctx context.Context, than time.Duration) {
	f := store.Filter{Limit: 500}
	for {
		page, next, err := s.o.Store.Sessions(ctx, f)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			if ctx.Err() == nil {
				s.o.Logger.Error("what is left to be sent to the webhook cannot be listed: it is tried again later", zap.Error(err))
			}
			return
		}
		for _, rec := range page {
			if rec.Webhook == record.DeliveryPending && rec.ClosedAt != nil && time.Since(*rec.ClosedAt) >= than {
				s.Send(rec)
			}
		}
		if next == "" {
			return
		}
		f.After = next
	}
}

// errGone: there is nothing to be sent any more.
var errGone = errors.New("there is nothing to be sent any more")

// deliver sends one document until it is taken, given up, or not there any more.
func (s *Sender) deliver(id, instance string) {
	wait := s.o.First
	for attempt := 1; ; attempt++ {
		err := s.try(id, instance)
		switch {
		case err == nil:
			s.settle(id, instance, record.Delivered)
			return
		case errors.Is(err, errGone), s.ctx.Err() != nil:
			return
		case attempt >= s.o.Attempts:
			s.o.Logger.Error("a document could not be delivered to the webhook and is given up: close the session again to repeat, or read it from the control API",
				zap.String("host", s.host), zap.Int("attempts", attempt), zap.Error(err))
			s.settle(id, instance, record.DeliveryFailed)
			return
		}
		s.o.Logger.Warn("the webhook did not take a document: it is sent again", zap.String("host", s.host), zap.Int("attempt", attempt), zap.Error(err))
		timer := time.NewTimer(wait/2 + rand.N(wait)) // apart, so that a receiver that comes back is not run over
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, s.o.Longest)
	}
}

// try sends a document once.
func (s *Sender) try(id, instance string) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	body, err := s.document(id, instance)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.o.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's URL cannot be used") // the error holds it
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "capture-proxy")
	req.Header.Set("Idempotency-Key", instance)
	if code := s.o.Secret.Sign(body); code != nil {
		req.Header.Set("X-Capture-Proxy-Signature", "sha256="+hex.EncodeToString(code))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return err
	}
	defer resp.Body.Close()                                //nolint:errcheck // read as far as it matters
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) //nolint:errcheck // only to use the connection again
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("the receiver answered %d, and redirects are not followed: give its final address", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		return fmt.Errorf("the receiver answered %d", resp.StatusCode)
	}
	return nil
}

// document derives the document of a session.
func (s *Sender) document(id, instance string) ([]byte, error) {
	rec, err := s.o.Store.Session(s.ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && rec.Instance != instance {
		return nil, errGone
	}
	if err != nil {
		return nil, errors.New("the session cannot be read") // the error may name it, and its id is a key
	}
	if rec.Webhook != record.DeliveryPending { // somebody else was faster
		return nil, errGone
	}
	calls, err := s.o.Store.Calls(s.ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, errGone
	case errors.Is(err, store.ErrDamaged):
		if rec.CaptureFailed == "" {
			rec.CaptureFailed = err.Error()
		}
	case err != nil:
		return nil, errors.New("the session's calls cannot be read")
	}
	var text bytes.Buffer
	if _, err := export.Build(rec, calls, s.o.Document).WriteTo(&text); err != nil {
		return nil, errors.New("the document cannot be written")
	}
	return text.Bytes(), nil
}

// settle notes how far a delivery has come. What cannot be noted is sent once more by the next process.
func (s *Sender) settle(id, instance string, state record.Delivery) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 10*time.Second)
	defer cancel()
	_, err := s.o.Sessions.Update(ctx, id, func(rec *record.Session) error {
		if rec.Instance != instance {
			return errGone
		}
		rec.Webhook = state
		return nil
	})
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, session.ErrUnknown) {
		s.o.Logger.Warn("how far a document came on its way to the webhook could not be noted: it may be sent again", zap.String("state", string(state)))
	}
	return err == nil
}
