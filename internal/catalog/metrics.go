package catalog

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	written *prometheus.CounterVec // by stream
	failed  *prometheus.CounterVec // by stream
}

func newMetrics(to prometheus.Registerer, c *Catalog) (*metrics, error) {
	m := &metrics{
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_catalog_updates_total", Help: "Updates of documents of the catalog of sensors.",
		}, []string{"stream"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_catalog_failures_total", Help: "Attempts to write to the catalog of sensors, or to check it, that failed. Readings are stored all the same.",
		}, []string{"stream"}),
	}
	for name := range c.streams {
		m.written.WithLabelValues(name)
		m.failed.WithLabelValues(name)
	}
	if to == nil {
		return m, nil
	}
	for _, one := range []prometheus.Collector{m.written, m.failed, collector{c}} {
		if err := to.Register(one); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// A collector shows the state of the catalogs.
type collector struct{ catalog *Catalog }

func waitingDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_catalog_waiting", "Entries that are not written to the catalog of sensors yet.", []string{"stream"}, nil)
}

func completeDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_catalog_complete",
		"Whether the catalog of sensors has all sensors of the stream; 0 while it is built from readings that were stored before.", []string{"stream"}, nil)
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitingDesc()
	ch <- completeDesc()
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for name, s := range c.catalog.streams {
		complete := 0.0
		if s.state.Load().Complete {
			complete = 1
		}
		ch <- prometheus.MustNewConstMetric(waitingDesc(), prometheus.GaugeValue, float64(s.waiting()), name)
		ch <- prometheus.MustNewConstMetric(completeDesc(), prometheus.GaugeValue, complete, name)
	}
}
