package fill

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// samplesOf returns a sample each second, from a mongod that halves its rate midway, when its
// writes go from 1 ms to 8 ms.
func samplesOf(t *testing.T, began time.Time, seconds int) (samples []sample) {
	t.Helper()
	registry := prometheus.NewRegistry()
	writes := prometheus.NewHistogramVec(scrape.WithNative(prometheus.HistogramOpts{Name: "brim_store_write_seconds", Buckets: []float64{0.001, 1}}), []string{"fill"})
	updates := prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{Name: "brim_store_update_readings", Buckets: []float64{1000}}))
	require.NoError(t, registry.Register(writes))
	require.NoError(t, registry.Register(updates))
	for s := range seconds + 1 {
		metrics, err := scrape.Gather(registry)
		require.NoError(t, err)
		samples = append(samples, sample{at: began.Add(time.Duration(s) * time.Second), metrics: metrics})
		if s < seconds/2 {
			updates.Observe(2000)
			writes.WithLabelValues(store.Fills[3]).Observe(0.001)
			continue
		}
		updates.Observe(1000)
		writes.WithLabelValues(store.Fills[3]).Observe(0.008)
	}
	return samples
}

func TestFiguresByTheClock(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	samples := samplesOf(t, began, 12)
	o := &outcome{phase: phase{Granularity: time.Hour, Speedup: 300, Duration: 12 * time.Second}, load: &load.Result{Began: began}, samples: samples}
	assert.InEpsilon(t, 0.001, o.window(0, 0.1).Quantile(0.5), 0.1)
	assert.InEpsilon(t, 0.008, o.window(0.9, 1).Quantile(0.5), 0.1)
	assert.InDelta(t, 2000, o.rate(0, 1./6), 1e-6)
	assert.InDelta(t, 1000, o.rate(5./6, 1), 1e-6)
}

func TestNearestSample(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	samples := samplesOf(t, began, 4)
	for after, want := range map[time.Duration]int{-time.Second: 0, 1400 * time.Millisecond: 1, 2600 * time.Millisecond: 3, time.Minute: 4} {
		assert.Equal(t, &samples[want], nearest(samples, began.Add(after)), after)
	}
}

func TestUnknownFiguresAreNaN(t *testing.T) {
	t.Parallel()
	began := time.Unix(0, 0)
	o := &outcome{phase: phase{Granularity: time.Hour, Duration: time.Second}, load: &load.Result{Began: began.Add(time.Minute)}, samples: samplesOf(t, began, 1)}
	assert.True(t, math.IsNaN(o.during(0, 1).Quantile(0.5)), "no write was seen")
	assert.Zero(t, o.window(0, 1).Count)
}
