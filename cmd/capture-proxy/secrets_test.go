package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"captureproxy/internal/fakeengine"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
)

// Over a whole session with debug logging no key stands in a log line, an answer, the metrics, the store or the document; the
// session's own id, a key too, in the store and the document only.
func TestKeysStandNowhere(t *testing.T) {
	const upstreamKey, admin, stranger, id = "marker-upstream-key", "marker-admin-key", "marker-stranger-key", "marker-session"
	fake, err := fakeengine.Start(fakeengine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	var logs bytes.Buffer
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(&logs)), zap.DebugLevel))
	dir := t.TempDir()
	app, err := NewApp(t.Context(), Config{Listen: "127.0.0.1:0", Data: dir, AdminKey: admin, Engine: engine.Config{URL: fake.URL, Key: upstreamKey},
		DrainTimeout: time.Second, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx) }()
	client := control.Client{URL: app.URL(), Key: admin}
	if _, err := client.Create(ctx, control.CreateRequest{SessionID: new(id)}); err != nil {
		t.Fatal(err)
	}
	var answers bytes.Buffer
	get := func(method, path, key, body string) {
		req, err := http.NewRequest(method, app.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := resp.Header.Write(&answers); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(&answers, resp.Body) // one of them is cut
	}
	for _, text := range []string{"hi", "[[fault:status 500]]", "[[fault:status 401]]", "[[fault:status 400]]", "[[fault:cut 2]]"} {
		for _, stream := range []string{"true", "false"} {
			get(http.MethodPost, "/v1/chat/completions?key="+stranger, id, `{"stream":`+stream+`,"messages":[{"role":"user","content":"`+text+`"}]}`)
		}
	}
	get(http.MethodPost, "/v1/messages", stranger, `{}`)
	get(http.MethodGet, "/sessions", stranger, "")
	get(http.MethodGet, "/health", "", "")
	get(http.MethodGet, "/metrics", "", "")
	doc, err := client.Close(ctx, id, control.CloseRequest{}, time.Second, control.DocumentOptions{IncludeMessages: true, IncludeDiscarded: true})
	if err != nil {
		t.Fatal(err)
	}
	get(http.MethodPost, "/v1/chat/completions", id, `{}`)
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{"the logs": logs.Bytes(), "an answer": answers.Bytes(), "the document": doc}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found["the store"] = append(found["the store"], data...)
	}
	if len(found["the store"]) == 0 || !bytes.Contains(found["the logs"], []byte(`"request":`)) || !bytes.Contains(doc, []byte(id)) {
		t.Fatal("there is nothing to look at")
	}
	for place, text := range found {
		for _, key := range []string{upstreamKey, admin, stranger} {
			if bytes.Contains(text, []byte(key)) {
				t.Errorf("%s stands in %s", key, place)
			}
		}
	}
	for _, place := range []string{"the logs", "an answer"} {
		if bytes.Contains(found[place], []byte(id)) {
			t.Errorf("the session's id stands in %s", place)
		}
	}
}
