package read

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Values of the label code that are not HTTP status codes.
const (
	codeCut   = "cut"   // the answer was aborted after it had begun
	codeGone  = "gone"  // the client disconnected before the end of the answer
	codeOther = "other" // a status that is not listed
)

// The values of the labels code and call.
var (
	codes = []string{"200", "400", "403", "404", "415", "500", "503", "504", codeCut, codeGone, codeOther}
	calls = [...]call{callSensors, callLatest, callReadings, callMany, callSummary, callDelete, callDeleteMany, callWaiting}
)

// Calls counts the requests of an API by call and code, and how long they took.
type Calls struct {
	codes    []string
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// CallsOpts describes an API: the prefix of its metrics' names, their help texts, and the
// values of their labels.
type CallsOpts struct {
	Name, Requests, Seconds string
	Calls, Codes            []string
}

// NewCalls registers the metrics and initializes all counters to 0.
func NewCalls(registerer prometheus.Registerer, o CallsOpts) *Calls {
	factory := promauto.With(registerer)
	c := &Calls{
		codes:    o.Codes,
		requests: factory.NewCounterVec(prometheus.CounterOpts{Name: o.Name + "_requests_total", Help: o.Requests}, []string{"call", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: o.Name + "_seconds", Help: o.Seconds,
			// From one document of a warm cache to the usual --query-timeout and beyond.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"call"}),
	}
	for _, call := range o.Calls {
		c.seconds.WithLabelValues(call)
		for _, code := range c.codes {
			c.requests.WithLabelValues(call, code)
		}
	}
	return c
}

// Answered counts a request that began at begin.
func (c *Calls) Answered(call, code string, begin time.Time) {
	if !slices.Contains(c.codes, code) {
		code = codeOther
	}
	c.requests.WithLabelValues(call, code).Inc()
	c.seconds.WithLabelValues(call).Observe(time.Since(begin).Seconds())
}

func newMetrics(registerer prometheus.Registerer, running func() float64) *Calls {
	promauto.With(registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_read_running", Help: "Requests to read or delete that are being answered; --max-queries is the most.",
	}, running)
	var names []string
	for _, c := range calls {
		names = append(names, string(c))
	}
	return NewCalls(registerer, CallsOpts{
		Name:     "brim_read",
		Requests: "Requests to read or delete, by call (waiting: what is not stored yet, with unstored=only) and status of the answer; cut: the answer broke off, gone: the client disconnected.",
		Seconds:  "Time from the arrival of a request to read or delete to the end of its answer.",
		Calls:    names, Codes: codes,
	})
}
