package promapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/read"
)

// codeGone is a value of the label code: the client went away before it got an answer.
const codeGone = "gone"

type metrics struct {
	calls   *read.Calls
	samples prometheus.Counter
	sensors *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	calls := []string{callLabelValues}
	for _, e := range endpoints {
		calls = append(calls, e.name)
	}
	m := &metrics{calls: read.NewCalls(registerer, read.CallsOpts{
		Name:     "brim_promql",
		Requests: "Requests to the Prometheus query API, by call and status of the answer (422: over a limit, or not to be evaluated); gone: the client disconnected.",
		Seconds:  "Time from the arrival of a request to the Prometheus query API to the end of its answer.",
		Calls:    calls, Codes: []string{"200", "400", "403", "404", "413", "422", "500", "503", codeGone, "other"},
	})}
	m.samples = factory.NewCounter(prometheus.CounterOpts{Name: "brim_promql_samples_total", Help: "Samples read for queries."})
	m.sensors = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_promql_sensors_total", Help: "Sensors read for queries, by what was read: readings, statistics of buckets and readings that those do not cover, or nothing (shared), since another query read them at the same moment.",
	}, []string{"source"})
	for _, name := range []string{sourceReadings, sourceShared, sourceStatistics} {
		m.sensors.WithLabelValues(name)
	}
	return m
}
