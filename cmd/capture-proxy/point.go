package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/tidwall/gjson"

	"captureproxy/cmd/capture-proxy/harness"
	"captureproxy/proxy/engine"
)

const (
	anyModel      = "policy" // the name of the model where nobody gave one: the proxy puts the served name in its place
	usualContext  = 64_000   // tokens, for an engine that does not tell its window
	askingTimeout = 10 * time.Second
)

// pointed is an agent's recipe at work: the variables that point it at the proxy, and its files.
type pointed struct {
	env []string
	dir string // "" without files
}

// point prepares an agent for a recording.
func point(ctx context.Context, h harness.Harness, c Config, rec *recording) (p pointed, err error) {
	if !h.Recipe {
		return p, nil
	}
	at := harness.Endpoint{URL: rec.app.URL(), Session: rec.created.SessionID, Model: anyModel}
	if m := rec.created.Model; m != nil {
		at.Model = cmp.Or(*m, anyModel)
	}
	if at.Context, err = contextWindow(ctx, c.Engine, at.Model); err != nil {
		return p, err
	}
	if h.NeedsDir() {
		if p.dir, err = os.MkdirTemp("", "capture-proxy-"+h.Name+"-"); err != nil {
			return p, err
		}
		at.Dir = p.dir
	}
	if p.env, err = h.Prepare(at); err != nil {
		return p, errors.Join(fmt.Errorf("preparing %s: %w", h.Name, err), p.remove())
	}
	return p, nil
}

// remove takes the recipe's files away.
func (p pointed) remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}

// contextWindow asks an engine for a model's window in tokens. An engine that is down or does not say has the usual one.
func contextWindow(ctx context.Context, c engine.Config, model string) (int, error) {
	up, err := engine.NewUpstream(c)
	if err != nil {
		return 0, err
	}
	defer up.Close()
	ctx, cancel := context.WithTimeout(ctx, askingTimeout)
	defer cancel()
	resp, err := up.Do(ctx, &engine.Request{Method: http.MethodGet, Path: "/models"})
	if err != nil {
		return usualContext, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return usualContext, nil
	}
	window := usualContext
	gjson.GetBytes(text, "data").ForEach(func(_, m gjson.Result) bool {
		if n := m.Get("max_model_len").Int(); n > 0 && m.Get("id").String() == model {
			window = int(n)
		}
		return true
	})
	return window, nil
}
