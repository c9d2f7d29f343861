package ingest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// protocol is a value of the label protocol.
type protocol string

const (
	protoHTTP protocol = "http"
	protoLine protocol = "line"
	protoGRPC protocol = "grpc"
	protoMQTT protocol = "mqtt"

	protoRemote   protocol = "remote_write"
	protoOTLPHTTP protocol = "otlp_http"
	protoOTLPGRPC protocol = "otlp_grpc"
)

// code returns the value of the label code: an HTTP status, or the name of a gRPC code.
func (p protocol) code(r result) string {
	switch p {
	case protoGRPC:
		return statuses[r].grpc.String()
	case protoOTLPGRPC:
		return otlpStatus(r).grpc.String()
	}
	return strconv.Itoa(p.status(r))
}

// status returns the HTTP status of a result.
func (p protocol) status(r result) int {
	switch {
	case p == protoRemote && r == tooSlow:
		return http.StatusServiceUnavailable // senders drop a request after 4xx
	case p == protoLine, p == protoRemote:
		return statuses[r].line
	case p == protoOTLPHTTP:
		return otlpStatus(r).http
	}
	return statuses[r].http
}

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	readings *prometheus.CounterVec
	rejected *prometheus.CounterVec
	repeated *prometheus.CounterVec
	dropped  prometheus.Counter
	ended    *prometheus.CounterVec
	busy     *prometheus.CounterVec
	skipped  *prometheus.CounterVec

	meters map[protocol]*meter
}

// A meter has the metrics of one protocol. They are looked up only once, because a lookup
// takes longer than counting.
type meter struct {
	requests [len(statuses)]prometheus.Counter // by result
	seconds  prometheus.Observer
	readings prometheus.Counter
	repeated prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		meters:   make(map[protocol]*meter),
		requests: counter("brim_ingest_requests_total", "Requests to write, by protocol and the status of their answer.", "protocol", "code"),
		seconds: factory.NewHistogramVec(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_ingest_request_seconds",
			Help: "Time from the arrival of a request's head to its answer.",
			// From decoding alone to the longest wait for MongoDB.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}), []string{"protocol"}),
		readings: counter("brim_ingest_readings_total", "Readings acknowledged, by protocol.", "protocol"),
		rejected: counter("brim_ingest_rejected_total", "Readings refused, by the rule that they broke.", "reason"),
		dropped:  counter("brim_ingest_fields_dropped_total", "Fields left out of readings, because their stream does not take them.").WithLabelValues(),
		busy:     counter("brim_ingest_busy_total", "Requests refused, and gRPC calls ended, for lack of memory (--ingest-max-bytes), by reason.", "reason"),
		repeated: counter("brim_ingest_repeated_total", "Requests answered as before, because their idempotency key was known, by protocol.", "protocol"),
		ended:    counter("brim_ingest_grpc_ended_total", "gRPC calls that were ended early, by reason.", "reason"),
		skipped:  counter("brim_ingest_samples_skipped_total", "Samples and exemplars of remote write, and OTLP data points, skipped without an error, by reason.", "reason"),
	}
	for _, p := range []protocol{protoHTTP, protoLine, protoGRPC, protoRemote, protoMQTT, protoOTLPHTTP, protoOTLPGRPC} {
		of := &meter{
			seconds: m.seconds.WithLabelValues(string(p)), readings: m.readings.WithLabelValues(string(p)), repeated: m.repeated.WithLabelValues(string(p)),
		}
		for i := range statuses {
			of.requests[i] = m.requests.WithLabelValues(string(p), p.code(result(i)))
		}
		m.meters[p] = of
	}
	for _, c := range telemetry.Codes() {
		m.rejected.WithLabelValues(string(c))
	}
	for _, why := range []string{skipStale, skipNaN, skipInfinite, skipExemplar, skipNoValue} {
		m.skipped.WithLabelValues(why)
	}
	for _, why := range []string{endHalfOpen, endUnread, endNoRoom, endSlow} {
		m.ended.WithLabelValues(why)
	}
	for _, why := range []string{busyWait, busyGrow, busyShare, busySlow} {
		m.busy.WithLabelValues(why)
	}
	return m
}

func (m *metrics) isBusy(why string) { m.busy.WithLabelValues(why).Inc() }

// watchBudget registers a gauge for the used part of the budget.
func (m *metrics) watchBudget(registerer prometheus.Registerer, b *budget) {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_ingest_memory_bytes",
		Help: "Memory reserved for requests that are not in the journal yet, out of --ingest-max-bytes.",
	}, func() float64 { return float64(b.held()) })
}

// answered counts one request and the readings of its answer. The readings of a repeated
// request were counted the first time.
func (m *metrics) answered(p protocol, r result, took time.Duration, a *answer) {
	of := m.meters[p]
	of.requests[r].Inc()
	of.seconds.Observe(took.Seconds())
	if a.repeated {
		of.repeated.Inc()
		return
	}
	if a.Accepted > 0 {
		of.readings.Add(float64(a.Accepted))
	}
	for code, n := range a.reasons {
		m.rejected.WithLabelValues(string(code)).Add(float64(n))
	}
}
