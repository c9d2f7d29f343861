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
)

// samplesOf takes a sample each second, of a mongod whose readings cost twice as
// much from the middle on, and which stores half as many then. Every write
// takes 1 ms, from the middle on 8 ms.
func samplesOf(t *testing.T, began time.Time, seconds int) (samples []sample) {
	t.Helper()
	registry := prometheus.NewRegistry()
	writes := prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{Name: "w", Buckets: []float64{0.001, 1}}))
	require.NoError(t, registry.Register(writes))
	l := sample{at: began}
	for s := range seconds + 1 {
		metrics, err := scrape.Gather(registry)
		require.NoError(t, err)
		l.writes[3] = metrics.Histogram("w", nil)
		samples = append(samples, l)
		l.at = l.at.Add(time.Second)
		if s < seconds/2 {
			l.readings += 2000
			l.mongod += time.Second
			writes.Observe(0.001)
			continue
		}
		l.readings += 1000
		l.mongod += time.Second
		writes.Observe(0.008)
	}
	return samples
}

func TestFiguresByTheClock(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	samples := samplesOf(t, began, 12)
	o := &outcome{phase: Phase{Granularity: time.Hour, Speedup: 300, Duration: 12 * time.Second}, load: &load.Result{Began: began}, samples: samples}
	assert.InDelta(t, 1./2000, o.mongod(0, 1./3), 1e-9)
	assert.InDelta(t, 1./1000, o.mongod(2./3, 1), 1e-9)
	assert.InDelta(t, 1./2000, o.mongod(0, 0.1), 1e-9)
	assert.InDelta(t, 1./1000, o.mongod(0.9, 1), 1e-9)
	assert.InEpsilon(t, 0.001, o.window(0, 0.1).Quantile(0.5), 0.1)
	assert.InEpsilon(t, 0.008, o.window(0.9, 1).Quantile(0.5), 0.1)
	assert.InDelta(t, 2000, o.rate(0, 1./6), 1e-6)
	assert.InDelta(t, 1000, o.rate(5./6, 1), 1e-6)
	during, _ := o.checkpoints()
	assert.Zero(t, during.Count)
}

func TestBetweenSamplesGoesAStraightLine(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	samples := samplesOf(t, began, 4)
	for _, c := range []struct {
		after         time.Duration
		cpu, readings float64
	}{
		{-time.Second, 0, 0}, {0, 0, 0}, {500 * time.Millisecond, 0.5, 1000}, {2500 * time.Millisecond, 2.5, 4500}, {time.Minute, 4, 6000},
	} {
		cpu, readings := along(samples, began.Add(c.after))
		assert.InDelta(t, c.cpu, cpu, 1e-9, c.after)
		assert.InDelta(t, c.readings, readings, 1e-9, c.after)
	}
	cpu, readings := along(samples[:1], began)
	assert.Zero(t, cpu)
	assert.Zero(t, readings)
	assert.Equal(t, &samples[3], nearest(samples, began.Add(2600*time.Millisecond)))
}

func TestWhatIsNotKnownIsNoFigure(t *testing.T) {
	t.Parallel()
	began := time.Unix(0, 0)
	o := &outcome{phase: Phase{Granularity: time.Hour, Duration: time.Second}, load: &load.Result{Began: began.Add(time.Minute)}, samples: samplesOf(t, began, 1)}
	assert.True(t, math.IsNaN(o.during(0, 1).Quantile(0.5)), "no write was seen")
	assert.True(t, math.IsNaN(o.mongod(0, 1)), "it is not one window")
	assert.Zero(t, o.window(0, 1).Count)
}
