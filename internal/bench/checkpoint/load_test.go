package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/lane"
)

func small() Load {
	return Load{Sensors: 8, Granularity: time.Hour, Interval: 5 * time.Second, ReadingsPerUpdate: 2, ReadingsPerSecond: 800}
}

func TestALoadIsChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, small().check())
	for what, change := range map[string]func(*Load){
		"fewer sensors than lanes": func(l *Load) { l.Sensors = lanes - 1 },
		"no readings":              func(l *Load) { l.ReadingsPerUpdate = 0 },
		"no rate":                  func(l *Load) { l.ReadingsPerSecond = 0 },
		"no interval":              func(l *Load) { l.Interval = 0 },
		"a window with a rest":     func(l *Load) { l.Interval = 7 * time.Second },
		"no granularity":           func(l *Load) { l.Granularity = 7 * time.Hour },
	} {
		l := small()
		change(&l)
		_, err := newWriter(nil, l, 1)
		assert.Error(t, err, what)
	}
}

func TestARateIsMadeOfCommands(t *testing.T) {
	t.Parallel()
	l := Load{Sensors: 500, ReadingsPerUpdate: 4, ReadingsPerSecond: 4000}
	assert.Equal(t, 5, l.updatesPerCommand())
	assert.Equal(t, 5*time.Millisecond, l.pause())
	assert.Equal(t, 500*time.Millisecond, l.Revisit())
	l.ReadingsPerSecond = 40
	assert.Equal(t, 1, l.updatesPerCommand(), "slower than commands are wanted")
	assert.Equal(t, 100*time.Millisecond, l.pause())
}

func TestEachReadingIsWrittenOnce(t *testing.T) {
	t.Parallel()
	w, err := newWriter(nil, small(), 1)
	require.NoError(t, err)
	seen := make(map[lane.Portion]bool)
	for range 6 {
		for number := range lanes {
			for _, p := range w.portions(number, nil) {
				assert.False(t, seen[p], "%v", p)
				seen[p] = true
			}
		}
	}
	for _, next := range w.next {
		assert.EqualValues(t, 12, next, "each sensor came as often")
	}
	documents := w.documents([]lane.Portion{{Sensor: 3, First: 1, Count: 2}})
	require.Len(t, documents, 2)
	assert.NotEqual(t, documents[0], documents[1])
}

// TestLatencyCountsFromWhenAWriteWasDue has one write that takes 30 ms, and the
// next ones waiting for it.
func TestLatencyCountsFromWhenAWriteWasDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWriter(nil, small(), 1)
		require.NoError(t, err)
		pause := w.load.pause() * lanes // of one lane
		n := 0
		stop := make(chan struct{})
		operations, err := w.pace(t.Context(), stop, time.Now(), paced{write: func(context.Context, []lane.Portion) error {
			switch n++; n {
			case 2:
				time.Sleep(pause + pause/2) //nolint:forbidigo // in a bubble, where time is fake
			case 4:
				close(stop)
			}
			return nil
		}})
		require.NoError(t, err)
		require.Len(t, operations, 4)
		for i, want := range []time.Duration{0, pause + pause/2, pause / 2, 0} {
			assert.InDelta(t, want.Seconds(), operations[i].done-operations[i].due, 1e-9, "write %d", i)
		}
	})
}

func TestAFailedWriteEndsTheLane(t *testing.T) {
	t.Parallel()
	w, err := newWriter(nil, small(), 1)
	require.NoError(t, err)
	broken := errors.New("broken")
	_, err = w.pace(t.Context(), nil, time.Now(), paced{write: func(context.Context, []lane.Portion) error { return broken }})
	require.ErrorIs(t, err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.pace(ctx, nil, time.Now().Add(time.Hour), paced{})
	require.ErrorIs(t, err, context.Canceled)
}
