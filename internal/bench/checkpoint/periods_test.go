package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// looks are those of a server with checkpoints at 1 s, 3 s and 5 s, of 200 ms
// each, that writes 10 bytes a second and 100 at each checkpoint. It counts a
// checkpoint as soon as it begins.
func looksOf(until float64) []Look {
	var looks []Look
	l := Look{Checkpoints: 7, CheckpointSeconds: 3}
	for n := 0; float64(n)/10 <= until; n++ {
		at := float64(n) / 10
		l.At, l.WrittenBytes = at, 10*at+l.CheckpointWrittenBytes
		l.DirtyBytes++
		l.JournalBytes = 5 * at
		switch n % 20 {
		case 10:
			l.Checkpoints++
			l.Running = true
		case 12:
			l.Running = false
			l.CheckpointSeconds += 0.2
			l.CheckpointWrittenBytes += 100
			l.WrittenBytes += 100
			l.DirtyBytes = 2
		}
		looks = append(looks, l)
	}
	return looks
}

func TestPeriodsGoFromTheEndOfACheckpointToTheNext(t *testing.T) {
	t.Parallel()
	operations := []operation{
		{due: 2.0, done: 2.01}, {due: 2.5, done: 2.53}, // between
		{due: 2.8, done: 3.1}, {due: 3.1, done: 3.15}, // meet the one at 3 s
		{due: 4.0, done: 4.5},
	}
	periods := periodsOf(seenBy{looks: looksOf(5.5), operations: operations}, 2*time.Second)
	require.Len(t, periods, 2, "the first is not whole")
	p := periods[0]
	assert.InDelta(t, 1.2, p.From, 1e-9)
	assert.InDelta(t, 3.2, p.To, 1e-9)
	assert.InDelta(t, 2, p.Seconds(), 1e-9)
	assert.InDelta(t, 0.2, p.CheckpointSeconds, 1e-9)
	assert.InDelta(t, 120, p.WrittenBytes, 1e-9)
	assert.InDelta(t, 100, p.CheckpointWrittenBytes, 1e-9)
	assert.InDelta(t, 10, p.JournalBytes, 1e-9)
	assert.InDelta(t, 21, p.DirtyBytes, 1e-9, "at its most")
	assert.InDelta(t, 19, p.GatheredBytes, 1e-9, "2 were dirty at its beginning")
	assert.Equal(t, 2, p.Met)
	assert.InDelta(t, 0.3, p.Inside, 1e-9)
	assert.InDelta(t, 0.03, p.Outside, 1e-9)
	assert.Zero(t, periods[1].Inside, "no write met it")
	assert.InDelta(t, 0.5, periods[1].Outside, 1e-9)

	periods = periodsOf(seenBy{looks: looksOf(5.5), warm: 4 * time.Second}, 2*time.Second)
	require.Len(t, periods, 1, "the other ended too early")
	assert.InDelta(t, 5.2, periods[0].To, 1e-9)
	assert.Empty(t, periodsOf(seenBy{looks: looksOf(5.5)}, 3*time.Second), "checkpoints come too often for it")
	assert.Empty(t, periodsOf(seenBy{}, time.Second))
}

func TestCheckpointsAreCountedFromTheFirstToTheLast(t *testing.T) {
	t.Parallel()
	n, seconds := counted(looksOf(5.5))
	assert.Equal(t, 2, n)
	assert.InDelta(t, 4, seconds, 1e-9)
	n, seconds = counted(looksOf(1.5))
	assert.Zero(t, n)
	assert.Zero(t, seconds)

	c := costOf(Load{}, 2*time.Second, seenBy{looks: looksOf(5.5)})
	assert.InDelta(t, 1, c.Obeyed(), 1e-9)
	assert.InDelta(t, 3600*60, c.BytesPerHour().Median(), 1e-6)
	assert.Empty(t, c.Inside(), "no write was there")
}

func TestOneOfAHundredIsSlower(t *testing.T) {
	t.Parallel()
	values := make([]float64, 200)
	for i := range values {
		values[i] = float64(200 - i)
	}
	assert.InDelta(t, 198, p99(values), 0)
	assert.InDelta(t, 3, p99([]float64{3, 1, 2}), 0)
	assert.Zero(t, p99(nil))
}

func TestAWayIsCountedFromItsFirstCheckpointToItsLast(t *testing.T) {
	t.Parallel()
	// Checkpoints end at 1.2, 3.2 and 5.2 s: half of one a second, whenever the
	// counting ended.
	for _, until := range []float64{3.5, 5.1, 5.5, 7} {
		assert.InDelta(t, 0.5, obeyedOf(looksOf(until)).Share(), 1e-9, "%v s", until)
	}
	assert.Equal(t, Obeyed{Asked: 1, Counted: 1, Observed: 2}, obeyedOf(looksOf(2)), "one has no other to be counted to")
	assert.Zero(t, obeyedOf(looksOf(0.5)).Share())
}
