package store

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// Fills are the values of the label fill of brim_store_write_seconds: ten fixed
// tenths, in order.
var Fills = [10]string{"0-10", "10-20", "20-30", "30-40", "40-50", "50-60", "60-70", "70-80", "80-90", "90-100"}

// Metrics are a stream's measurements of its writes.
type Metrics struct {
	write      [len(Fills)]prometheus.Observer
	readings   prometheus.Observer
	Unknown    prometheus.Counter // operations whose outcome was not known
	Duplicates prometheus.Counter // readings found stored when they were about to be sent again
	OwnTags    prometheus.Counter // readings stored with their own tags, which differ from those of their bucket's part

	// Collections that were prepared instead of another while the daemon ran.
	Recreated, Replaced prometheus.Counter
}

// NewMetrics registers the metrics of a stream.
func NewMetrics(reg prometheus.Registerer, stream string, storage Storage, granularity time.Duration) (*Metrics, error) {
	all := &registry{Registerer: reg}
	write := shared(all, prometheus.NewHistogramVec(scrape.WithNative(prometheus.HistogramOpts{
		Name: "brim_store_write_seconds",
		Help: "Round trip of the command that carried a bucket's update, one observation per update, by how full the bucket's window or part was.",
		// 100 us to 26 s: a local update takes some 300 us, a timed-out one 10 s.
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 19),
	}), []string{"stream", "storage", "fill"}))
	again := shared(all, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_store_prepared_again_total",
		Help: "Times that a stream's collection was dropped or replaced while the daemon ran and another was prepared in its place: created, or found there.",
	}, []string{"stream", "collection"}))
	m := &Metrics{
		readings: shared(all, prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
			Name:    "brim_store_update_readings",
			Help:    "Readings carried by one bucket's update.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}))),
		Unknown: shared(all, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_store_unknown_outcomes_total",
			Help: "Updates whose outcome the network or the database left unknown; each was resolved or sent again.",
		})),
		Duplicates: shared(all, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_store_duplicates_prevented_total",
			Help: "Readings that were about to be sent again and were found to be stored already.",
		})),
		OwnTags: shared(all, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_store_tag_conflicts_total",
			Help: "Readings whose tags differ from those of their bucket's part; each is stored with its own tags, which takes more space.",
		})),
		Recreated: again.WithLabelValues(stream, "created"), Replaced: again.WithLabelValues(stream, "found"),
	}
	for i, fill := range Fills {
		m.write[i] = write.WithLabelValues(stream, string(storage), fill)
	}
	ratio := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "brim_store_bucket_window_ratio",
		Help:        "Elapsed fraction of the stream's current window: 0 at its start, 1 at its end.",
		ConstLabels: prometheus.Labels{"stream": stream},
	}, func() float64 {
		now := time.Now().UnixMilli()
		return float64(now-WindowStart(now, granularity)) / float64(granularity.Milliseconds())
	})
	shared(all, ratio)
	return m, all.failed
}

// A registry collects registration errors.
type registry struct {
	prometheus.Registerer

	failed error
}

// shared registers c, or returns the same collector that an earlier stream
// registered.
func shared[C prometheus.Collector](r *registry, c C) C {
	err := r.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same
		}
	}
	r.failed = errors.Join(r.failed, err)
	return c
}

// Wrote records an update of one bucket with n readings, and the round trip of its command; fill
// is from 0 to 1.
func (m *Metrics) Wrote(took time.Duration, n int, fill float64) {
	tenth := min(max(int(fill*float64(len(Fills))), 0), len(Fills)-1)
	m.write[tenth].Observe(took.Seconds())
	m.readings.Observe(float64(n))
}

// Found records n readings that were about to be sent again and were found to be stored: by an
// update whose reply was not received, which counts like others, or by an earlier process.
func (m *Metrics) Found(n int, recovered bool) {
	m.Duplicates.Add(float64(n))
	if n > 0 && !recovered {
		m.readings.Observe(float64(n))
	}
}

// Fill is how full a bucket is, for the metrics: the position of the newest reading in the window,
// or the ratio of the part's size to its cap, whichever is greater.
func Fill(newest, start int64, granularity time.Duration, partRatio float64) float64 {
	return max(float64(newest-start)/float64(granularity.Milliseconds()), partRatio)
}
