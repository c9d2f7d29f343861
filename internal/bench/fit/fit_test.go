package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALineIsFoundThroughPoints(t *testing.T) {
	t.Parallel()
	l, ok := Through([]float64{1, 5, 12, 60}, []float64{42, 50, 64, 160})
	require.True(t, ok)
	assert.InDelta(t, 40, l.Base, 1e-6)
	assert.InDelta(t, 2, l.Each, 1e-6)
	assert.InDelta(t, 0, l.BaseError, 1e-6)
	assert.InDelta(t, 1, l.R2, 1e-9)
	assert.InDelta(t, 60, l.At(10), 1e-6)
	assert.InDelta(t, 0.06, l.Over(1000).At(10), 1e-9)
	assert.Equal(t, 4, l.Points)
}

func TestEachPointCountsByItsOwnSize(t *testing.T) {
	t.Parallel()
	// The last point is 10 % too high; in a plain fit it would move the base by a fifth.
	l, ok := Through([]float64{1, 5, 12, 60}, []float64{42, 50, 64, 176})
	require.True(t, ok)
	assert.InDelta(t, 40, l.Base, 2)
}

func TestALineNeedsTwoPlacesAndValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ x, y []float64 }{
		{nil, nil},
		{[]float64{5}, []float64{1}},
		{[]float64{5, 5}, []float64{1, 2}},
		{[]float64{1, 5}, []float64{0, 2}},
		{[]float64{1, 5}, []float64{math.NaN(), 2}},
		{[]float64{1, 5}, []float64{1, math.Inf(1)}},
		{[]float64{1, 5, 7}, []float64{1, 2}},
	} {
		_, ok := Through(c.x, c.y)
		assert.False(t, ok, "%v %v", c.x, c.y)
	}
}

func TestTwoPointsTellNoError(t *testing.T) {
	t.Parallel()
	l, ok := Through([]float64{1, 3}, []float64{2, 4})
	require.True(t, ok)
	assert.Equal(t, []float64{0, 0}, []float64{l.BaseError, l.EachError})
}

// TestErrorsAreThoseOfManyTrials draws lines through points that are off at
// random by a known share, and holds the spread of the slopes against the error
// that each line tells of itself.
func TestErrorsAreThoseOfManyTrials(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not secret
	const trials = 2000
	var slopes, told []float64
	for range trials {
		var x, y []float64
		for _, at := range []float64{1, 12, 60, 180, 720} {
			for range 3 {
				x, y = append(x, at), append(y, (40+0.5*at)*(1+0.05*random.NormFloat64()))
			}
		}
		l, ok := Through(x, y)
		require.True(t, ok)
		slopes, told = append(slopes, l.Each), append(told, l.EachError)
	}
	var sum, squares, mean float64
	for i := range slopes {
		sum, squares, mean = sum+slopes[i], squares+slopes[i]*slopes[i], mean+told[i]/trials
	}
	seen := math.Sqrt(squares/trials - square(sum/trials))
	assert.InEpsilon(t, seen, mean, 0.1)
	assert.InEpsilon(t, 0.5, sum/trials, 0.02)
}
