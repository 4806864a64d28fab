package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy"
	"captureproxy/proxy/control"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/session"
	"captureproxy/proxy/tracing"
	"captureproxy/proxy/webhook"
	"captureproxy/store"
	"captureproxy/store/postgres"
)

// Config is what a proxy is built from.
type Config struct {
	Listen    string
	Data      string // directory of the embedded store
	Store     string // address of a database in place of it, a secret; "" for none
	AdminKey  string
	PublicURL string
	// Engine is the default engine; without a URL there is none.
	Engine            engine.Config
	AllowUpstream     []string
	Secret            string // seals the credentials of engines that sessions name, "" to keep them in memory only
	AllowUnregistered bool
	OutDir            string // gets the document of every session that is closed
	Webhook           string // gets the document of every session that ends
	Relay             []string

	Shared           record.Shared
	TrainAborted     bool
	AllowRawLogprobs bool
	ReasoningField   string // name under which harnesses get and send reasoning, "" for the engine's own
	Continuity       string // of sessions that do not say: auto, on or off
	MaxModelCalls    int    // per session, 0 for no limit
	MaxOutputTokens  int    // per call, 0 for no cap
	MaxBody          int64

	SessionTTL   time.Duration // 0 for never
	DrainTimeout time.Duration
	Logger       *zap.Logger
}

// appStore is what an App keeps its log in.
type appStore interface {
	store.Store
	Waiting() (writes int, bytes int64) // that are not durable yet
}

// App is a proxy: a store, the sessions in it, the engines they use, and a listener.
type App struct {
	config   Config
	hub      *engine.Hub
	listener net.Listener
	store    appStore
	sessions *session.Registry
	webhook  *webhook.Sender // nil without one
	traces   *tracing.Tracer // nil when nobody wants them
	http     *http.Server

	background sync.WaitGroup // what Run starts beside the server
	closing    sync.Once
	closed     error
}

// goodKey is a length at which a random key cannot be found by trying.
const goodKey = 16

