package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"captureproxy/internal/fakeengine"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
)

// Whatever callers and engines say, a line of the log is one line that the proxy began, without control characters: nobody can
// write lines of their own into it, or colour a terminal.
func TestLogLinesStayLines(t *testing.T) {
	for format, begin := range map[string]*regexp.Regexp{
		"console": regexp.MustCompile(`^20\d\d-\d\d-\d\dT[0-9:.]+(Z|[+-]\d+)\t(DEBUG|INFO|WARN|ERROR)\t`),
		"json":    regexp.MustCompile(`^\{"level":".*\}$`),
	} {
		t.Run(format, func(t *testing.T) {
			const nasty = "x\\n2026-01-01T00:00:00.000Z\\tERROR\\tforged \\u001b[31mred\\r\\u2028" // as JSON spells it
			fake, err := fakeengine.Start(fakeengine.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer fake.Close()
			file := filepath.Join(t.TempDir(), "log")
			flags := logFlags{level: &choice{"debug", nil}, format: &choice{format, nil}}
			logger, err := flags.logger(file)
			if err != nil {
				t.Fatal(err)
			}
			app, err := NewApp(t.Context(), Config{Listen: "127.0.0.1:0", Data: t.TempDir(), Engine: engine.Config{URL: fake.URL}, DrainTimeout: time.Second, Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- app.Run(ctx) }()
			client := control.Client{URL: app.URL()}
			made, err := client.Create(ctx, control.CreateRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range []string{"", "[[fault:status 400]]", "[[fault:status 500]]", "[[fault:cut 1]]", "[[fault:error-event 1]]"} {
				req, err := http.NewRequest(http.MethodPost, app.URL()+"/v1/chat/completions?x=%0aforged%1b", strings.NewReader(
					`{"model":"`+nasty+`","stream":true,"user":"`+nasty+`","messages":[{"role":"user","content":"`+nasty+fault+`"}]}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+made.SessionID)
				req.Header.Set("User-Agent", "agent\u009b31m")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body) // some are cut
				res.Body.Close()
			}
			stop()
			if err := <-ran; err != nil {
				t.Fatal(err)
			}
			if err := app.Close(); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
			if len(lines) < 5 {
				t.Fatalf("there is nothing to look at: %q", lines)
			}
			for _, line := range lines {
				if !begin.MatchString(line) || strings.ContainsAny(line, "\x1b\r\u009b\u2028\x00") {
					t.Errorf("%q", line)
				}
			}
		})
	}
}
