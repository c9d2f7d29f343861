package journal

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

type metrics struct {
	fsync    prometheus.Histogram
	requests prometheus.Histogram
	refused  *prometheus.CounterVec
}

func newMetrics(j *Journal) (*metrics, error) {
	m := &metrics{
		fsync: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_journal_fsync_seconds",
			Help: "Time of one fsync of the journal.",
			// From a disk with a battery-backed cache to one that hangs.
			Buckets: prometheus.ExponentialBuckets(0.000064, 2, 18),
		})),
		requests: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name:    "brim_journal_commit_requests",
			Help:    "Requests that one fsync of the journal served.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		})),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_journal_refused_total",
			Help: "Requests that the journal refused as a whole, by reason.",
		}, []string{"reason"}),
	}
	for reason := range j.refusals {
		m.refused.WithLabelValues(reason)
	}
	if j.cfg.Registerer == nil {
		return m, nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		m.fsync, m.requests, m.refused,
		gauge("brim_journal_bytes", "Bytes of the journal: on disk, or without one those of the readings that wait in memory.",
			func() float64 { return float64(j.size()) }),
		gauge("brim_journal_max_bytes", "Bytes at which the journal is full and requests are refused.",
			func() float64 { return float64(j.cfg.MaxBytes) }),
		gauge("brim_journal_oldest_unapplied_seconds", "Age of the oldest reading that is journaled and not known to be stored, 0 if there is none.",
			j.oldestUnapplied),
		gauge("brim_journal_keys", "Idempotency keys that are known.",
			func() float64 { return float64(j.keys.count()) }),
		gauge("brim_journal_given_up_bytes", "Bytes of the journal that could not be read and were given up, at this start and earlier ones.",
			func() float64 { return float64(givenUp(j.lost)) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "brim_journal_mark_failures_total",
			Help: "Failed writes of the mark that says how far the journal is stored; nothing is deleted until one works.",
		}, func() float64 { return float64(j.markFailures.Load()) }),
	} {
		if err := j.cfg.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
