package queue

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

type metrics struct {
	lag         prometheus.Histogram
	retries     prometheus.Counter
	deadLetters prometheus.Counter
	outOfOrder  prometheus.Counter
	readErrors  prometheus.Counter
	impossible  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, q *Queue) (*metrics, error) {
	var err error
	register := func(c prometheus.Collector) {
		if err == nil {
			err = reg.Register(c)
		}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		register(c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	m := &metrics{
		lag: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_queue_lag_seconds",
			Help: "Time from the receipt of a request until the last of its readings in a lane was stored.",
			// 1 ms to 9 hours: from a quick flush to a long outage of MongoDB.
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 26),
		})),
		retries:     counter("brim_queue_retries_total", "Failed writes of a bucket, each of which is tried again."),
		deadLetters: counter("brim_queue_dead_letters_total", "Readings that MongoDB refused for their content, kept as dead letters."),
		outOfOrder:  counter("brim_queue_out_of_order_total", "Readings refused because their sequence did not rise; anything above 0 is a defect in Brim."),
		readErrors:  counter("brim_queue_read_errors_total", "Failed reads of the journal, each of which is tried again."),
		impossible:  counter("brim_queue_impossible_total", "Events that a bucket got in a state in which they cannot occur; anything above 0 is a defect in Brim."),
	}
	register(m.lag)
	gauge("brim_queue_readings", "Readings accepted and not yet stored, in memory or in the journal only.",
		func() float64 { return float64(q.waiting()) })
	gauge("brim_queue_set_aside_buckets", "Buckets that cannot be written while others can, and wait in the journal.",
		func() float64 { return float64(q.Status().SetAside) })
	gauge("brim_queue_flush_interval_seconds", "How long readings gather before they are written, in the lane where that takes longest: --flush-interval, and up to four times as long while writing takes much of a lane's time.",
		func() float64 { return q.Status().FlushInterval })
	gauge("brim_store_active_buckets", "Buckets that were written lately and whose state is remembered.",
		func() float64 { return float64(q.Status().Buckets) })
	if err != nil {
		return nil, err
	}
	return m, nil
}
