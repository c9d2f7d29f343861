package staleness

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector counts at each scrape. Streams that are not watched show 0.
type collector struct{ watch *Watch }

func knownDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_sensors_known",
		"Sensors of which something came within the last week, as far as this daemon knows; 0 where silent-after is 0.", []string{"stream"}, nil)
}

func silentDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_sensors_silent",
		"Of the known sensors, those of which nothing came for longer than the stream's silent-after.", []string{"stream"}, nil)
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- knownDesc()
	ch <- silentDesc()
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for name, s := range c.watch.streams {
		n := s.count(now)
		ch <- prometheus.MustNewConstMetric(knownDesc(), prometheus.GaugeValue, float64(n.known), name)
		ch <- prometheus.MustNewConstMetric(silentDesc(), prometheus.GaugeValue, float64(n.silent), name)
	}
}
