package storage

import (
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
	assert.Equal(t, 3*time.Second, s.length())
}

func TestRampSchedule(t *testing.T) {
	t.Parallel()
	s := rampConfig{idle: time.Second, step: 2 * time.Second, steps: 2}.schedule()
	assert.Equal(t, schedule{{100, time.Second}, {150, 2 * time.Second}, {225, 2 * time.Second}}, s)
}

func TestPatternsDeleteAQuarter(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{scattered, contiguous} {
		n := 0
		for i := range 1000 {
			if inQuarter(pattern, i, 1000) {
				n++
			}
		}
		assert.Equal(t, 250, n, pattern)
	}
}
