package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSensorsMakeTheReadingsOfARun(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	c := Config{Sensors: 3, Interval: 5 * time.Second, Speedup: 1, Rate: Rate{From: 0.6, To: 0.6}, Duration: time.Minute, Seed: 7, Start: start}
	c.Fleet = fleetConfig{Fields: 5, Signal: mixed, SensorPrefix: "s-"}
	f := newFleet(&c, newSchedule(c.Rate, c.Duration, 0))
	s, err := NewSensors(SensorsConfig{Count: 3, Fields: 5, Seed: 7, Prefix: "s-"})
	require.NoError(t, err)
	require.Equal(t, 3, s.Len())
	number := map[string]int{"s-1": 0, "s-2": 1, "s-3": 2}
	var m scratch
	f.fill(&m, 0, 30)
	seen := map[string]uint64{}
	for _, r := range m.readings {
		i := number[r.Sensor]
		assert.Equal(t, r.Sensor, s.ID(i))
		assert.Equal(t, r.Tags, s.Tags(i))
		assert.Equal(t, r.Fields, s.AppendFields(nil, i, seen[r.Sensor], r.Time))
		seen[r.Sensor]++
	}
	assert.Len(t, seen, 3)
}

func TestSensorsNeedOne(t *testing.T) {
	t.Parallel()
	_, err := NewSensors(SensorsConfig{})
	require.ErrorContains(t, err, "0 sensors")
	_, err = NewSensors(SensorsConfig{Count: 1, Fields: 257})
	require.ErrorContains(t, err, "up to 256")
	s, err := NewSensors(SensorsConfig{Count: 1})
	require.NoError(t, err)
	assert.Len(t, s.AppendFields(nil, 0, 0, time.Now()), 4)
}
