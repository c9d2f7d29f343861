package storetest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Answers holds a store with one sensor to every kind of answer about it. The
// readings are all that the sensor has, in time order.
func Answers(t require.TestingT, s Store, sensor string, readings ...telemetry.Reading) {
	ctx := context.Background()
	assert.Equal(t, readings, ReadAll(t, s, sensor))
	last := readings[len(readings)-1]
	latest, found, err := s.Latest(ctx, sensor, nil)
	require.NoError(t, err)
	assert.True(t, found, "the latest reading")
	assert.Equal(t, last, latest)
	var count int64
	for step, err := range s.Summary(ctx, telemetry.SummaryQuery{Query: telemetry.Query{Sensor: sensor, To: last.Time.UnixMilli() + 1}}) {
		require.NoError(t, err)
		count += step.Count
	}
	assert.EqualValues(t, len(readings), count, "readings of the summary")
	var listed []telemetry.SensorSeen
	for seen, err := range s.Sensors(ctx, telemetry.SensorQuery{Limit: 10}) {
		require.NoError(t, err)
		listed = append(listed, seen)
	}
	assert.True(t, slices.Equal([]telemetry.SensorSeen{{Sensor: sensor, Newest: last.Time.UnixMilli()}}, listed), "the list of sensors: %v", listed)
}
