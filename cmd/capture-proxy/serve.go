package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"captureproxy/internal/record"
	"captureproxy/proxy/webhook"
	"captureproxy/store/postgres"
)

// proxyFlags describe a proxy; serve has them all, run and demo those that make sense there.
type proxyFlags struct {
	engine engineFlags
	log    logFlags
	config Config
	shared *choice
	// reasoning is empty unless one of its words was given.
	reasoning  *choice
	continuity *choice
	body       size
}

// addCapture adds the flags of a proxy that serves one session or many.
func (f *proxyFlags) addCapture(flags *pflag.FlagSet) {
	f.engine.add(flags)
	f.shared = oneOf(string(record.SharedEvery), string(record.SharedOnce))
	f.reasoning = &choice{"", []string{"reasoning", "reasoning_content"}}
	f.continuity = oneOf("auto", "on", "off")
	f.body = 64 << 20
	flags.IntVar(&f.config.MaxModelCalls, "max-model-calls", 0, "model calls per session, 0 for no limit")
	flags.IntVar(&f.config.MaxOutputTokens, "max-output-tokens", 0, "output cap of every call in tokens, 0 for none")
	flags.Var(f.shared, "shared", f.shared.usage("in how many rows a turn that lies on several is trained"))
	flags.BoolVar(&f.config.TrainAborted, "train-aborted", false, "let answers be trained that the engine gave up on")
	flags.BoolVar(&f.config.AllowRawLogprobs, "allow-raw-logprobs", false, "let logprobs be trained that are not those of the sampled distribution")
	flags.Var(f.reasoning, "reasoning-field", f.reasoning.usage("the one field in which the harness knows reasoning (default the engine's own)"))
	flags.Var(f.continuity, "continuity", f.continuity.usage("send the engine its own ids for the past of a conversation; auto does for sessions of purpose train"))
	flags.Var(&f.body, "max-body", "largest request body")
	flags.StringSliceVar(&f.config.Relay, "relay", nil, "further `PATH`s to pass on without recording")
	flags.DurationVar(&f.config.DrainTimeout, "drain-timeout", 30*time.Second, "how long calls may still run when the proxy stops")
}

// take returns the configuration that the flags describe.
func (f *proxyFlags) take() (Config, error) {
	c := f.config
	switch u, err := url.Parse(c.PublicURL); {
	case c.MaxModelCalls < 0 || c.MaxOutputTokens < 0:
		return c, usagef("--max-model-calls and --max-output-tokens must not be negative")
	case c.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return c, usagef("--public-url %s: write it as https://proxy.example.org", c.PublicURL)
	}
	if _, err := webhook.CheckURL(c.Webhook); c.Webhook != "" && err != nil {
		return c, usagef("--webhook: %w", err)
	}
	c.Engine = f.engine.config()
	c.AdminKey, c.Engine.Key = strings.TrimSpace(c.AdminKey), strings.TrimSpace(c.Engine.Key) // files of secrets end in a line break
	c.Secret = strings.TrimSpace(c.Secret)
	c.Shared, c.ReasoningField = record.Shared(f.shared.value), f.reasoning.value
	c.Continuity, c.MaxBody = f.continuity.value, int64(f.body)
	logger, err := f.log.logger()
	c.Logger = logger
	return c, err
}

func newServe() *cobra.Command {
	var flags proxyFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy",
		Long: `serve runs the proxy until it is interrupted. It then takes no new calls, lets running ones finish within --drain-timeout,
and ends. Sessions that are running go on when it starts again.

Without --upstream every session names its own engine. An engine that is down does not keep the proxy from starting.`,
		Example: `  capture-proxy serve --upstream http://127.0.0.1:8000
  CAPTURE_PROXY_ADMIN_KEY=secret capture-proxy serve --listen 0.0.0.0:8100 --upstream http://10.0.0.5:8000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config, err := flags.take()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			app, err := NewApp(ctx, config)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, app.Close()) }()
			printStart(cmd.OutOrStdout(), app)
			defer runtime.KeepAlive(ballast())
			return app.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.config.Listen, "listen", "127.0.0.1:8100", "address to listen on")
	f.StringVar(&flags.config.Data, "data", "./capture-data", "directory of the embedded store")
	f.StringVar(&flags.config.Store, "store", "", "address of a database in place of --data, postgres://…, which any number of proxies share; better given as CAPTURE_PROXY_STORE")
	f.StringVar(&flags.config.AdminKey, "admin-key", "", "key of the control API; needed to listen beyond loopback")
	f.StringVar(&flags.config.PublicURL, "public-url", "", "what base_url says, for a proxy behind a load balancer")
	f.StringVar(&flags.config.OutDir, "out-dir", "", "directory that gets the document of every session that is closed")
	f.StringVar(&flags.config.Webhook, "webhook", "", "`URL` that the document of every session is posted to when it ends, again until it is taken")
	f.StringVar(&flags.config.Secret, "secret", "", "encrypts the API keys that sessions bring, which then survive a restart; give it as CAPTURE_PROXY_SECRET")
	f.StringSliceVar(&flags.config.AllowUpstream, "allow-upstream", nil, "`PATTERN`s of engine URLs that a session may name, as in http://10.0.0.*:8000/v1; * stays within one part of a name")
	f.BoolVar(&flags.config.AllowUnregistered, "allow-unregistered", false, "give an unknown API key a session of its own (loopback only)")
	f.DurationVar(&flags.config.SessionTTL, "session-ttl", 24*time.Hour, "sessions idle for this long expire, 0 for never")
	flags.addCapture(f)
	flags.log.add(f, "info")
	return cmd
}

// ballast is memory that nobody ever touches, so the kernel never gives it. The garbage collector counts it all the same, and
// lets the heap grow by as much before it collects: a proxy holds a few megabytes, and would otherwise collect them
// dozens of times a second under load.
func ballast() []byte { return make([]byte, 64<<20) }

// printStart tells a person what is running and what to do next.
func printStart(w io.Writer, app *App) {
	c, ink := app.config, colours(w)
	upstream, control, auth := "none: sessions name their own with llm_url", ink.yellow("open to every process of this machine (no --admin-key)"), ""
	if c.Engine.URL != "" {
		upstream = app.hub.Default().URL()
	}
	if c.AdminKey != "" {
		control, auth = "needs the admin key", ` -H "Authorization: Bearer $CAPTURE_PROXY_ADMIN_KEY"`
	}
	data := c.Data
	if c.Store != "" {
		data = postgres.Name(c.Store)
	}
	fmt.Fprintf(w, "%s %s\n\n", ink.bold("capture-proxy"), version())
	fmt.Fprintf(w, "  listening at  %s\n  upstream      %s\n  data          %s\n  control API   %s\n  pages         %s/ui/\n\n", app.URL(), upstream, data, control, app.URL())
	if n := len(app.sessions.Running()); n > 0 {
		fmt.Fprintf(w, "Sessions that go on from before: %d\n\n", n)
	}
	fmt.Fprintf(w, "Create a session; its id is the harness's API key:\n\n  curl -s%s -H 'Content-Type: application/json' -d '{}' %s/sessions\n\n", auth, app.URL())
}
