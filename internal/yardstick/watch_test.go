package main

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTrend(t *testing.T) {
	t.Parallel()
	rising := make([]float64, 60)
	level := make([]float64, 60)
	for i := range rising {
		rising[i] = 0.5 + 0.1*float64(i)
		level[i] = 0.5 + 0.2*float64(i%2)
	}
	up := trendOf(rising)
	assert.True(t, up.grows())
	assert.InDelta(t, 0.5+0.95, up.first, 1e-9)
	assert.InDelta(t, 0.5+4.95, up.last, 1e-9)
	flat := trendOf(level)
	assert.False(t, flat.grows())
	assert.Equal(t, trend{2, 2}, trendOf([]float64{2}))
	assert.Equal(t, trend{}, trendOf(nil))
}

func TestOnlyTheSecondsOfTheLoadCount(t *testing.T) {
	t.Parallel()
	w := &lagWatch{lags: []lag{{at: 0, mean: 1}, {at: time.Second, mean: 2}, {at: 3 * time.Second, mean: 3}}}
	assert.Equal(t, []lag{{at: 0, mean: 1}, {at: time.Second, mean: 2}}, w.until(2*time.Second))
}

func TestSecondsInWhichNothingIsStoredCount(t *testing.T) {
	t.Parallel()
	lags := make([]lag, 9)
	for i := range lags {
		lags[i] = lag{mean: 0.5, oldest: 0.6}
		if i >= 6 { // it hangs
			lags[i] = lag{mean: math.NaN(), oldest: float64(i - 4)}
		}
	}
	stuck := trendOf(apply(lags, (*lag).seconds))
	assert.Equal(t, trend{0.5, 3}, stuck)
	assert.True(t, stuck.grows())
}

func TestGrowthIsAQuarterAndHalfASecond(t *testing.T) {
	t.Parallel()
	assert.True(t, trend{first: 2, last: 2.51}.grows())
	assert.False(t, trend{first: 2, last: 2.5}.grows(), "a quarter")
	assert.False(t, trend{first: 0.1, last: 0.6}.grows(), "half a second")
	assert.True(t, trend{first: 0.1, last: 0.61}.grows())
}

func TestEveryLooksUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		stop := every(t.Context(), time.Second, func(context.Context) error {
			looks++
			return nil
		})
		<-time.After(3*time.Second + time.Millisecond)
		require.NoError(t, stop())
		assert.Equal(t, 4, looks)
	})
}

func TestEveryEndsWithAnErrorButNotThatOfItsEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		stop := every(t.Context(), time.Second, func(context.Context) error {
			if looks++; looks == 3 {
				return broken
			}
			return nil
		})
		<-time.After(time.Minute)
		require.ErrorIs(t, stop(), broken)
		assert.Equal(t, 3, looks)
	})
	stop := every(t.Context(), time.Hour, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	assert.NoError(t, stop(), "a look that was under way when it was stopped")
}
