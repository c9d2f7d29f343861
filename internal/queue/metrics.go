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
	m := &metrics{
		lag: prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name: "brim_queue_lag_seconds",
			Help: "Time from the receipt of a request until the last of its readings in a lane was stored.",
			// 1 ms to 9 hours: from a quick flush to a long outage of MongoDB.
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 26),
		})),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_queue_retries_total",
			Help: "Writes of a bucket that had to be put off and done again.",
		}),
		deadLetters: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_queue_dead_letters_total",
			Help: "Readings that MongoDB refused for their content and that were put aside.",
		}),
		outOfOrder: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_queue_out_of_order_total",
			Help: "Readings refused because their sequence did not rise; anything above 0 is a defect in Brim.",
		}),
	}
	m.readErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "brim_queue_read_errors_total",
		Help: "Reads of the journal that failed, and are tried again.",
	})
	m.impossible = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "brim_queue_impossible_total",
		Help: "Events that a bucket got in a state in which they cannot occur; anything above 0 is a defect in Brim.",
	})
	readings := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_queue_readings",
		Help: "Readings taken and not yet stored, in memory or in the journal alone.",
	}, func() float64 { return float64(q.waiting()) })
	aside := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_queue_set_aside_buckets",
		Help: "Buckets that cannot be written while others can, and wait in the journal.",
	}, func() float64 { return float64(q.Status().SetAside) })
	gathers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_queue_flush_interval_seconds",
		Help: "How long readings gather before they are written, in the lane where that takes longest: --flush-interval, and up to four times as long while writing takes much of a lane's time.",
	}, func() float64 { return q.Status().FlushInterval })
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_store_active_buckets",
		Help: "Buckets that were written lately and whose state is remembered.",
	}, func() float64 { return float64(q.Status().Buckets) })
	for _, c := range []prometheus.Collector{m.lag, m.retries, m.deadLetters, m.outOfOrder, m.readErrors, m.impossible, readings, aside, gathers, active} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
