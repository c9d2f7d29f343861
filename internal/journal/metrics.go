package journal

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

type metrics struct {
	fsync    prometheus.Histogram
	requests prometheus.Histogram
	refused  *prometheus.CounterVec
}

// gauges are the figures that are looked up when somebody asks for them.
type gauges struct {
	bytes  func() float64
	max    int64 // bytes
	oldest func() time.Duration
	keys   func() int

	givenUp      uint64 // bytes
	markFailures func() float64
}

func newMetrics(registerer prometheus.Registerer, g gauges) (*metrics, error) {
	m := &metrics{
		fsync: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_journal_fsync_seconds",
			Help: "Time of one fsync of the journal.",
			// From a disk with a battery behind its cache to one that is stuck.
			Buckets: prometheus.ExponentialBuckets(0.000064, 2, 18),
		})),
		requests: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name:    "brim_journal_commit_requests",
			Help:    "Requests that one fsync of the journal served.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		})),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_journal_refused_total",
			Help: "Requests of which nothing was taken, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range refusals() {
		m.refused.WithLabelValues(reason)
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range append(g.collectors(), m.fsync, m.requests, m.refused) {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (g gauges) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_journal_bytes",
			Help: "Bytes of the journal: on disk, or without one those of the readings that wait in memory.",
		}, g.bytes),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_journal_max_bytes",
			Help: "Bytes at which the journal is full and requests are refused.",
		}, func() float64 { return float64(g.max) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_journal_oldest_unapplied_seconds",
			Help: "Age of the oldest reading that is journaled and not known to be stored, 0 if there is none.",
		}, func() float64 { return g.oldest().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_journal_keys",
			Help: "Idempotency keys that are known.",
		}, func() float64 { return float64(g.keys()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_journal_given_up_bytes",
			Help: "Bytes of the journal that could not be read and were given up, at this start and earlier ones.",
		}, func() float64 { return float64(g.givenUp) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "brim_journal_mark_failures_total",
			Help: "Failed writes of the mark that says how far the journal is at rest; nothing is deleted until one works.",
		}, g.markFailures),
	}
}

// refuse counts an error where nothing was taken.
func (m *metrics) refuse(err error) {
	var e *telemetry.Error
	if errors.As(err, &e) && e.Kind == telemetry.Unavailable {
		m.refused.WithLabelValues(e.Code).Inc()
	}
}
