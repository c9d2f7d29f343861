package mongod

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	running  prometheus.Gauge
	restarts prometheus.Counter

	registerer prometheus.Registerer // nil: nobody asks
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "brim_mongod_running",
			Help: "Whether the embedded mongod takes writes (1), or is down or starting (0).",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "brim_mongod_restarts_total",
			Help: "How often the embedded mongod died and was started again.",
		}),
		registerer: registerer,
	}
	if registerer == nil {
		return m, nil
	}
	for _, collector := range m.collectors() {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// unregister lets another server of this process register its own.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, collector := range m.collectors() {
		m.registerer.Unregister(collector)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.running, m.restarts}
}
