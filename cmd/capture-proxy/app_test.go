package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"captureproxy/proxy/control"
)

// An app gives back all that it takes, however far it came.
func TestAppLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	config := Config{Listen: "127.0.0.1:0", Data: t.TempDir(), SessionTTL: time.Hour, DrainTimeout: time.Second, Logger: zap.NewNop()}
	app, err := NewApp(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx) }()
	transport := &http.Transport{}
	client := control.Client{URL: app.URL(), HTTP: &http.Client{Transport: transport}}
	if _, err := client.Create(ctx, control.CreateRequest{}); err != nil {
		t.Fatal(err)
	}

	if _, err := NewApp(t.Context(), config); err == nil {
		t.Error("a second app opened the same store")
	}
	taken := config
	taken.Listen, taken.Data = app.listener.Addr().String(), t.TempDir()
	if _, err := NewApp(t.Context(), taken); err == nil {
		t.Error("a second app listens at the same address")
	}
	taken.Engine.URL = "no address"
	var usage usageError
	if _, err := NewApp(t.Context(), taken); !errors.As(err, &usage) {
		t.Errorf("a bad upstream is %v, want a usage error", err)
	}

	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}
	transport.CloseIdleConnections()
	again, err := net.Listen("tcp", app.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	reopened, err := NewApp(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(reopened.sessions.Running()); n != 1 {
		t.Errorf("%d sessions go on, want 1", n)
	}
	if err := reopened.Close(); err != nil {
		t.Error(err)
	}
}
