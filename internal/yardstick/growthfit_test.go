package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/fit"
)

func TestAtTheKneeADoublingGainsALittle(t *testing.T) {
	t.Parallel()
	s := fit.Line{Base: 40, Each: 2}
	k, ok := knee(s)
	require.True(t, ok)
	assert.InDelta(t, 90, k, 1e-9)
	reading := func(k float64) float64 { return s.At(k) / k }
	assert.InDelta(t, littleGain, reading(k)/reading(2*k)-1, 1e-9)
	assert.Greater(t, reading(k/2)/reading(k)-1, littleGain)
	for _, none := range []fit.Line{{Base: -1, Each: 2}, {Base: 40, Each: -0.1}, {}} {
		_, ok := knee(none)
		assert.False(t, ok)
		assert.Equal(t, "none", kneeWords(none))
	}
}

func TestMergeFitTellsHowFarItIsOff(t *testing.T) {
	t.Parallel()
	points := make([]growthPoint, 3)
	for i, k := range []int{1, 10, 100} {
		points[i] = growthPoint{shape: shape{Sensors: 7, PerUpdate: k}, MongodUpdate: 10 + float64(k), TripUpdate: 20 + 3*float64(k)}
	}
	f, ok := fitMerges(points)
	require.True(t, ok)
	assert.Equal(t, 7, f.Sensors)
	assert.InDelta(t, 0, f.Off, 1e-9)
	assert.InDelta(t, 3, f.Trip.Each, 1e-9)
	points[1].MongodUpdate = 40
	f, ok = fitMerges(points)
	require.True(t, ok)
	assert.Greater(t, f.Off, 0.2)
	_, ok = fitMerges(points[:1])
	assert.False(t, ok)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate, microseconds, cores float64
		hosts                     int
	}{
		{1e6, 2, 2, 1}, {1e6, 9.6, 9.6, 1}, {1e6, 9.7, 9.7, 2}, {1e7, 9.6, 96, 10}, {0, 5, 0, 0},
	} {
		cores, hosts := hostsFor(c.rate, c.microseconds)
		assert.InDelta(t, c.cores, cores, 1e-9)
		assert.Equal(t, c.hosts, hosts, "%v", c)
	}
	p := planFor(1e7, 60, 2, 5)
	assert.Equal(t, 3, p.Daemons)
	assert.Equal(t, 6, p.Shards)
}

func TestPointTellsOfItself(t *testing.T) {
	t.Parallel()
	p := growthPoint{shape: shape{Sensors: 10}, Created: 8, Touched: 4, Readings: 1000, Updates: 100, Documents: 9}
	trips := []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}
	p.tell(cpu{mongod: 10 * time.Millisecond, generator: 2 * time.Millisecond}, 2*time.Second, trips)
	assert.Equal(t, 500.0, p.Rate)
	assert.Equal(t, 50.0, p.Updated)
	assert.Equal(t, 10.0, p.MongodReading)
	assert.Equal(t, 100.0, p.MongodUpdate)
	assert.Equal(t, 2.0, p.ClientReading)
	assert.Equal(t, 3000.0, p.TripP50)
	assert.Equal(t, 4000.0, p.TripP99)
	assert.Equal(t, 100.0, p.TripUpdate)
	assert.Equal(t, 0.0, quantile(nil, 0.5))
	assert.Equal(t, "the warm-up made buckets of 8 sensors; the others were left out; the time was enough for 4 of 8 buckets; 1.0 % of the updates began a document", p.remarks())
}
