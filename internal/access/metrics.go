package access

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a Guard. The counters are looked up once.
type metrics struct {
	refusals   map[string]prometheus.Counter // by code
	held       prometheus.Gauge
	ok         prometheus.Gauge
	identities prometheus.Gauge
}

// newMetrics makes the metrics; those of the file only where there is one, for a
// file that is not asked for is neither right nor wrong.
func newMetrics(registerer prometheus.Registerer, file bool) *metrics {
	factory := promauto.With(registerer)
	refused := factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_access_refused_total",
		Help: "Requests, and messages of streams, refused for who sent them, or for how much was sent, by reason.",
	}, []string{"reason"})
	m := &metrics{refusals: make(map[string]prometheus.Counter)}
	for _, code := range []string{
		codeMissing, codeMalformed, codeUnknown, codeExpired, codeCertificate, codeScope, codeSensor, codeRequests, codeReadings, codeNewSensors, codeActive,
	} {
		m.refusals[code] = refused.WithLabelValues(code)
	}
	m.held = factory.NewGauge(prometheus.GaugeOpts{
		Name: "brim_access_refusals_held",
		Help: "Refusals whose answer waits for a moment, so that who does not stop asking keeps nobody busy.",
	})
	if !file {
		factory = promauto.With(nil)
	}
	m.ok = factory.NewGauge(prometheus.GaugeOpts{
		Name: "brim_access_file_ok",
		Help: "Whether the access file can be used as it is now: 1, or 0 while what it held before stays in force.",
	})
	m.identities = factory.NewGauge(prometheus.GaugeOpts{
		Name: "brim_access_identities",
		Help: "Identities in force from the access file.",
	})
	return m
}

func (m *metrics) refused(code string) { m.refusals[code].Inc() }
