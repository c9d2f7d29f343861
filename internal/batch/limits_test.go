package batch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// What a list leaves of a batch is what the same readings make without the other
// fields.
func TestFieldListDropsOtherFields(t *testing.T) {
	t.Parallel()
	list := NewFieldList([]string{"a", "text"}, true)
	rapid.Check(t, func(t *rapid.T) {
		n := NewInterner(0)
		limited, plain := n.Builder(received), NewBuilder(received)
		limited.Fields = list
		taken, dropped := 0, 0
		for i := range rapid.IntRange(1, 10).Draw(t, "readings") {
			limited.Begin("readings", i, always)
			plain.Begin("readings", i, always)
			limited.Sensor([]byte("s"))
			plain.Sensor([]byte("s"))
			left := 0
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "text", "lost"}), 1, 4, rapid.ID[string]).Draw(t, "names") {
				f := telemetry.Field{Name: name, Value: telemetry.IntValue(int64(i))}
				if len(name) > 1 {
					f.Value = telemetry.TextValue(rapid.SampledFrom([]string{"", "x", "some words"}).Draw(t, "text"))
				}
				limited.Add(f)
				if name == "a" || name == "text" {
					left++
					plain.Add(f)
				} else {
					dropped++
				}
			}
			refusal := limited.End()
			if left == 0 {
				require.Equal(t, telemetry.FieldsMissing, refusal.Code)
				dropped = limited.Dropped
				plain.Undo()
				continue
			}
			require.Nil(t, refusal)
			require.Nil(t, plain.End())
			taken++
			require.Equal(t, dropped, limited.Dropped)
		}
		got, want := limited.Batch(), plain.Batch()
		require.Equal(t, taken, got.Len())
		for i := range uint32(want.Len()) {
			assert.Equal(t, want.Reading(i), got.Reading(i))
			assert.Equal(t, want.Row(i).Size, got.Row(i).Size)
		}
		assert.Equal(t, AppendBinary(nil, want), AppendBinary(nil, got), "nothing of the others is written")
	})
}

// A builder remembers the shape of the last reading, also from one request to the next,
// but not across the lists of two streams.
func TestFieldListsOfAlternatingStreams(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	for i, list := range []*FieldList{nil, NewFieldList([]string{"a"}, true), NewFieldList([]string{"b"}, true), nil} {
		b.Fields = list
		b.Begin("readings", i, always)
		b.Sensor([]byte("s"))
		b.Add(telemetry.Field{Name: "a", Value: telemetry.IntValue(1)})
		b.Add(telemetry.Field{Name: "b", Value: telemetry.IntValue(2)})
		require.Nil(t, b.End())
	}
	made := b.Batch()
	var fields []int
	for i := range uint32(made.Len()) {
		fields = append(fields, len(made.Reading(i).Fields))
	}
	assert.Equal(t, []int{2, 1, 1, 2}, fields)
}

func TestAllowSensorRefusesReadings(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	b.AllowSensor = func(id string) *telemetry.Refusal {
		if id == "mine" {
			return nil
		}
		return telemetry.Refuse(telemetry.SensorForbidden, "not yours")
	}
	for i, sensor := range []string{"mine", "other", "mine", "other"} {
		b.Begin("readings", i, always)
		b.Sensor([]byte(sensor))
		b.Int([]byte("t"), 1)
		assert.Equal(t, sensor == "mine", b.End() == nil)
	}
	made := b.Batch()
	assert.Equal(t, 2, made.Len())
	assert.Equal(t, 1, made.SeriesLen(), "sensors of others are not listed")
}
