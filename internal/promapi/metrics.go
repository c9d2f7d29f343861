package promapi

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/read"
)

// Values of the label code that are no status of HTTP.
const (
	codeGone  = "gone"  // the client went away before it had an answer
	codeOther = "other" // a status that is not listed
)

// codes are the values of the label.
var codes = []string{"200", "400", "403", "404", "413", "422", "500", "503", codeGone, codeOther}

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	samples  prometheus.Counter
	sensors  *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{}
	m.requests = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_promql_requests_total",
		Help: "Requests to the Prometheus query API, by call and status of the answer (422: over a limit, or not to be evaluated); gone: the client disconnected.",
	}, []string{"call", "code"})
	m.seconds = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "brim_promql_seconds",
		Help:    "Time from the arrival of a request to the Prometheus query API to the end of its answer.",
		Buckets: read.SecondsBuckets,
	}, []string{"call"})
	m.samples = factory.NewCounter(prometheus.CounterOpts{Name: "brim_promql_samples_total", Help: "Samples read for queries."})
	m.sensors = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_promql_sensors_total", Help: "Sensors read for queries, by what was read: readings, statistics of buckets and readings that those do not cover, or nothing (shared), since another query read them at the same moment.",
	}, []string{"source"})
	for _, name := range []string{sourceReadings, sourceShared, sourceStatistics} {
		m.sensors.WithLabelValues(name)
	}
	for _, e := range append(slices.Clone(endpoints), *labelValues()) {
		m.seconds.WithLabelValues(e.name)
		for _, code := range codes {
			m.requests.WithLabelValues(e.name, code)
		}
	}
	return m
}

func (m *metrics) answered(call, code string, begin time.Time) {
	if !slices.Contains(codes, code) {
		code = codeOther
	}
	m.requests.WithLabelValues(call, code).Inc()
	m.seconds.WithLabelValues(call).Observe(time.Since(begin).Seconds())
}
