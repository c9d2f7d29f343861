package store

import (
	"context"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
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
		require.Equal(rt, exact(a).Cmp(exact(b)), telemetry.CompareNumbers(a, b))
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

// newestOf is the newest time of a sensor.
const newestOf = 7

// listed is an index over ids in order; the sensors in gone have no readings
// left, and lookups of the broken one fail.
type listed struct {
	ids          []string
	gone, broken string
}

var errBroken = errors.New("broken")

func (l listed) index() SensorIndex {
	return SensorIndex{
		Next: func(_ context.Context, from string, exclusive bool) (string, error) {
			for _, id := range l.ids {
				if id > from || id == from && !exclusive {
					return id, nil
				}
			}
			return "", nil
		},
		Newest: func(_ context.Context, sensor string) (int64, bool, error) {
			if sensor == l.broken {
				return 0, false, errBroken
			}
			return newestOf, sensor != l.gone, nil
		},
	}
}

func TestSensorsOfAnIndex(t *testing.T) {
	t.Parallel()
	all := listed{ids: []string{"a", "b1", "b2", "b\U0010ffff", "c"}, gone: "b1"}
	for _, tt := range []struct {
		q    telemetry.SensorQuery
		want []string
	}{
		{telemetry.SensorQuery{}, []string{"a", "b2", "b\U0010ffff", "c"}},
		{telemetry.SensorQuery{Limit: 2}, []string{"a", "b2"}},
		{telemetry.SensorQuery{Prefix: "b"}, []string{"b2", "b\U0010ffff"}},
		{telemetry.SensorQuery{Prefix: "b\xf4"}, []string{"b\U0010ffff"}},
		{telemetry.SensorQuery{After: "b2", Limit: 1}, []string{"b\U0010ffff"}},
		{telemetry.SensorQuery{Prefix: "d"}, nil},
	} {
		var got []string
		for seen, err := range all.index().Sensors(t.Context(), tt.q) {
			require.NoError(t, err)
			assert.EqualValues(t, newestOf, seen.Newest)
			got = append(got, seen.Sensor)
		}
		assert.Equal(t, tt.want, got, "%+v", tt.q)
	}
}

func TestSensorsEndWithTheError(t *testing.T) {
	t.Parallel()
	var got []string
	var last error
	for seen, err := range (listed{ids: []string{"a", "b", "c"}, broken: "b"}).index().Sensors(t.Context(), telemetry.SensorQuery{}) {
		require.NoError(t, last, "nothing comes behind an error")
		if last = err; err == nil {
			got = append(got, seen.Sensor)
		}
	}
	assert.Equal(t, []string{"a"}, got)
	require.ErrorIs(t, last, errBroken)
	assert.EqualError(t, last, `list sensors: find the newest reading of sensor "b": broken`)
}

func TestSensorsAreThoseWithThePrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', 'é', 0xd7ff, 0xe000, 0x10ffff}), 0, 4, -1)
		ids := rapid.SliceOfNDistinct(texts.Filter(func(s string) bool { return s != "" }), 0, 20, rapid.ID).Draw(rt, "ids")
		slices.Sort(ids)
		prefix := texts.Draw(rt, "prefix")
		prefix = prefix[:rapid.IntRange(0, len(prefix)).Draw(rt, "bytes of the prefix")]
		q := telemetry.SensorQuery{Prefix: prefix, After: texts.Draw(rt, "after")}
		var want, got []string
		for _, id := range ids {
			if strings.HasPrefix(id, q.Prefix) && id > q.After {
				want = append(want, id)
			}
		}
		for seen, err := range (listed{ids: ids}).index().Sensors(context.Background(), q) {
			require.NoError(rt, err)
			got = append(got, seen.Sensor)
		}
		require.Equal(rt, want, got)
	})
}
