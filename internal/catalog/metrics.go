package catalog

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	written *prometheus.CounterVec // by stream
	failed  *prometheus.CounterVec // by stream
}

func newMetrics(to prometheus.Registerer, c *Catalog) *metrics {
	factory := promauto.With(to)
	m := &metrics{
		written: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_catalog_updates_total", Help: "Updates of documents of the catalog of sensors.",
		}, []string{"stream"}),
		failed: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_catalog_failures_total", Help: "Attempts to write to the catalog of sensors, or to check it, that failed. Readings are stored all the same.",
		}, []string{"stream"}),
	}
	for name, s := range c.streams {
		m.written.WithLabelValues(name)
		m.failed.WithLabelValues(name)
		stream := prometheus.Labels{"stream": name}
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_catalog_waiting", Help: "Entries that are not written to the catalog of sensors yet.", ConstLabels: stream,
		}, func() float64 { return float64(s.waiting()) })
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_catalog_complete", ConstLabels: stream,
			Help: "Whether the catalog of sensors has all sensors of the stream; 0 while it is built from readings that were stored before.",
		}, func() float64 {
			if s.state.Load().Complete {
				return 1
			}
			return 0
		})
	}
	return m
}
