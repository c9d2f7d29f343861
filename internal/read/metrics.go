package read

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Values of the label code that are no status of HTTP.
const (
	codeCut   = "cut"   // the answer broke off after it had begun
	codeGone  = "gone"  // the client went away before it had one
	codeOther = "other" // a status that is not listed
)

// codes are the values of the label.
var codes = []string{"200", "400", "403", "404", "415", "500", "503", "504", codeCut, codeGone, codeOther}

// calls are the values of the label of that name.
var calls = [...]call{callSensors, callLatest, callReadings, callMany, callSummary, callDelete, callDeleteMany, callWaiting}

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// SecondsBuckets are the bounds of histograms of how long queries take, in seconds: from
// one document of a warm cache to the usual --query-timeout and beyond.
var SecondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func newMetrics(registerer prometheus.Registerer, running func() float64) *metrics {
	factory := promauto.With(registerer)
	m := &metrics{}
	m.requests = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_read_requests_total",
		Help: "Requests to read or delete, by call (waiting: what is not stored yet, with unstored=only) and status of the answer; cut: the answer broke off, gone: the client disconnected.",
	}, []string{"call", "code"})
	m.seconds = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "brim_read_seconds",
		Help:    "Time from the arrival of a request to read or delete to the end of its answer.",
		Buckets: SecondsBuckets,
	}, []string{"call"})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_read_running", Help: "Requests to read or delete that are being answered; --max-queries is the most.",
	}, running)
	for _, c := range calls {
		m.seconds.WithLabelValues(string(c))
		for _, code := range codes {
			m.requests.WithLabelValues(string(c), code)
		}
	}
	return m
}

func (m *metrics) answered(c call, code string, begin time.Time) {
	if !slices.Contains(codes, code) {
		code = codeOther
	}
	m.requests.WithLabelValues(string(c), code).Inc()
	m.seconds.WithLabelValues(string(c)).Observe(time.Since(begin).Seconds())
}
