package scrape

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func gathered(t *testing.T, reg *prometheus.Registry) Sample {
	t.Helper()
	sample, err := Gather(reg)
	require.NoError(t, err)
	return sample
}

// spread observes values of a range in steps of 8 %, from low on.
func spread(o prometheus.Observer, low, high float64) (n float64) {
	for v := low; v <= high; v *= 1.08 {
		o.Observe(v)
		n++
	}
	return n
}

// TestRangesMayWidenBetweenSamples: a native histogram that would have too
// many ranges makes one of each two.
func TestRangesMayWidenBetweenSamples(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	one := histogram(t, reg).WithLabelValues("0-10")
	spread(one, 0.00001, 5)
	for range 2000 {
		one.Observe(0.05)
	}
	before := gathered(t, reg)
	added := spread(one, 5, 5e4)
	for range 1500 {
		one.Observe(0.0002)
	}
	added += 1500
	after := gathered(t, reg)
	schema := func(l Sample) int32 { return l["took_seconds"].GetMetric()[0].GetHistogram().GetSchema() }
	require.Less(t, schema(after), schema(before), "the ranges have widened")

	news := after.Histogram("took_seconds", nil).Since(before.Histogram("took_seconds", nil))
	assert.InDelta(t, added, news.Count, 0)
	assert.InDelta(t, news.Count, inRanges(news), 0, "the ranges account for all new observations")
	assert.InEpsilon(t, 0.0002, news.Quantile(0.5), 0.2)

	both := before.Histogram("took_seconds", nil).Add(after.Histogram("took_seconds", nil))
	assert.InDelta(t, both.Count, inRanges(both), 0)
}

// TestMergeNeighbouringRanges for indexes of either sign: range i ends at
// 2^(i/2^schema).
func TestMergeNeighbouringRanges(t *testing.T) {
	t.Parallel()
	fine := Histogram{Count: 8, Schema: 2, Native: map[int32]float64{-4: 1, -3: 1, -1: 1, 0: 1, 1: 1, 3: 1, 4: 1, 5: 1}}
	wide := Histogram{Count: 1, Schema: 0, Native: map[int32]float64{3: 1}}
	assert.Equal(t, map[int32]float64{-1: 1, 0: 3, 1: 3, 2: 1, 3: 1}, fine.Add(wide).Native)
	assert.Equal(t, map[int32]float64{-1: 1, 0: 3, 1: 3, 2: 1, 3: 1}, wide.Add(fine).Native)
	assert.Equal(t, fine.Native, Histogram{}.Add(fine).Native, "an empty histogram has no width")
	assert.Equal(t, fine.Native, fine.Since(Histogram{}).Native)
}

// TestSinceAfterReset: a histogram may be emptied and have more observations
// than before by the next sample.
func TestSinceAfterReset(t *testing.T) {
	t.Parallel()
	native := Histogram{Count: 5, Native: map[int32]float64{1: 5}}
	other := Histogram{Count: 7, Native: map[int32]float64{2: 7}}
	near := Histogram{Count: 9, Zero: 9}
	assert.Equal(t, other, other.Since(native))
	assert.Equal(t, near, near.Since(native))
	assert.Equal(t, other, other.Since(Histogram{Count: 1, Zero: 1}))
	assert.Equal(t, native, native.Since(other))
}

func TestZeroBucketIsCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	one := histogram(t, reg).WithLabelValues("0-10")
	for range 3 {
		one.Observe(0)
	}
	one.Observe(0.5)
	before := gathered(t, reg).Histogram("took_seconds", nil)
	assert.InDelta(t, 0, before.Quantile(0.75), 1e-12)
	assert.InEpsilon(t, 0.5, before.Quantile(0.76), 0.1)
	one.Observe(0)
	news := gathered(t, reg).Histogram("took_seconds", nil).Since(before)
	assert.InDelta(t, 1, news.Zero, 0)
	assert.Zero(t, inRanges(news))
	assert.InDelta(t, 0, news.Quantile(1), 1e-12)
}

// TestInterpolationWithinRange is on a logarithmic scale.
func TestInterpolationWithinRange(t *testing.T) {
	t.Parallel()
	h := Histogram{Count: 10, Zero: 2, Native: map[int32]float64{1: 4, 3: 4}} // up to 2, and 4 to 8
	for q, want := range map[float64]float64{0.1: 0, 0.2: 0, 0.4: math.Sqrt2, 0.6: 2, 0.7: 4 * math.Pow(2, 0.25), 0.8: 4 * math.Sqrt2, 1: 8} {
		assert.InDelta(t, want, h.Quantile(q), 1e-9, "quantile %v", q)
	}
}

// inRanges counts the observations that are not nearly 0.
func inRanges(h Histogram) (n float64) {
	for _, one := range h.Native {
		n += one
	}
	return n
}

func TestHistogramOfOtherMetricsIsEmpty(t *testing.T) {
	t.Parallel()
	assert.Zero(t, HistogramOf(nil).Count)
	assert.Zero(t, HistogramOf(&dto.Metric{Gauge: &dto.Gauge{}}).Since(HistogramOf(nil)).Count)
}
