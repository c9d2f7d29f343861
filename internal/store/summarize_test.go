package store

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestNumbersCompareByValue(t *testing.T) {
	t.Parallel()
	exact := func(v telemetry.Value) *big.Float {
		if v.Kind() == telemetry.Int {
			return new(big.Float).SetPrec(200).SetInt64(v.Int())
		}
		return new(big.Float).SetPrec(200).SetFloat64(v.Float())
	}
	numbers := rapid.OneOf(
		rapid.Map(rapid.Int64(), telemetry.IntValue),
		rapid.Map(rapid.Float64Range(-1e19, 1e19), telemetry.FloatValue),
		rapid.Map(rapid.Int64Range(-3, 3), func(i int64) telemetry.Value { return telemetry.FloatValue(math.Ldexp(1, 53) + float64(i)) }),
		rapid.Map(rapid.Int64Range(-3, 3), func(i int64) telemetry.Value { return telemetry.IntValue(1<<53 + i) }),
		rapid.Map(rapid.Int64Range(0, 3), func(i int64) telemetry.Value { return telemetry.IntValue(math.MaxInt64 - i) }),
		rapid.SampledFrom([]telemetry.Value{
			telemetry.FloatValue(0x1p63), telemetry.FloatValue(-0x1p63), telemetry.IntValue(math.MinInt64), telemetry.FloatValue(0.5),
			telemetry.IntValue(0), telemetry.FloatValue(-0.5), telemetry.FloatValue(math.MaxFloat64),
		}),
	)
	rapid.Check(t, func(rt *rapid.T) {
		a, b := numbers.Draw(rt, "a"), numbers.Draw(rt, "b")
		require.Equal(rt, exact(a).Cmp(exact(b)), CompareNumbers(a, b))
	})
}

func TestStepsAreAlignedToTheEpoch(t *testing.T) {
	t.Parallel()
	s := NewSteps(telemetry.SummaryQuery{Query: telemetry.Query{From: 5, To: 1000}, Every: 100})
	assert.Equal(t, int64(0), s.Start(5))
	assert.Equal(t, int64(0), s.Start(99))
	assert.Equal(t, int64(100), s.Start(100))
	assert.Equal(t, int64(-100), s.Start(-1))
	assert.True(t, s.Whole(5, 99))
	assert.False(t, s.Whole(4, 99), "the span begins later")
	assert.False(t, s.Whole(50, 100), "two steps")
	assert.False(t, s.Whole(950, 1000), "the span ends before")
	assert.False(t, s.Whole(60, 50), "not what a document says")
	one := NewSteps(telemetry.SummaryQuery{Query: telemetry.Query{From: 5, To: 1000}})
	assert.Equal(t, int64(5), one.Start(999))
}
