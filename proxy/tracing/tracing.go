// Package tracing tells OpenTelemetry of every call, when the environment names a place to send traces to:
//
//	t, err := tracing.FromEnvironment(ctx, version, logger) // nil where OTEL_EXPORTER_OTLP_ENDPOINT is not set
//	proxy.New(proxy.Config{Observers: []proxy.Observer{t}, …})
//	defer t.Close(ctx)
//
// A call is a span from its arrival to the release of its end, under the caller's own traceparent, with a child for the time
// that the engine took. Both are made when the call is over, from the times in its record, so that nothing is done while an
// answer passes. Exporting has a bounded queue of its own: a receiver that is slow or away costs spans, never a call.
//
// No text of a prompt or an answer, no key and no address is in a span. The session, whose id is a key, is a hash.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy"
)

// Tracer makes spans of calls; it is a [proxy.Observer].
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

var _ proxy.Observer = (*Tracer)(nil)

// FromEnvironment returns what OpenTelemetry's standard variables ask for (OTEL_EXPORTER_OTLP_*, OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_*), or nil when they ask for nothing: no endpoint, OTEL_SDK_DISABLED
// or OTEL_TRACES_EXPORTER=none. It does not connect.
func FromEnvironment(ctx context.Context, version string, logger *zap.Logger) (*Tracer, error) {
	if setting("ENDPOINT") == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if p := setting("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("tracing: OTEL_EXPORTER_OTLP_PROTOCOL is %q: traces are sent as http/protobuf only, usually to port 4318", p)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "capture-proxy"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the environment's come last and win
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(&quiet{SpanExporter: exporter, logger: logger}), sdk.WithResource(what))
	return &Tracer{provider: provider, tracer: provider.Tracer("capture-proxy", trace.WithInstrumentationVersion(version))}, nil
}

// setting is one of the exporter's variables, that for traces first.
func setting(name string) string {
	if v := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
		return v
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// Close sends what is left, within ctx.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("tracing: the last spans were not sent: %w", err)
	}
	return nil
}

// Refused implements [proxy.Observer]. What became no call is counted by metrics, and traced nowhere: strangers could fill a
// queue with it.
func (t *Tracer) Refused(record.Dialect, int) {}

// Settled implements [proxy.Observer].
func (t *Tracer) Settled(s *proxy.Settled) {
	c := s.Call
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s.Parent})
	operation := operations[c.Dialect]
	ctx, span := t.tracer.Start(ctx, strings.TrimSpace(operation+" "+c.Model), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.Timing.Received))
	if !span.IsRecording() { // not sampled
		span.End()
		return
	}
	span.SetAttributes(attributes(s, operation)...)
	if failed(s) {
		span.SetStatus(codes.Error, string(c.Outcome))
	}
	t.engine(ctx, c)
	span.End(trace.WithTimestamp(c.Timing.Recorded.Add(s.Store)))
}

// engine makes the span of the time from the dispatch of a call to the last of its answer.
func (t *Tracer) engine(ctx context.Context, c *record.Call) {
	if c.Timing.Dispatched.IsZero() {
		return
	}
	end := c.Timing.LastToken
	if end.IsZero() {
		end = c.Timing.Recorded
	}
	_, span := t.tracer.Start(ctx, "engine", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(c.Timing.Dispatched))
	if !c.Timing.FirstToken.IsZero() {
		span.AddEvent("first token", trace.WithTimestamp(c.Timing.FirstToken))
	}
	span.End(trace.WithTimestamp(end))
}

// operations are gen_ai.operation.name by dialect (OpenTelemetry's conventions for generative AI).
var operations = map[record.Dialect]string{
	record.OpenAIChat: "chat", record.OpenAIResponses: "chat", record.AnthropicMessages: "chat",
	record.OpenAICompletions: "text_completion", record.Google: "generate_content",
}

// failed says whether a call did not give its harness an answer, or gave one that is not on disk. What a harness ended itself,
// and what was refused for what it asked, is no failure of the proxy's or the engine's.
func failed(s *proxy.Settled) bool {
	return s.Lost || s.Call.Outcome == record.UpstreamError || s.Call.Outcome == record.Aborted
}

func attributes(s *proxy.Settled, operation string) []attribute.KeyValue {
	c := s.Call
	session := s.SessionHash()
	out := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", operation),
		attribute.String("gen_ai.conversation.id", session),
		attribute.Int("http.response.status_code", c.Status),
		attribute.String("capture_proxy.request_id", c.RequestID),
		attribute.Int("capture_proxy.call", c.Number),
		attribute.String("capture_proxy.outcome", string(c.Outcome)),
		attribute.String("capture_proxy.dialect", string(c.Dialect)),
		attribute.String("capture_proxy.capture_level", string(s.Level)),
		attribute.Bool("capture_proxy.stream", c.Stream),
		attribute.Bool("capture_proxy.trains", s.Trains),
		attribute.Float64("capture_proxy.store_seconds", s.Store.Seconds()),
	}
	text := func(key, value string) {
		if value != "" {
			out = append(out, attribute.String(key, value))
		}
	}
	text("gen_ai.request.model", c.Model)
	text("gen_ai.response.model", c.Served)
	if c.MaxTokens > 0 {
		out = append(out, attribute.Int("gen_ai.request.max_tokens", c.MaxTokens))
	}
	if n := c.Usage.Prompt; n != nil {
		out = append(out, attribute.Int64("gen_ai.usage.input_tokens", *n))
	}
	if n := c.Usage.Completion; n != nil {
		out = append(out, attribute.Int64("gen_ai.usage.output_tokens", *n))
	}
	var reasons []string
	for _, ch := range c.Choices {
		if ch.FinishReason != "" {
			reasons = append(reasons, ch.FinishReason)
		}
	}
	if len(reasons) > 0 {
		out = append(out, attribute.StringSlice("gen_ai.response.finish_reasons", reasons))
	}
	if c.RetryOf > 0 {
		out = append(out, attribute.Int("capture_proxy.retry_of", c.RetryOf))
	}
	for key, n := range map[string]int{"capture_proxy.resends": s.Resends, "capture_proxy.edits_asked_for": s.Fixes} {
		if n > 0 {
			out = append(out, attribute.Int(key, n))
		}
	}
	for key, is := range map[string]bool{"capture_proxy.late": s.Late, "capture_proxy.lost": s.Lost} {
		if is {
			out = append(out, attribute.Bool(key, true))
		}
	}
	return out
}

// quiet is an exporter whose failures are logged once a minute at most, and go nowhere else. One goroutine uses it, the batcher's.
type quiet struct {
	sdk.SpanExporter
	logger *zap.Logger
	said   time.Time
	lost   int // spans since then
}

func (q *quiet) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	q.lost += len(spans)
	if time.Since(q.said) > time.Minute {
		q.logger.Warn("traces could not be sent: calls are not affected", zap.Error(bounded(err)), zap.Int("lost_spans", q.lost))
		q.said, q.lost = time.Now(), 0
	}
	return nil
}

// bounded is an error whose text a receiver may have made long.
func bounded(err error) error {
	const most = 300
	if text := err.Error(); len(text) > most {
		return errors.New(text[:most] + "…")
	}
	return err
}
