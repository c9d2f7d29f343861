package checkpoint

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/shape"
)

// samplesOf returns samples of a server with checkpoints at 1 s, 3 s and 5 s of 200 ms each,
// that writes 10 bytes a second and 100 at each checkpoint, and counts a checkpoint as soon as
// it starts.
func samplesOf(until float64) []sample {
	var samples []sample
	l := sample{Checkpoints: 7, CheckpointSeconds: 3}
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
		samples = append(samples, l)
	}
	return samples
}

func TestPeriodsGoFromTheEndOfACheckpointToTheNext(t *testing.T) {
	t.Parallel()
	ms := func(due, done int) shape.Operation {
		return shape.Operation{Due: time.Duration(due) * time.Millisecond, Done: time.Duration(done) * time.Millisecond}
	}
	operations := []shape.Operation{
		ms(2000, 2010), ms(2500, 2530), // between
		ms(2800, 3100), ms(3100, 3150), // overlap the checkpoint at 3 s
		ms(4000, 4500),
	}
	periods := periodsOf(seenBy{samples: samplesOf(5.5), operations: operations}, 2*time.Second)
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
	assert.InDelta(t, 0.3, p.Inside, 1e-9)
	assert.InDelta(t, 0.03, p.Outside, 1e-9)
	assert.True(t, math.IsNaN(periods[1].Inside), "no write overlapped it")
	assert.InDelta(t, 0.5, periods[1].Outside, 1e-9)

	periods = periodsOf(seenBy{samples: samplesOf(5.5), warm: 4 * time.Second}, 2*time.Second)
	require.Len(t, periods, 1, "the others ended too early")
	assert.InDelta(t, 5.2, periods[0].To, 1e-9)
	assert.Empty(t, periodsOf(seenBy{samples: samplesOf(5.5)}, 3*time.Second), "checkpoints come too often")
	assert.Empty(t, periodsOf(seenBy{}, time.Second))
}

func TestCheckpointsAreCountedFromTheFirstToTheLast(t *testing.T) {
	t.Parallel()
	n, seconds := counted(samplesOf(5.5))
	assert.Equal(t, 2, n)
	assert.InDelta(t, 4, seconds, 1e-9)
	n, seconds = counted(samplesOf(1.5))
	assert.Zero(t, n)
	assert.Zero(t, seconds)
}
