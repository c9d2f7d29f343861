package storage

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWritesAreDueByTheSchedule(t *testing.T) {
	t.Parallel()
	s := schedule{{10, time.Second}, {100, 2 * time.Second}}
	for n, want := range map[int]time.Duration{
		0: 0, 1: 100 * time.Millisecond, 9: 900 * time.Millisecond, 10: time.Second, 11: 1010 * time.Millisecond, 209: 2990 * time.Millisecond,
	} {
		at, ok := s.due(n)
		assert.True(t, ok, n)
		assert.InDelta(t, want.Seconds(), at.Seconds(), 1e-6, n)
	}
	_, ok := s.due(210)
	assert.False(t, ok, "the schedule has ended")
	assert.InDelta(t, 10, s.at(999*time.Millisecond), 0)
	assert.InDelta(t, 100, s.at(time.Second), 0)
	assert.Zero(t, s.at(3*time.Second))
	assert.Equal(t, 3*time.Second, s.length())
}

func TestARampRisesByTheFactor(t *testing.T) {
	t.Parallel()
	s := rampConfig{idle: time.Second, step: 2 * time.Second, steps: 2}.schedule()
	assert.Equal(t, schedule{{100, time.Second}, {150, 2 * time.Second}, {225, 2 * time.Second}}, s)
}

func TestQuantilesAreOfTheStretchAskedFor(t *testing.T) {
	t.Parallel()
	var l latencies
	for i := range 100 {
		l.add(time.Duration(i)*time.Second, time.Duration(100-i)*time.Millisecond)
	}
	all := l.between(0, 100*time.Second)
	assert.InDelta(t, 0.050, all.p50(), 1e-9)
	assert.InDelta(t, 0.099, all.p99(), 1e-9)
	assert.InDelta(t, 0.100, all.quantile(1), 1e-9)
	assert.Equal(t, sorted{0.091, 0.092}, l.between(8*time.Second, 10*time.Second), "the end is not in it")
	assert.True(t, math.IsNaN(sorted(nil).p99()))
}
