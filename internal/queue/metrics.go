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
	updates     *prometheus.CounterVec
	readings    *prometheus.CounterVec
}

// sent counts updates.
func (m *metrics) sent(stream string, why trigger, updates, readings int) {
	m.updates.WithLabelValues(stream, why.String()).Add(float64(updates))
	m.readings.WithLabelValues(stream, why.String()).Add(float64(readings))
}

// ages collects the age of the oldest reading of each stream.
type ages struct {
	queue *Queue
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (a ages) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a ages) Collect(ch chan<- prometheus.Metric) {
	oldest := make(map[string]float64)
	for _, l := range a.queue.lanes {
		oldest[l.stream] = max(oldest[l.stream], secondsSince(l.oldest.Load()))
	}
	for stream, age := range oldest {
		ch <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, age, stream)
	}
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
			Help: "Time from receipt until stored: of each request in a lane, up to its last reading; of readings that waited for more than 5 s, of each bucket, from its oldest reading.",
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
	triggered := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"stream", "trigger"})
		for stream := range q.cfg.Streams {
			for t := byNothing + 1; t < triggers; t++ {
				v.WithLabelValues(stream, t.String())
			}
		}
		register(v)
		return v
	}
	m.updates = triggered("brim_queue_updates_total", "Updates of buckets that were sent, including repeated ones, by trigger: "+
		"a waiting request, a flush, enough readings (--merge-readings), their age (--flush-max), the budget (--flush-budget), "+
		"full memory (--queue-max-bytes), a nearly full journal, or a retry.")
	m.readings = triggered("brim_queue_updated_readings_total", "Readings in the updates that brim_queue_updates_total counts.")
	gauge("brim_queue_readings", "Readings accepted and not yet stored, in memory or in the journal only.",
		func() float64 { return float64(q.waiting()) })
	gauge("brim_queue_set_aside_buckets", "Buckets that cannot be written while others can, and wait in the journal.",
		func() float64 { return float64(q.Status().SetAside) })
	gauge("brim_queue_past_due_seconds", "How late the most overdue update is. It is due when a client waits for it, when it has --merge-readings readings, or when they have waited for --flush-max. 0 if none is late.",
		func() float64 { return q.Status().PastDue })
	oldest := prometheus.NewDesc("brim_queue_oldest_seconds", "Age of the oldest reading in memory that is not in MongoDB yet. Programs that read MongoDB directly are behind by up to that.", []string{"stream"}, nil)
	register(ages{queue: q, desc: oldest})
	gauge("brim_store_active_buckets", "Buckets that were written lately and whose state is remembered.",
		func() float64 { return float64(q.Status().Buckets) })
	if err != nil {
		return nil, err
	}
	return m, nil
}
