// Package metrics counts what a proxy does, for Prometheus. [New] makes a set of its own, without any global registry:
//
//	m := metrics.New(metrics.Sources{Running: …, Waiting: …, Late: …})
//	proxy.New(proxy.Config{Observers: []proxy.Observer{m}, …})
//	control.New(control.Options{Metrics: m.Handler(), …})
//
// The page is open to whoever reaches the proxy. So no label ever holds what a caller gave or an operator configured: no
// session, no model, no address, only words from closed lists. What is gauged is asked when somebody looks.
package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"captureproxy/internal/record"
	"captureproxy/proxy"
)

// Sources are asked when the page is. They are quick and safe for concurrent use; nil ones are left out.
type Sources struct {
	Running func() int                       // sessions
	Waiting func() (writes int, bytes int64) // for the store
	Late    func() int64                     // answers that went out before they were durable, and still are not
	Ready   func() bool                      // the store takes writes
	Version string                           // of the program
}

// Metrics counts; it is a [proxy.Observer].
type Metrics struct {
	registry *prometheus.Registry

	calls   *prometheus.CounterVec
	refused *prometheus.CounterVec
	tokens  *prometheus.CounterVec
	before  *prometheus.HistogramVec
	after   *prometheus.HistogramVec
	store   prometheus.Histogram
	late    prometheus.Counter
	lost    prometheus.Counter
	resends prometheus.Counter
	fixes   prometheus.Counter
}

var _ proxy.Observer = (*Metrics)(nil)

// added are the upper bounds, in seconds, for what ought to be microseconds.
func added() []float64 {
	return []float64{25e-6, 50e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 2, 10}
}

// disk are the upper bounds, in seconds, for a durable write.
func disk() []float64 {
	return []float64{100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2, 5, 30}
}

// New returns metrics that have counted nothing.
func New(s Sources) *Metrics {
	const ns = "capture_proxy"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: name, Help: help, Buckets: buckets}, labels)
	}
	store := histogram("store_seconds", "From handing a call to the store until it was durable.", disk())
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "calls_total",
			Help: "Model calls that ended, by how."}, []string{"outcome", "dialect", "capture_level"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "refused_total",
			Help: "Requests on model routes that became no call, by the status that they got: no session, an ended one, a wrong path."}, []string{"status", "dialect"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: "tokens_total",
			Help: "Tokens as engines counted them: prompt, completion; and trainable, sampled for training by calls whose capture is whole."}, []string{"kind"}),
		before:  histogram("before_dispatch_seconds", "Time in the proxy from the last byte of a request to its dispatch.", added(), "dialect"),
		after:   histogram("before_release_seconds", "Time in the proxy from the last byte of an answer to the release of its end, durable write included.", added(), "dialect"),
		store:   store.WithLabelValues().(prometheus.Histogram),
		late:    counter("late_answers_total", "Answers that went out before they were durable, because the store was slow."),
		lost:    counter("lost_calls_total", "Calls that were answered and could not be recorded."),
		resends: counter("upstream_resends_total", "Attempts that were made again because the engine had not worked on the call."),
		fixes:   counter("upstream_edits_total", "Edits that engines asked for by refusing a call."),
	}
	m.registry.MustRegister(m.calls, m.refused, m.tokens, m.before, m.after, store, m.late, m.lost, m.resends, m.fixes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.ask(ns, s)
	return m
}

// ask registers what is asked for when somebody looks.
func (m *Metrics) ask(ns string, s Sources) {
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help, ConstLabels: labels}, value))
	}
	if s.Running != nil {
		gauge("sessions", "Sessions on this proxy, by status.", prometheus.Labels{"status": string(record.Running)}, func() float64 { return float64(s.Running()) })
	}
	if s.Waiting != nil {
		gauge("store_waiting_writes", "Writes that wait for the disk.", nil, func() float64 { n, _ := s.Waiting(); return float64(n) })
		gauge("store_waiting_bytes", "Bytes that wait for the disk.", nil, func() float64 { _, n := s.Waiting(); return float64(n) })
	}
	if s.Late != nil {
		gauge("late_answers", "Answers that went out and are not durable yet.", nil, func() float64 { return float64(s.Late()) })
	}
	if s.Ready != nil {
		gauge("store_healthy", "Whether the store takes writes.", nil, func() float64 {
			if s.Ready() {
				return 1
			}
			return 0
		})
	}
	gauge("info", "What is running.", prometheus.Labels{"version": s.Version}, func() float64 { return 1 })
}

// Refused implements [proxy.Observer].
func (m *Metrics) Refused(d record.Dialect, status int) {
	m.refused.WithLabelValues(strconv.Itoa(status), string(d)).Inc()
}

// Settled implements [proxy.Observer].
func (m *Metrics) Settled(s *proxy.Settled) {
	c := s.Call
	level, dialect := string(s.Level), string(c.Dialect)
	if level == "" {
		level = "unknown" // the engine has not been measured yet
	}
	m.calls.WithLabelValues(string(c.Outcome), dialect, level).Inc()
	if s.Before >= 0 {
		m.before.WithLabelValues(dialect).Observe(s.Before.Seconds())
	}
	if s.After >= 0 {
		m.after.WithLabelValues(dialect).Observe(s.After.Seconds())
	}
	m.store.Observe(s.Store.Seconds())
	if s.Late {
		m.late.Inc()
	}
	if s.Lost {
		m.lost.Inc()
	}
	m.resends.Add(float64(s.Resends))
	m.fixes.Add(float64(s.Fixes))
	m.count(s)
}

// count adds a call's tokens. A count that is not known adds nothing.
func (m *Metrics) count(s *proxy.Settled) {
	add := func(kind string, n int64) {
		if n > 0 { // a counter refuses what an engine may say
			m.tokens.WithLabelValues(kind).Add(float64(n))
		}
	}
	c := s.Call
	if c.Usage.Prompt != nil {
		add("prompt", *c.Usage.Prompt)
	} else if len(c.Choices) > 0 {
		add("prompt", int64(len(c.Choices[0].PromptIDs)))
	}
	var sampled, trainable int64
	for _, ch := range c.Choices {
		sampled += int64(len(ch.SampledIDs))
		if s.Trains && (ch.Outcome == record.Complete || ch.Outcome == record.Length) {
			trainable += int64(len(ch.SampledIDs))
		}
	}
	if c.Usage.Completion != nil {
		sampled = *c.Usage.Completion
	}
	add("completion", sampled)
	add("trainable", trainable)
}

// Handler serves the page.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4})
}
