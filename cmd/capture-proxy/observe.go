package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"captureproxy/proxy"
	"captureproxy/proxy/metrics"
	"captureproxy/proxy/tracing"
)

// metrics counts what the proxy does. late is asked only once the proxy serves.
func (a *App) metrics(late func() int64) *metrics.Metrics {
	return metrics.New(metrics.Sources{
		Running: func() int { return len(a.sessions.Running()) },
		Late:    late,
		Ready:   func() bool { return a.store.Healthy() == nil },
		Waiting: a.store.Waiting,
		Version: version(),
	})
}

// observers are what calls are told to: the metrics, and traces where the environment asks for them. Traces that cannot be had
// keep no proxy from starting: the variables are often set for everything on a machine.
func (a *App) observers(ctx context.Context, counted *metrics.Metrics) []proxy.Observer {
	traces, err := tracing.FromEnvironment(ctx, version(), a.config.Logger)
	if err != nil {
		a.config.Logger.Warn("there will be no traces", zap.Error(err))
	}
	if traces == nil {
		return []proxy.Observer{counted}
	}
	a.traces = traces
	return []proxy.Observer{counted, traces}
}

// closeTraces sends the last spans. That they get lost is no failure of the proxy's.
func (a *App) closeTraces() {
	if a.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := a.traces.Close(ctx); err != nil {
		a.config.Logger.Warn("traces", zap.Error(err))
	}
}
