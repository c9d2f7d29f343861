package load

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// metrics are the generator's own, for who scrapes it.
type metrics struct {
	offered, sent, acked, rejected, failed, dropped prometheus.Counter // readings

	ok, partial, failedRequests prometheus.Counter
	response, service           prometheus.Histogram
	inFlight                    prometheus.GaugeFunc
	offeredRate, windowRatio    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, inFlight func() float64) (*metrics, error) {
	counter := func(what, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "brim_load_" + what + "_readings_total", Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "brim_load_" + name, Help: help})
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_load_requests_total",
		Help: "Requests by result: ok, partial (some readings were refused), failed (not taken).",
	}, []string{"result"})
	m := &metrics{
		offered:        counter("offered", "Readings that were due."),
		sent:           counter("sent", "Readings in requests that were sent."),
		acked:          counter("acked", "Readings that the daemon acknowledged."),
		rejected:       counter("rejected", "Readings that the daemon refused one by one."),
		failed:         counter("failed", "Readings in requests that were not taken."),
		dropped:        counter("dropped", "Readings that were due and never sent, for too many requests were in flight."),
		ok:             requests.WithLabelValues("ok"),
		partial:        requests.WithLabelValues("partial"),
		failedRequests: requests.WithLabelValues("failed"),
		response:       newTimes("response", "Time from when a request was due until it was answered, or failed, or was given up while it waited for a connection."),
		service:        newTimes("service", "Time from when a request was sent to its answer, of requests that were taken."),
		offeredRate:    gauge("offered_rate", "Readings a second that are due now."),
		windowRatio:    gauge("window_ratio", "Elapsed share of the window that event time is in: 0 at its start, 1 at its end."),
		inFlight: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_load_in_flight",
			Help: "Requests that were due and are not answered, those that wait for a connection among them.",
		}, inFlight),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.offered, m.sent, m.acked, m.rejected, m.failed, m.dropped, requests, m.response, m.service, m.inFlight, m.offeredRate, m.windowRatio,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the load's metrics: %w", err)
		}
	}
	return m, nil
}

func newTimes(what, help string) prometheus.Histogram {
	return prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
		Name: "brim_load_" + what + "_seconds",
		Help: help,
		// 100 us to 52 s: a local answer takes some 200 us, one that timed out 30 s.
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
	}))
}

// note counts what became of a request.
func (m *metrics) note(f *fate) {
	m.response.Observe(f.response.Seconds())
	switch {
	case f.unsent:
		return // is counted as dropped
	case f.answer.Failure != "":
		m.failed.Add(float64(f.readings))
		m.failedRequests.Inc()
		return
	case f.answer.Rejected > 0:
		m.partial.Inc()
	default:
		m.ok.Inc()
	}
	m.acked.Add(float64(f.answer.Accepted))
	m.rejected.Add(float64(f.answer.Rejected))
	m.service.Observe(f.service.Seconds())
}
