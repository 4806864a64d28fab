package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"captureproxy/export"
	"captureproxy/proxy/control"
	"captureproxy/proxy/events"
)

// Source gives the pages what they show: the control API of a running proxy ([Live]), or documents on disk ([Documents]).
// It is safe for concurrent use, and nobody writes to what it returns.
type Source interface {
	List(ctx context.Context, o control.ListOptions) (*control.SessionList, error)
	Status(ctx context.Context, id string) (*control.Status, error)
	Group(ctx context.Context, id string) (*control.GroupStatus, error)
	// Document is the whole document, discarded rows and messages included.
	Document(ctx context.Context, id string) (*export.Rollout, error)
	// Health is how the proxy is, nil where there is none.
	Health(ctx context.Context) (*control.Health, error)
}

// Actor is a source whose sessions can be ended.
type Actor interface {
	Close(ctx context.Context, id string) error
	Cancel(ctx context.Context, id, reason string) error
}

// Live is a running proxy in this process.
type Live struct {
	api    *control.API
	client control.Client
}

// NewLive asks the API as everybody else does, only without a connection.
func NewLive(api *control.API) *Live {
	return &Live{api: api, client: control.Client{
		URL: "http://127.0.0.1", Key: api.AdminKey, HTTP: &http.Client{Transport: direct{api}},
	}}
}

// List implements Source.
func (l *Live) List(ctx context.Context, o control.ListOptions) (*control.SessionList, error) {
	return l.client.List(ctx, o)
}

// Status implements Source.
func (l *Live) Status(ctx context.Context, id string) (*control.Status, error) {
	return l.client.Status(ctx, id)
}

// Group implements Source.
func (l *Live) Group(ctx context.Context, id string) (*control.GroupStatus, error) {
	return l.client.Group(ctx, id)
}

// Health implements Source.
func (l *Live) Health(ctx context.Context) (*control.Health, error) { return l.client.Health(ctx) }

// Document implements Source. It goes around JSON, in which every turn would repeat the conversation before it.
func (l *Live) Document(ctx context.Context, id string) (*export.Rollout, error) {
	return l.api.Document(ctx, id)
}

// Close implements Actor. It waits a moment for calls under way, as a person does.
func (l *Live) Close(ctx context.Context, id string) error {
	_, err := l.client.Close(ctx, id, control.CloseRequest{}, 5*time.Second, control.DocumentOptions{})
	return err
}

// Cancel implements Actor.
func (l *Live) Cancel(ctx context.Context, id, reason string) error {
	_, err := l.client.Cancel(ctx, id, reason)
	return err
}

// Events is where changes can be followed.
func (l *Live) Events() *events.Hub { return l.api.Sessions.Events() }

// direct hands requests to a handler of this process.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // as a server sees it: the target is a path, the address stands in Host
	r.Host = r.URL.Host
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &answer{header: http.Header{}}
	d.handler.ServeHTTP(w, r)
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: readCloser{bytes.NewReader(w.body.Bytes())}, ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// versionOf changes whenever a session's document may have.
func versionOf(s *control.Status) (string, error) {
	still := *s
	still.IdleS, still.InFlight = nil, 0
	text, err := json.Marshal(still)
	return string(text), err
}
