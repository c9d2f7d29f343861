package shape

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// collect copies what commands yields, because its memory is reused.
func collect(r Readings, perUpdate, size int) (all [][]Portion) {
	for portions := range r.commands(perUpdate, size) {
		all = append(all, slices.Clone(portions))
	}
	return all
}

func TestCommandsAreFilledInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	r := Readings{Sensors: 3, Count: 5, Interval: time.Second}
	assert.Equal(t, [][]Portion{
		{{Sensor: 0, First: 0, Count: 2}, {Sensor: 1, First: 0, Count: 2}},
		{{Sensor: 2, First: 0, Count: 2}, {Sensor: 0, First: 2, Count: 2}},
		{{Sensor: 1, First: 2, Count: 2}, {Sensor: 2, First: 2, Count: 2}},
		{{Sensor: 0, First: 4, Count: 1}, {Sensor: 1, First: 4, Count: 1}, {Sensor: 2, First: 4, Count: 1}},
	}, collect(r, 2, 4))
}

// TestLateReadingsComeOnceEach also checks that they come late, and by the seed.
func TestLateReadingsComeOnceEach(t *testing.T) {
	t.Parallel()
	r := Readings{Sensors: 2, Count: 500, Interval: time.Minute, Late: Late{Part: 0.2, From: 10 * time.Minute, To: time.Hour, Seed: 3}}
	commands := collect(r, 60, CommandReadings)
	assert.Equal(t, commands, collect(r, 60, CommandReadings))
	for sensor := range r.Sensors {
		var arrived []uint64
		late := 0
		newest := uint64(0)
		for _, portions := range commands {
			require.Len(t, portions, 1)
			if portions[0].Sensor != sensor {
				continue
			}
			assert.LessOrEqual(t, portions[0].Count, 60)
			for i := range portions[0].Count {
				k := portions[0].First + uint64(i)
				arrived = append(arrived, k)
				if k < newest {
					late++
					// A reading 10 to 60 minutes late, and the late ones it overtakes.
					assert.LessOrEqual(t, newest-k, uint64(60))
				}
				newest = max(newest, k)
			}
		}
		assert.InDelta(t, 100, late, 40)
		slices.Sort(arrived)
		require.Len(t, arrived, r.Count)
		for k, got := range arrived {
			require.EqualValues(t, k, got)
		}
	}
}

func TestSourcesAreMadeByTheirSeed(t *testing.T) {
	t.Parallel()
	for _, s := range []struct{ one, other Source }{
		{Ratings(1), Ratings(2)},
		{Doubles(1, "a", "b"), Doubles(2, "a", "b")},
	} {
		different := false
		for k := range uint64(100) {
			a := s.one.AppendFields(nil, 4, k, Begin())
			assert.Equal(t, a, s.one.AppendFields(nil, 4, k, Begin()))
			different = different || !slices.Equal(a, s.other.AppendFields(nil, 4, k, Begin()))
		}
		assert.True(t, different)
		assert.NotEqual(t, s.one.ID(0), s.one.ID(1))
		assert.Empty(t, s.one.Tags(0))
	}
	for k := range uint64(100) {
		rating := Ratings(1).AppendFields(nil, 0, k, Begin())[0].Value.Float()
		assert.Zero(t, 2*rating-float64(int(2*rating)), "in halves")
		assert.True(t, rating >= 0.5 && rating <= 5)
	}
}

func TestShapeNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Brim's buckets, 5m", Shape{Kind: Buckets, Granularity: 5 * time.Minute}.String())
	assert.Equal(t, "Brim's buckets, 1h", Shape{Kind: Buckets, Granularity: time.Hour}.String())
}
