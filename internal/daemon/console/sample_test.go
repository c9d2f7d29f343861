package console

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A daemon is a simulated daemon's metrics, with its own clock.
type daemon struct {
	registry *prometheus.Registry
	random   *rand.Rand
	streams  map[string]*store.Metrics

	mu  sync.Mutex
	now time.Time

	ingested, rejected, refused, requests *prometheus.CounterVec
	deadLetters                           prometheus.Counter
	journal, pastDue, queue               prometheus.Gauge
	oldest                                *prometheus.GaugeVec
	lag                                   prometheus.Histogram
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newDaemon returns one with a bucket stream and a time-series stream.
func newDaemon(t testing.TB, now time.Time) *daemon {
	t.Helper()
	d := &daemon{
		registry: prometheus.NewRegistry(), random: rand.New(rand.NewPCG(1, 2)), streams: make(map[string]*store.Metrics), now: now,
		ingested:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricIngested}, []string{"protocol"}),
		rejected:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricRejected}, []string{"reason"}),
		refused:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricRefused}, []string{"reason"}),
		requests:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricRequests}, []string{"protocol", "code"}),
		deadLetters: prometheus.NewCounter(prometheus.CounterOpts{Name: metricDeadLetters}),
		journal:     prometheus.NewGauge(prometheus.GaugeOpts{Name: metricJournal}),
		oldest:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricOldest}, []string{"stream"}),
		pastDue:     prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPastDue}),
		queue:       prometheus.NewGauge(prometheus.GaugeOpts{Name: metricQueue}),
		lag:         prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{Name: metricLag, Buckets: prometheus.ExponentialBuckets(0.001, 2, 26)})),
	}
	d.registry.MustRegister(d.ingested, d.rejected, d.refused, d.requests, d.deadLetters, d.journal, d.oldest, d.pastDue, d.queue, d.lag)
	for name, storage := range map[string]store.Storage{"readings": store.Bucket, "plant <b>2</b>": store.TimeSeries} {
		m, err := store.NewMetrics(d.registry, name, storage, time.Hour)
		require.NoError(t, err)
		d.streams[name] = m
	}
	for _, reason := range []string{"ts_out_of_range", "field_name"} {
		d.rejected.WithLabelValues(reason)
	}
	return d
}

// Now is the daemon's clock.
func (d *daemon) Now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// sleep moves the clock.
func (d *daemon) sleep(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(by)
}

// console returns a live page of the daemon.
func (d *daemon) console(t testing.TB, change func(*Config)) *Console {
	t.Helper()
	cfg := Config{
		Version: "v0.3.0", Gatherer: d.registry, Now: d.Now,
		Parts: func() []Part { return []Part{{Name: "daemon", Ready: true}} },
		Streams: func() []Stream {
			return []Stream{
				{Name: "readings", Storage: "bucket", Granularity: "1h", Default: true, Ready: true},
				{Name: "plant <b>2</b>", Storage: "timeseries", Granularity: "1h", Ready: true},
			}
		},
		HTTPAddr: func() string { return "127.0.0.1:8430" },
		Signals:  func() []doctor.Signal { return nil }, Diagnosis: func() Diagnosis { return Diagnosis{} },
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// write records updates of a bucket with a median of p50.
func (d *daemon) write(stream string, updates, readings int, p50, fill float64) {
	for range updates {
		took := p50 * math.Exp(d.random.NormFloat64()*0.45)
		d.streams[stream].Wrote(time.Duration(took*float64(time.Second)), readings, fill)
	}
}

// updates is the number of updates per second of work.
const updates = 40

// work simulates a second of a daemon with 2,000 readings per second and
// one-minute windows.
func (d *daemon) work(second int) {
	fill := math.Mod(float64(second)/60, 1)
	d.ingested.WithLabelValues("http").Add(2004)
	d.requests.WithLabelValues("http", "200").Add(2004)
	d.write("readings", updates, 50, 0.0006+0.0011*fill, fill)
	d.write("plant <b>2</b>", 8, 10, 0.0009, fill)
	for range 30 {
		d.lag.Observe(1.0 * math.Exp(d.random.NormFloat64()*0.3))
	}
	d.queue.Set(2000 + 300*d.random.Float64())
	d.oldest.WithLabelValues("readings").Set(1 + d.random.Float64()*0.4)
	d.journal.Set(float64(24<<20) * (1 + math.Mod(float64(second)/37, 1)))
}

// run simulates some seconds while the console samples.
func (d *daemon) run(c *Console, seconds int) {
	for i := range seconds {
		d.work(i)
		d.sleep(time.Second)
		c.sample()
	}
}

// get returns the console's response.
func get(t testing.TB, c http.Handler, target string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
	return w.Result(), w.Body.String()
}
