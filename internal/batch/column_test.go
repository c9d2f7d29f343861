package batch

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestColumnsGiveTheFieldsOfARow(t *testing.T) {
	t.Parallel()
	b := NewBuilder(time.UnixMilli(1000))
	times := telemetry.TimeRange{Newest: 2000}
	b.Begin("s", 0, times)
	b.Sensor([]byte("a"))
	b.Float([]byte("f"), 0.5)
	b.Int([]byte("i"), -1)
	b.Bool([]byte("b"), true)
	require.Nil(t, b.End())
	series, shape := b.LastSeries(), b.LastShape()
	table := []uint64{
		math.Float64bits(1.5), math.Float64bits(math.Inf(1)), math.Float64bits(-2),
		10, 11, ^uint64(11),
		1, 1, 0,
	}
	for row := range 3 {
		b.Begin("s", row+1, times)
		b.SameSeries(series)
		b.Columns(shape, table, 3, row)
		if refusal := b.End(); row == 1 {
			assert.Equal(t, telemetry.ValueNotFinite, refusal.Code)
			assert.Contains(t, refusal.Message, `field "f" is +Inf`)
		} else {
			assert.Nil(t, refusal)
		}
	}
	made := b.Batch()
	require.Equal(t, 3, made.Len())
	assert.Equal(t, []telemetry.Field{
		{Name: "f", Value: telemetry.FloatValue(-2)}, {Name: "i", Value: telemetry.IntValue(-12)}, {Name: "b", Value: telemetry.BoolValue(false)},
	}, made.Reading(2).Fields)
	assert.EqualValues(t, 3, made.Row(2).Index)
	assert.Same(t, made.Shape(made.Row(0)), made.Shape(made.Row(2)))
	assert.Equal(t, made.Row(0).Size, made.Row(2).Size)
}
