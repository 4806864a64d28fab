package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/proxy/control"
)

// recording is a proxy of a command's own, with one session in it. Nobody else has its admin key.
type recording struct {
	app     *App
	client  *control.Client
	created *control.Created

	temporary string // the store's directory when it is only for this recording
	stop      context.CancelFunc
	served    chan error
}

// startRecording starts a proxy on a free loopback port and creates the session. Without c.Data the store is a temporary
// directory that goes away with the recording.
func startRecording(ctx context.Context, c Config, req control.CreateRequest) (*recording, error) {
	r := &recording{served: make(chan error, 1)}
	c.Listen, c.AdminKey = "127.0.0.1:0", rand.Text()
	if c.Data == "" {
		dir, err := os.MkdirTemp("", "capture-proxy-")
		if err != nil {
			return nil, err
		}
		r.temporary, c.Data = dir, dir
	}
	serving, stop := context.WithCancel(ctx)
	app, err := NewApp(serving, c)
	if err != nil {
		stop()
		return nil, errors.Join(err, r.cleanUp())
	}
	r.app, r.stop, r.client = app, stop, &control.Client{URL: app.URL(), Key: c.AdminKey}
	go func() { r.served <- app.Run(serving) }()
	if r.created, err = r.client.Create(ctx, req); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// closeWait is how long calls that the harness left behind may still run.
const closeWait = 10 * time.Second

// finish closes the session and writes its document, with everything in it, to path.
func (r *recording) finish(ctx context.Context, outcome *control.Outcome, path string) (*export.Rollout, error) {
	everything := control.DocumentOptions{IncludeDiscarded: true, IncludeMessages: true}
	text, err := r.client.Close(ctx, r.created.SessionID, control.CloseRequest{Outcome: outcome}, closeWait, everything)
	if err != nil {
		return nil, fmt.Errorf("closing the session: %w", err)
	}
	if err := writeFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}); err != nil {
		return nil, fmt.Errorf("writing the rollout: %w", err)
	}
	return export.Read(bytes.NewReader(text))
}

// close stops the proxy and removes a temporary store.
func (r *recording) close() error {
	return errors.Join(r.halt(), r.cleanUp())
}

// keep stops the proxy and leaves the store where it is, for a recording that could not be written. It returns the
// directory.
func (r *recording) keep() (string, error) {
	return r.app.config.Data, r.halt()
}

func (r *recording) halt() error {
	r.stop()
	return errors.Join(<-r.served, r.app.Close())
}

func (r *recording) cleanUp() error {
	if r.temporary == "" {
		return nil
	}
	return os.RemoveAll(r.temporary)
}

// complain logs what went wrong after the result was safe.
func complain(logger *zap.Logger, err error) {
	if err != nil {
		logger.Warn("tidying up failed", zap.Error(err))
	}
}