// NewApp opens a proxy: it listens, and serves once Run is called. Running sessions of an earlier process go on.
func NewApp(ctx context.Context, c Config) (*App, error) {
	if err := checkListen(c.Listen, c.AdminKey, c.AllowUnregistered); err != nil {
		return nil, err
	}
	if !onLoopback(c.Listen) && len(c.AdminKey) < goodKey {
		c.Logger.Warn("the admin key is short, and who reaches the control API may try keys as fast as it answers: take a random one, as `openssl rand -base64 24` prints them")
	}
	a := &App{config: c}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(ctx context.Context) (err error) {
	c := a.config
	c.Engine.Memory, err = engine.OpenMemory(filepath.Join(c.Data, "engines.json"), func(err error) {
		c.Logger.Warn("engines will be measured again by the next process", zap.Error(err))
	})
	if err != nil {
		return err
	}
	box, err := sealer(c.Secret)
	if err != nil {
		return err
	}
	if a.hub, err = engine.NewHub(c.Engine); err != nil {
		return usageError{err}
	}
	if a.listener, err = net.Listen("tcp", c.Listen); err != nil {
		return fmt.Errorf("%w: stop what listens there, or choose another address with --listen", err)
	}
	if a.store, err = openStore(ctx, c); err != nil {
		return err
	}
	if a.sessions, err = session.Open(ctx, a.store, time.Now, control.EngineOf(a.hub, c.AllowUpstream, box, a.sealedOtherwise())); err != nil {
		return err
	}
	redeliver, err := a.openWebhook(box)
	if err != nil {
		return err
	}
	var server *proxy.Server
	counted := a.metrics(func() int64 { return server.Late() })
	api := control.New(control.Options{
		Sessions: a.sessions, Store: a.store, Engines: a.hub, Logger: c.Logger,
		AdminKey: c.AdminKey, Loopback: onLoopback(c.Listen), PublicURL: c.PublicURL, AllowUpstream: c.AllowUpstream, Secret: box, Redeliver: redeliver,
		MaxModelCalls: c.MaxModelCalls, Shared: c.Shared, TrainAborted: c.TrainAborted, AllowRawLogprobs: c.AllowRawLogprobs,
		ReasoningField: c.ReasoningField, Continuity: c.Continuity, OutDir: c.OutDir, ProxyVersion: version(), Instance: instance(), RequireRegistered: !c.AllowUnregistered,
		Late: func() int64 { return server.Late() }, Metrics: counted.Handler(),
	})
	surface, err := a.withPages(api)
	if err != nil {
		return err
	}
	server = proxy.New(proxy.Config{
		Sessions: a.sessions, Log: a.store, Control: surface, Default: a.hub.Default(), Logger: c.Logger, Observers: a.observers(ctx, counted), Unregistered: a.unregistered(),
		MaxBody: c.MaxBody, MaxOutputTokens: c.MaxOutputTokens, ReasoningField: c.ReasoningField, Continuity: c.Continuity, Relay: c.Relay, Idle: c.Engine.Timeouts.Idle,
	})
	var handler http.Handler = server
	if c.AllowUnregistered {
		handler = keepPagesOut(server)
	}
	a.http = newHTTPServer(handler, c.Logger)
	return nil
}

// openStore opens the database where one is named, else the embedded store.
func openStore(ctx context.Context, c Config) (appStore, error) {
	if c.Store != "" {
		return openDatabase(ctx, c.Store)
	}
	log, err := store.Open(c.Data, store.Options{})
	if err != nil {
		return nil, err
	}
	for _, d := range log.Damage() { // whose sessions say so themselves; their ids are keys, and no business of a log
		c.Logger.Error("part of the store cannot be read any more", zap.String("file", d.File), zap.Int64("offset", d.Offset),
			zap.Int64("length", d.Length), zap.String("reason", d.Reason))
	}
	return log, nil
}

// openDatabase opens a store that proxies share.
func openDatabase(ctx context.Context, address string) (appStore, error) {
	if !postgres.IsAddress(address) {
		return nil, usagef("--store: write the database's address as postgres://user:password@host:port/database")
	}
	st, err := postgres.Open(ctx, address, postgres.Options{})
	if err != nil {
		return nil, err // not st, which would be no nil
	}
	return st, nil
}

func newHTTPServer(h http.Handler, logger *zap.Logger) *http.Server {
	return proxy.NewHTTPServer(h, proxy.Limits{}, zap.NewStdLog(logger.Named("http")))
}

// instance names this process among several.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// URL is how the proxy is reached from this machine.
func (a *App) URL() string { return baseURL(a.listener) }

// Run serves until ctx is done, then drains: no new calls, running ones finish within the drain timeout. It returns nil
// when it ended in good order.
func (a *App) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer a.background.Wait()
	defer stop()
	a.background.Go(func() { a.measure(work) })
	a.background.Go(func() { a.expire(work) })
	if a.webhook != nil {
		a.background.Go(func() { a.webhook.Run(work) })
	}

	served := make(chan error, 1)
	go func() { served <- a.http.Serve(a.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("the proxy stopped serving: %w", err)
	case <-ctx.Done():
	}
	a.config.Logger.Info("draining: no new calls, running ones may finish", zap.Duration("within", a.config.DrainTimeout))
	patience, cancel := context.WithTimeout(work, a.config.DrainTimeout)
	defer cancel()
	a.sessions.Drain(patience)
	a.shutdown(work)
	<-served
	return nil
}

// shutdown ends the connections. No model call is left by now, so what still runs is cut after a moment.
func (a *App) shutdown(ctx context.Context) {
	moment, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := a.http.Shutdown(moment); err != nil {
		a.config.Logger.Warn("some connections were cut", zap.Error(err), zap.NamedError("closing", a.http.Close()))
	}
}

// measure finds out what the default engine can do, so that the first session need not wait for it.
func (a *App) measure(ctx context.Context) {
	up := a.hub.Default()
	if up == nil {
		return
	}
	p := up.Measure(ctx)
	if !p.Measured {
		a.config.Logger.Warn("the engine does not answer: it is measured when it first does", zap.String("upstream", up.URL()))
		return
	}
	a.config.Logger.Info("engine measured", zap.String("upstream", up.URL()), zap.String("model", p.Served), zap.String("capture_level", string(p.Level)),
		zap.Bool("stream_capture", p.StreamCapture), zap.String("logprobs_mode", string(p.LogprobsMode)), zap.Bool("tool_support", p.ToolSupport),
		zap.Strings("findings", p.Findings))
}

// Close gives everything back. It does not wait for calls; Run does.
func (a *App) Close() error {
	a.closing.Do(func() {
		if a.http != nil {
			a.closed = a.http.Close()
		}
		if a.listener != nil {
			if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) {
				a.closed = errors.Join(a.closed, err)
			}
		}
		if a.hub != nil {
			a.hub.Close()
		}
		if a.sessions != nil {
			a.closed = errors.Join(a.closed, a.sessions.Close())
		}
		if a.store != nil {
			a.closed = errors.Join(a.closed, a.store.Close())
		}
		a.closeTraces()
	})
	return a.closed
}
