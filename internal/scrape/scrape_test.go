package scrape

import (
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func histogram(t *testing.T, reg *prometheus.Registry) *prometheus.HistogramVec {
	t.Helper()
	opts := prometheus.HistogramOpts{Name: "took_seconds", Help: "Took.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 19)}
	vec := prometheus.NewHistogramVec(WithNative(opts), []string{"fill"})
	require.NoError(t, reg.Register(vec))
	return vec
}

func TestQuantileAccuracy(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	vec := histogram(t, reg)
	random := rand.New(rand.NewPCG(1, 2))
	seen := make([]float64, 10_000)
	for i := range seen {
		seen[i] = 0.002 * math.Exp(random.NormFloat64())
		vec.WithLabelValues([]string{"0-10", "10-20"}[i%2]).Observe(seen[i])
	}
	slices.Sort(seen)
	sample, err := Gather(reg)
	require.NoError(t, err)
	h := sample.Histogram("took_seconds", nil)
	assert.InDelta(t, 10_000, h.Count, 0)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		want := seen[int(q*float64(len(seen)))-1]
		assert.InDelta(t, 0, math.Log(h.Quantile(q)/want), math.Log(1.1), "quantile %v", q)
	}
	assert.InDelta(t, 5_000, sample.Histogram("took_seconds", Labels{"fill": "10-20"}).Count, 0)
	assert.Zero(t, sample.Histogram("took_seconds", Labels{"fill": "90-100"}).Count)
}

func TestSinceReturnsNewObservations(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	one := histogram(t, reg).WithLabelValues("0-10")
	for range 1000 {
		one.Observe(0.001)
	}
	before, err := Gather(reg)
	require.NoError(t, err)
	for range 10 {
		one.Observe(1)
	}
	after, err := Gather(reg)
	require.NoError(t, err)

	news := after.Histogram("took_seconds", nil).Since(before.Histogram("took_seconds", nil))
	assert.InDelta(t, 10, news.Count, 0)
	assert.InDelta(t, 1, news.Quantile(0.01), 0.1)
	assert.InDelta(t, 1, news.Mean(), 1e-9)

	restarted := before.Histogram("took_seconds", nil).Since(after.Histogram("took_seconds", nil))
	assert.InDelta(t, 1000, restarted.Count, 0, "a counter that fell begins anew")
	assert.True(t, math.IsNaN(Histogram{}.Quantile(0.5)), "nothing was observed")
}

func TestGetKeepsNativeRanges(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	one := histogram(t, reg).WithLabelValues("0-10")
	for range 1000 {
		one.Observe(0.00310)
	}
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "depth", Help: "Depth."}, []string{"kind"})
	gauge.WithLabelValues("a").Set(2)
	gauge.WithLabelValues("b").Set(3)
	require.NoError(t, reg.Register(gauge))
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	defer server.Close()

	sample, err := Get(t.Context(), server.Client(), server.URL)
	require.NoError(t, err)
	assert.InDelta(t, 0.0031, sample.Histogram("took_seconds", nil).Quantile(0.5), 0.0002, "a classic bucket ends at 3.2 and begins at 1.6 ms")
	assert.InDelta(t, 5, sample.Value("depth", nil), 0)
	assert.InDelta(t, 3, sample.Value("depth", Labels{"kind": "b"}), 0)
	assert.True(t, math.IsNaN(sample.Value("depth", Labels{"kind": "c"})))

	_, err = Get(t.Context(), server.Client(), server.URL+"\x00")
	require.Error(t, err)
}
