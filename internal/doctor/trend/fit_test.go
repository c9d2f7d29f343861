package trend

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func daily(values ...float64) []point {
	out := make([]point, len(values))
	for i, v := range values {
		out[i] = point{at: noon.Add(time.Duration(i) * day), value: v}
	}
	return out
}

func TestLineHasTheSlopeInSpiteOfOutliers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slope, at := rapid.Float64Range(-100, 100).Draw(t, "slope"), rapid.Float64Range(-1e6, 1e6).Draw(t, "at")
		n := rapid.IntRange(9, 40).Draw(t, "points")
		points := make([]point, n)
		for i := range points {
			points[i] = point{noon.Add(time.Duration(i) * day), at + slope*float64(i)}
		}
		for range n / 5 {
			points[rapid.IntRange(0, n-1).Draw(t, "where")].value = rapid.Float64Range(-1e9, 1e9).Draw(t, "outlier")
		}
		l := fit(points)
		tolerance := 1e-6 * (1 + math.Abs(at) + math.Abs(slope)*float64(n))
		assert.InDelta(t, slope, l.perSecond*day.Seconds(), tolerance)
		assert.InDelta(t, at+slope*float64(n), l.value(noon.Add(time.Duration(n)*day)), tolerance*float64(n))
	})
}

func TestLineReachesAValue(t *testing.T) {
	t.Parallel()
	l := fit(daily(10, 11, 12, 13))
	at, ok := l.reaches(20)
	require.True(t, ok)
	assert.WithinDuration(t, noon.Add(10*day), at, time.Second)
	_, ok = l.reaches(5)
	assert.False(t, ok, "that was before")
	_, ok = fit(daily(10, 10, 10)).reaches(20)
	assert.False(t, ok, "it never is")
	_, ok = fit(daily(0, 1e-12, 2e-12)).reaches(1)
	assert.False(t, ok, "after centuries")
}

// Noise is taken for a trend hardly ever, also when one day looks like the next.
func TestNoiseIsNoTrend(t *testing.T) {
	t.Parallel()
	const tries = 2000
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for _, kept := range []float64{0, 0.3} {
		found := 0
		for range tries {
			values, last := make([]float64, 21), 0.0
			for i := range values {
				last = kept*last + random.NormFloat64()
				values[i] = 100 + last*20
			}
			if _, d, _ := directNow(daily(values...), 0); d != Flat {
				found++
			}
		}
		assert.Less(t, found, tries/33, "%.1f of a day is left the next day", kept)
	}
}

func TestSmallTrendsInNoiseAreFound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
	const tries = 200
	found := 0
	for range tries {
		values := make([]float64, 21)
		for i := range values {
			values[i] = 100 + 2*float64(i) + 10*random.NormFloat64()
		}
		if _, d, _ := directNow(daily(values...), 0); d == Rising {
			found++
		}
	}
	assert.Greater(t, found, tries*8/10, "40 %% in three weeks with noise of 10 %%")
}

func TestChangesThatDoNotMatterAreNoTrend(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := range 21 {
		values = append(values, 1000+float64(i)*0.5)
	}
	_, d, _ := directNow(daily(values...), 0)
	assert.Equal(t, Flat, d, "1 %% in three weeks")
	for i := range values {
		values[i] = 0.1 + 0.01*float64(i)
	}
	_, d, _ = directNow(daily(values...), 50)
	assert.Equal(t, Flat, d, "0.1 to 0.3 where 50 is bad")
	_, d, _ = directNow(daily(values...), 0)
	assert.Equal(t, Rising, d)
}

func TestWhatBeganLatelyGoesOnLikeThat(t *testing.T) {
	t.Parallel()
	values := make([]float64, 21)
	for i := range values {
		values[i] = 50 + 3*max(0, float64(i)-10)
	}
	l, d, recent := directNow(daily(values...), 0)
	assert.Equal(t, Rising, d)
	assert.True(t, recent)
	assert.InDelta(t, 3, l.perSecond*day.Seconds(), 0.01)
}

func TestRankCorrelation(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 1, correlation([]float64{1, 2, 3, 4}, []float64{1, 10, 11, 1e9}), 1e-12)
	assert.InDelta(t, -1, correlation([]float64{1, 2, 3, 4}, []float64{4, 3, 2, -1}), 1e-12)
	assert.True(t, math.IsNaN(correlation([]float64{1, 2, 3}, []float64{5, 5, 5})))
	assert.Equal(t, []float64{3.5, 1, 3.5, 2}, ranks([]float64{9, 1, 9, 2}))
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 30).Draw(t, "n")
		values := rapid.SliceOfN(rapid.Float64Range(-5, 5), n, n)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		if c := correlation(a, b); !math.IsNaN(c) {
			assert.LessOrEqual(t, math.Abs(c), 1+1e-9)
			assert.InDelta(t, c, correlation(b, a), 1e-9)
		}
	})
}

func TestSinceIsWhereItStays(t *testing.T) {
	t.Parallel()
	beyond := func(v float64) bool { return v >= 5 }
	for _, c := range []struct {
		values []float64
		want   int // block; 0: before
	}{
		{[]float64{1, 1, 1, 6, 6, 6}, 3},
		{[]float64{6, 6, 6, 6}, 0},
		{[]float64{1, 6, 1, 1, 1, 1, 1, 6, 6, 6}, 7},
		{[]float64{1, 1, 6, 6, 6, 6, 1, 6, 6, 6}, 2}, // one good day does not count
		{[]float64{1, 1, 1, 1, 6}, 4},
	} {
		points := daily(c.values...)
		got := since(points, beyond)
		if c.want == 0 {
			assert.Nil(t, got, c.values)
			continue
		}
		require.NotNil(t, got, c.values)
		assert.Equal(t, points[c.want].at, *got, c.values)
	}
}

func TestSparklineShowsShapeAndGaps(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	assert.Equal(t, "▁▃▅▇█", sparkline([]float64{0, 25, 50, 75, 100}, 21))
	assert.Equal(t, "▁ █", sparkline([]float64{1, nan, 2}, 21))
	assert.Equal(t, "▄▄▅", sparkline([]float64{100, 100, 101}, 21), "1 %% is no mountain")
	assert.Equal(t, "▁▁▁", sparkline([]float64{0, 0, 0}, 21))
	assert.Equal(t, "▁█", sparkline([]float64{1, 1, 9, 9}, 2))
	assert.Empty(t, sparkline(nil, 21))
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"96 %": amount(96, "%"), "8.13 ms": amount(8.1265, "ms"), "2,010 readings/s": amount(2010.4, "readings/s"), "1.5 GiB": amount(1.5*(1<<30), "bytes"),
		"-2 KiB": amount(-2048, "bytes"), "0 pages/s": amount(1e-9, "pages/s"), "-": amount(math.NaN(), "%"), "0.012 %": amount(0.012, "%"),
		"12 B": amount(12, "bytes"), "-3 %": cell(-3, "%"), "12/s": cell(12, "pages/s"), "+40 %": growth(10, 14), "±0 %": growth(10, 10.01), "-50 %": growth(10, 5), "4 times": growth(10, 40),
	} {
		assert.Equal(t, want, got)
	}
	assert.Equal(t, "a b\n  c", wrap("a b c", 3))
}
